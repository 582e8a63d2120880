"""Packages of Debian's archives that this machine's apt has not in its sources, which stay as they are."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fresh.downloads.rootfs import CannotMake

NEWEST = "sid"
CONTAINERD_2 = "opt/containerd-2"
"""Directory in the guest for NODEVISOR_CONTAINERD. Its own C library is for runc, which asks for a later one."""
_DOWNLOADED = ("containerd", "runc", "libc6", "libseccomp2")
_PROGRAMS = ("usr/bin/containerd", "usr/bin/ctr", "usr/bin/containerd-shim-runc-v2", "usr/sbin/runc")
_LOADER = "ld-linux-x86-64.so.2"
_LIBRARIES = tuple(f"usr/lib/x86_64-linux-gnu/{name}" for name in (_LOADER, "libc.so.6", "libseccomp.so.2"))


@contextmanager
def lists_of(sources: Sequence[str]) -> Iterator[list[str]]:
    """Options of apt that give it only these lines of a sources.list, and lists of its own."""
    with tempfile.TemporaryDirectory(prefix="nv-guest-apt-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # apt's downloads run as another user
        (directory / "sources").write_text("".join(f"{line}\n" for line in sources))
        (directory / "lists/partial").mkdir(parents=True)
        settings = {
            "Dir::Etc::sourcelist": directory / "sources",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": directory / "lists",
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
        }
        yield [f"-o{key}={value}" for key, value in settings.items()]


def add_containerd_2(root: Path, sources: Sequence[str], release: str) -> None:
    """Put containerd 2 and its runc of the newest Debian into a root file system. Raises CannotMake.

    `sources` has the archives of `release`, and tells where the newest is.
    """
    newest = [line.replace(f" {release} ", f" {NEWEST} ") for line in sources if line.split()[2] == release]
    there = root / CONTAINERD_2
    (there / "lib").mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="nv-guest-debs-") as name, lists_of(newest) as options:
        directory = Path(name)
        _run(directory, "apt-get", "update", "-q", *options)
        _run(directory, "apt-get", "download", "-q", "-oAPT::Sandbox::User=root", *options, *_DOWNLOADED)
        for package in directory.glob("*.deb"):
            _run(directory, "dpkg-deb", "-x", package, directory / "files")
        for path in _PROGRAMS:
            _copy(directory / "files" / path, there)
        for path in _LIBRARIES:
            _copy(directory / "files" / path, there / "lib")
    own = f"/{CONTAINERD_2}/lib"
    patch = ("patchelf", "--set-interpreter", f"{own}/{_LOADER}", "--set-rpath", own, f"/{CONTAINERD_2}/runc")
    _run(root, "chroot", root, *patch)


def _copy(file: Path, directory: Path) -> None:
    try:
        shutil.copy(file, directory)
    except FileNotFoundError as error:
        raise CannotMake(
            f"cannot put containerd 2 into the guest: the packages of {NEWEST} lack {error.filename}"
        ) from None


def _run(directory: Path, *command: str | Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise CannotMake(f"cannot put containerd 2 into the guest: {command[0]} failed:\n{done.stderr[-2000:]}")
