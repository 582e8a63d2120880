"""The wheels that setting up nodevisor asks a package index for, downloaded once by this machine's pip.

They are for the Python and the C library of the fresh machine, which may not be this machine's.
"""

import json
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.fresh.downloads.cache import cached

_ASK = (
    "import json, os, sys; "
    "print(json.dumps([list(sys.version_info[:2]), os.confstr('CS_GNU_LIBC_VERSION').split()[1].split('.')]))"
)
_TOOLS = ("pip>=25.1", "editables>=0.3")
"""Besides what pyproject.toml names: the set-up updates pip, and hatchling wants the second for an editable install."""


class CannotDownload(Exception):
    """The wheels are not to be had; the message says why."""


class Target(NamedTuple):
    """The Python and the C library that a wheel must fit."""

    python: str
    """As "3.11"."""
    glibc_minor: int

    def options(self) -> list[str]:
        """For pip download."""
        machine = platform.machine()
        names = ["manylinux2014", "manylinux2010", "manylinux1"]
        names += [f"manylinux_2_{minor}" for minor in range(5, self.glibc_minor + 1)]
        tag = "cp" + self.python.replace(".", "")
        return [
            f"--python-version={self.python}",
            "--implementation=cp",
            *(f"--abi={abi}" for abi in (tag, "abi3", "none")),
            *(f"--platform={name}_{machine}" for name in names),
            "--only-binary=:all:",
        ]


def wheels(checkout: Path, rootfs: Path) -> Path:
    """The directory that has them, for the checkout's pyproject.toml. Raises CannotDownload."""
    target = _target(rootfs)
    requirements = _requirements(checkout / "pyproject.toml")
    recipe = "\n".join((*target.options(), *requirements))
    return cached("wheels", recipe, lambda directory: _download(directory, target, requirements))


def _target(rootfs: Path) -> Target:
    command = ["chroot", rootfs, "python3", "-c", _ASK]
    python, libc = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    return Target(f"{python[0]}.{python[1]}", int(libc[1]))


def _requirements(path: Path) -> list[str]:
    project = tomllib.loads(path.read_text())
    groups = [entry for group in project["dependency-groups"].values() for entry in group if isinstance(entry, str)]
    return sorted({*_TOOLS, *project["build-system"]["requires"], *project["project"]["dependencies"], *groups})


def _download(directory: Path, target: Target, requirements: list[str]) -> None:
    options = ["--quiet", "--disable-pip-version-check", f"--dest={directory}", *target.options()]
    command = [sys.executable, "-m", "pip", "download", *options, *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
    if done.returncode != 0:
        raise CannotDownload(f"cannot download the wheels of a set-up ({done.returncode}):\n{done.stderr[-2000:]}")
