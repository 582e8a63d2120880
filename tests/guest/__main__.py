"""`make guest`: a guest with this checkout, for a person.

`python -m tests.guest [--selinux] [--checkout DIR] [COMMAND]`
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.guest.guest import CHECKOUT, Guest
from tests.guest.qemu.variants import APPARMOR, SELINUX


def main() -> int:
    """The exit code of the command, or of the shell."""
    parser = argparse.ArgumentParser(prog="python -m tests.guest", description="start a guest, and run a shell in it")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="what the guest has at the same path")
    parser.add_argument("--selinux", action="store_true", help="a guest in which SELinux is enforcing")
    parser.add_argument("command", nargs="?", default="", help="of a shell, run in the checkout; default: a login")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    with Guest(checkout, SELINUX if options.selinux else APPARMOR) as guest:
        print(f"A guest runs. From another terminal: ssh -F {guest.shell.config} guest", flush=True)
        script = f"cd {checkout} && {options.command or 'exec bash --login'}"
        return subprocess.run(guest.shell.command(script, terminal=sys.stdin.isatty()), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
