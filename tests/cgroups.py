"""A cgroup root of its own for every agent of a test, so that agents and pytest processes can run side by side."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import wait_for

MOUNT = Path("/sys/fs/cgroup")
DRIVER = os.environ.get("NODEVISOR_TEST_CGROUP_DRIVER", "cgroupfs")
"""Cgroup driver of the tests' runtimes and agents: `systemd` where systemd is pid 1."""


@contextmanager
def own_cgroup_root(name: str = "") -> Iterator[str]:
    """For --cgroup-root: a cgroup that no other agent has; removed afterwards, once nothing runs in it."""
    name = name or f"nvt{uuid.uuid4().hex[:12]}"
    yield f"/{name}"
    remove_cgroups(name)


def cgroup_name(*parts: str) -> str:
    """The path of a cgroup below each controller's mount, as the tests' driver names it."""
    if DRIVER != "systemd":
        return "/" + "/".join(parts)
    escaped = [part.replace("-", "_") for part in parts]
    return "".join(f"/{'-'.join(escaped[: depth + 1])}.slice" for depth in range(len(escaped)))


def make_files(directory: Path, *names: str) -> None:
    """The files of a cgroup, in a directory that looks like one. In a real one the kernel makes them."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).touch()


def remove_cgroups(name: str) -> None:
    """The cgroup of this name in every hierarchy, and the slice of this name, with all below them."""
    unit = f"{name.replace('-', '_')}.slice"
    if DRIVER == "systemd":
        subprocess.run(["systemctl", "stop", unit], check=False, timeout=60)
    for hierarchy in (MOUNT, *MOUNT.iterdir()):
        for top in (hierarchy / name, hierarchy / unit):
            remove_cgroup(top)


def remove_cgroup(path: Path) -> None:
    """A cgroup and those below it, once nothing runs in them."""
    if not path.is_dir():
        return
    for directory, _, _ in os.walk(path, topdown=False):
        wait_for(lambda directory=directory: _rmdir(directory), 5, f"{directory} is empty")


def _rmdir(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
