"""One coverage-guided run: `python -m tests.fuzz.guided TARGET SECONDS ARTIFACTS`, a process of its own.

The parsers are imported after the instrumentation is on, so this module imports nothing of the agent at its top.
"""

import sys
from pathlib import Path

from tests.fuzz import coverage


def main() -> None:
    """Never returns: libFuzzer ends the process, with another exit code than 0 after a finding."""
    name, seconds, artifacts = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    coverage.instrument()
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - after the instrumentation

    coverage.fuzz(TARGETS[name], seconds, artifacts)


if __name__ == "__main__":
    main()
