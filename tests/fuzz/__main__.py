"""Commands of the fuzzer.

python -m tests.fuzz list                          the targets
python -m tests.fuzz short TARGET                  seeds, earlier findings and some mutations
python -m tests.fuzz long [TARGET ...]             guided by coverage (Atheris), --seconds in all
python -m tests.fuzz replay TARGET FILE            one input again
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from tests.fuzz import coverage
from tests.fuzz.guard import Finding, Guard
from tests.fuzz.mutation import mutations
from tests.fuzz.targets import TARGETS

ARTIFACTS = Path(".run/fuzz")


def short(name: str, count: int, seed: int, artifacts: Path) -> None:
    """Feed the target's inputs and `count` mutations. Raises Finding."""
    target = TARGETS[name]
    with Guard(target, artifacts) as guard:
        for data in itertools.chain(target.inputs(), itertools.islice(mutations(target, seed), count)):
            guard.feed(data)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.description = __doc__
    parser.add_argument("--artifacts", type=Path, default=ARTIFACTS, help="where findings are kept")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    one = commands.add_parser("short")
    one.add_argument("target", choices=TARGETS)
    one.add_argument("--count", type=int, default=300)
    one.add_argument("--seed", type=int, default=1)
    many = commands.add_parser("long")
    many.add_argument("targets", nargs="*", choices=[*TARGETS, []])
    many.add_argument("--seconds", type=float, default=3600.0)
    again = commands.add_parser("replay")
    again.add_argument("target", choices=TARGETS)
    again.add_argument("file", type=Path)
    return parser


def main() -> int:
    """0 without a finding, 1 with one."""
    given = _parser().parse_args()
    try:
        if given.command == "list":
            print("\n".join(TARGETS))
        elif given.command == "short":
            short(given.target, given.count, given.seed, given.artifacts)
        elif given.command == "replay":
            with Guard(TARGETS[given.target], given.artifacts) as guard:
                guard.feed(given.file.read_bytes())
        else:
            return coverage.fuzz_all(given.targets or list(TARGETS), given.seconds, given.artifacts)
    except Finding as finding:
        print(finding, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
