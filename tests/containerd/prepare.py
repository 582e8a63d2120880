"""Before the tests: has what they need on this machine, or names it. `python -m tests.containerd.prepare`.

On a CI machine (CI=true, as root) it installs the Debian packages that are missing; a person is told the command.
"""

import os
import subprocess
import sys

from tests.containerd.requirements import APT, missing_for_host_ports, missing_for_pages, missing_requirements


def main() -> int:
    """0 when the tests on containerd can run or were opted out of; 1 otherwise, with the reason."""
    if os.environ.get("NODEVISOR_SKIP_CONTAINERD") == "1":
        print("The tests on containerd are left out: NODEVISOR_SKIP_CONTAINERD=1.")
        return 0
    problem = _missing()
    if problem and os.environ.get("CI") == "true" and os.geteuid() == 0:
        _install()
        problem = _missing()
    if problem:
        print(f"{problem}\nOr leave these tests out: NODEVISOR_SKIP_CONTAINERD=1 make test", file=sys.stderr)
    return 1 if problem else 0


def _missing() -> str:
    return missing_requirements() or missing_for_host_ports() or missing_for_pages()


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], [*APT.split(), "chromium", "-q"]):
        print("+", *command, flush=True)
        subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
