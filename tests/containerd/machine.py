"""This machine's programs with the libraries they need, and its Python: the contents of images.

Only finds and names files; `layers` puts them into an image. `ldd` tells the libraries, so a program that is linked
statically has none. NODEVISOR_NO_BUSYBOX=1 in the environment: as on a machine without busybox.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

NO_BUSYBOX = "NODEVISOR_NO_BUSYBOX"
TOOLS = """
    sh bash [ awk base64 basename cat chgrp chmod chown cp cut date dd df dirname du echo env expr false find
    getent grep head hostname id kill ln ls md5sum mkdir mkfifo mknod mktemp mount mv nice nohup nproc od paste
    printenv printf ps pwd readlink realpath rm rmdir sed seq setpriv setsid sha256sum sleep sort split stat stty
    sync tac tail tar tee test timeout touch tr true truncate tty umount uname uniq unshare wc who whoami xargs yes
"""
"""An image has as many of them as the machine has. It cannot do without `sh` and `sleep`."""
NEEDED = ("sh", "sleep")
_UNUSED = {"__pycache__", "test", "tests", "idlelib", "ensurepip", "lib2to3", "tkinter", "turtledemo", "pydoc_data"}
_UNUSED |= {"site-packages", "dist-packages"}
_UNUSED_EXTENSIONS = ("_bsddb", "_codecs_", "_curses", "_dbm", "_gdbm", "_test", "_tkinter", "_xx", "nis", "xx")
"""Extension modules beginning so: what they need is larger than Python itself."""
_LIBRARY = re.compile(r"\s+(?:\S+ => )?(?P<path>/.+) \(0x[0-9a-f]+\)")
_LOST = re.compile(r"\s+(?P<name>\S+) => not found")
_LDD_S = 60.0


class CannotBuild(Exception):
    """This machine does not have what an image needs; the message says what to install."""


@functools.cache
def busybox_program() -> Path | None:
    """The machine's busybox, with or without libraries; None where there is none."""
    found = shutil.which("busybox", path=_search_path())
    return None if found is None or os.environ.get(NO_BUSYBOX) == "1" else Path(found)


def tools() -> dict[str, Path]:
    """The files of the machine's tools, links resolved, by the name they are called by. Raises CannotBuild."""
    paths = {name: shutil.which(name, path=_search_path()) for name in TOOLS.split()}
    found = {name: Path(os.path.realpath(path)) for name, path in paths.items() if path and os.access(path, os.R_OK)}
    if lacking := [name for name in NEEDED if name not in found]:
        raise CannotBuild(f"cannot make an image of this machine's tools: no {' and no '.join(lacking)}")
    return found


def _search_path() -> str:
    """Also the administrator's directories, which an ordinary user's PATH may lack."""
    return f"/usr/bin:/bin:/usr/sbin:/sbin:{os.environ.get('PATH', '')}"


def libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries and dynamic loaders of programs and of other libraries, as absolute paths.

    Raises CannotBuild when one is missing, or when nothing tells them.
    """
    ldd = shutil.which("ldd", path=_search_path())
    if ldd is None:
        raise CannotBuild("cannot tell which libraries programs need: no ldd; on Debian: apt-get install libc-bin")
    command = [ldd, *map(str, programs)]
    # Its exit code says no more than that one of them is linked statically.
    told = subprocess.run(
        command, capture_output=True, text=True, timeout=_LDD_S, check=False, env={**os.environ, "LC_ALL": "C"}
    ).stdout
    if lost := _LOST.search(told):
        raise CannotBuild(f"cannot make an image of this machine's programs: no library {lost['name']}")
    return {Path(found["path"]) for line in told.splitlines() if (found := _LIBRARY.fullmatch(line))}


def python_program() -> Path:
    """The Python that runs this, not the link to it in a virtual environment."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))


def python_files() -> Iterator[Path]:
    """Its standard library, without what no program of a sample imports: tests, tkinter, pip.

    With the compiled modules where the machine has them: a Python that must compile first starts in a second.
    """
    for top in sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}):
        for directory, names, files in os.walk(top):
            names[:] = sorted(name for name in names if name not in _UNUSED and not name.startswith("config-"))
            for name in sorted(files):
                path = Path(directory, name)
                if path.suffix == ".py":
                    yield from (file for file in (path, _compiled(path)) if file.exists())
                elif path.suffix == ".so" and not name.startswith(_UNUSED_EXTENSIONS):
                    yield path


def _compiled(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
