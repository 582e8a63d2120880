"""Steps on a fresh machine that several tests share: a clone, and a package index to set it up from."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.fresh.machine import HOMES, Machine

CHECKOUT = Path(__file__).parents[2]
CLONE = "nodevisor"
"""The directory of the clone in its user's home."""
_PORT = 8731
_PIP = f"[global]\nindex-url = http://127.0.0.1:{_PORT}/simple\ndisable-pip-version-check = true\n"


def publish(directory: Path) -> None:
    """Make `directory` a bare repository with HEAD of this checkout, with committed changes only."""
    for command in (
        ["init", "--quiet", "--bare", directory],
        ["-C", directory, "fetch", "--quiet", "--depth=1", f"file://{CHECKOUT}", "HEAD:refs/heads/main"],
        ["-C", directory, "symbolic-ref", "HEAD", "refs/heads/main"],
    ):
        subprocess.run(["git", "-c", "safe.directory=*", *command], check=True, capture_output=True, timeout=60)


def clone(machine: Machine, user: str, name: str = CLONE) -> str:
    """Clone the repository as `user` does, in the home directory; the clone's path there."""
    machine.must("git", "clone", "--quiet", "file:///srv/repository", name, user=user)
    return f"{HOMES[user]}/{name}"


def configure_pip(machine: Machine) -> None:
    """Let the machine's pip use the index of `index`, as a company's machines use its mirror."""
    machine.must("sh", "-c", 'printf %s "$1" > /etc/pip.conf', "sh", _PIP)


@contextmanager
def index(machine: Machine) -> Iterator[None]:
    """A package index on the machine's loopback, for as long as this is open."""
    command = machine.command(["python3", "/srv/fresh/index.py", "/srv/wheels", str(_PORT)])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=10)


def shared(repository: Path, wheels: Path) -> Mapping[str, Path]:
    """The files and directories that a machine of these tests sees below /srv."""
    return {"repository": repository, "wheels": wheels, "fresh": Path(__file__).parent}
