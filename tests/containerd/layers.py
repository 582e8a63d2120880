"""The layers of images that are made on this machine, as tar files: a shell with tools, and Python on top of it.

Owners and modes are not the machine's, so that the same files give the same bytes. Which files: `machine`.
"""

from __future__ import annotations

import functools
import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.containerd import machine

_DIRECTORIES = ("bin", "dev", "etc", "proc", "root", "run", "sys", "var", "var/www")
_PASSWD = "root:x:0:0:root:/:/bin/sh\napp:x:1000:1000:app:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
_GROUP = "root:x:0:\napp:x:1000:\nnobody:x:65534:\n"
_PS = b"""\
#!/bin/sh
# For a machine whose minimal system has no ps: every process, or with -o args its command line only.
[ "$1" = -o ] && echo COMMAND || echo "  PID COMMAND"
for process in /proc/[0-9]*; do
    command=$(tr '\\0' ' ' 2>/dev/null < "$process/cmdline") || continue
    [ "$1" = -o ] && echo "$command" || printf '%5s %s\\n' "${process#/proc/}" "$command"
done 2>/dev/null
"""
_LOADER_CACHE = Path("/etc/ld.so.cache")
"""The dynamic loader's list of libraries, some of which are in no usual directory."""


@functools.cache
def shell(busybox: Path | None) -> bytes:
    """A shell with tools, /etc, /tmp and mount points: of `busybox`, else of the machine's own. Raises CannotBuild."""
    layer = _Layer()
    for directory in _DIRECTORIES:
        layer.directory(directory)
    layer.directory("tmp", 0o1777)
    layer.file("etc/passwd", _PASSWD.encode())
    layer.file("etc/group", _GROUP.encode())
    layer.file("etc/nsswitch.conf", b"hosts: files dns\n")  # some versions of glibc ask a name server first
    if busybox is not None:
        layer.programs({"busybox": busybox})
        applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for applet in sorted(set(applets) - {"busybox"}):
            layer.link(f"bin/{applet}", "busybox")
    else:
        tools = machine.tools()
        layer.programs(tools)
        if "ps" not in tools:
            layer.file("bin/ps", _PS, 0o755)
    return layer.finish()


@functools.cache
def python() -> bytes:
    """The machine's Python with its standard library, at the paths where it is here. Raises CannotBuild."""
    layer = _Layer(below=(*_DIRECTORIES, "tmp"))
    program, files = machine.python_program(), list(machine.python_files())
    for file in [program, *files, *machine.libraries([program, *(file for file in files if file.suffix == ".so")])]:
        layer.copy(file)
    for name in ("python3", "python"):
        layer.link(f"bin/{name}", os.path.relpath(program, "/bin"))
    return layer.finish()


def of_files(files: Mapping[str, bytes], mode: int = 0o755) -> bytes:
    """Files by their absolute paths, executable by default."""
    layer = _Layer()
    for path in sorted(files):
        layer.file(path.lstrip("/"), files[path], mode)
    return layer.finish()


def of_programs(programs: Mapping[str, Path]) -> bytes:
    """Programs of this machine with their libraries, in /bin. Raises CannotBuild."""
    layer = _Layer(below=_DIRECTORIES)
    layer.programs(programs)
    return layer.finish()


class _Layer:
    """A tar file that grows. Each path is added once; directories come before what is in them."""

    def __init__(self, below: Iterable[str] = ()) -> None:
        """`below` are directories of the layers below, which keep their modes."""
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - closed by finish
        self._paths = {"", *below}
        self._copied: dict[str, str] = {}

    def finish(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()

    def directory(self, path: str, mode: int = 0o755) -> None:
        if path in self._paths:
            return
        self._above(path)
        info = tarfile.TarInfo(path)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._add(info)

    def file(self, path: str, content: bytes, mode: int = 0o644, mtime: int = 0) -> None:
        """A file in a directory that is there, or whose mode does not matter."""
        info = tarfile.TarInfo(path)
        info.size, info.mode, info.mtime = len(content), mode, mtime
        self._add(info, content)

    def link(self, path: str, target: str) -> None:
        self._above(path)
        info = tarfile.TarInfo(path)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._add(info)

    def copy(self, source: Path) -> None:
        """A file of this machine, at its own path. Its time stays: compiled modules are good for that time only."""
        path, real = str(source).lstrip("/"), os.path.realpath(source)
        if real in self._copied:  # /lib is /usr/lib on many machines, and libraries are named by either
            self.link(path, os.path.relpath(self._copied[real], os.path.dirname(path)))
            return
        self._copied[real] = path
        self._above(path)
        self.file(path, source.read_bytes(), 0o755, int(source.stat().st_mtime))

    def programs(self, programs: Mapping[str, Path]) -> None:
        """Programs of this machine in /bin, with their libraries. One file under several names is there once."""
        places: dict[Path, str] = {}
        for name, program in sorted(programs.items()):
            if program in places:
                self.link(f"bin/{name}", places[program])
            else:
                places[program] = name
                self.file(f"bin/{name}", program.read_bytes(), 0o755)
        self._libraries(programs.values())

    def _libraries(self, programs: Iterable[Path]) -> None:
        found = sorted(machine.libraries(programs))
        for library in found:
            self.copy(library)
        if found and _LOADER_CACHE.exists():
            self.file("etc/ld.so.cache", _LOADER_CACHE.read_bytes())

    def _above(self, path: str) -> None:
        self.directory(os.path.dirname(path))

    def _add(self, info: tarfile.TarInfo, content: bytes = b"") -> None:
        if info.name not in self._paths:
            self._paths.add(info.name)
            self._tar.addfile(info, io.BytesIO(content))
