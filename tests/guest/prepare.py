"""Before `make test-guest`: has what a guest needs on this machine, or names it. `python -m tests.guest.prepare`."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys

from tests.containerd.requirements import which
from tests.fresh.downloads import rootfs
from tests.guest.guest import OTHER
from tests.guest.qemu import image
from tests.guest.qemu.archives import lists_of
from tests.guest.qemu.machine import QEMU
from tests.suite.prepare import install

OLDEST_QEMU = 10
"""7.2 crashes the guest's kernel under emulation."""
PACKAGES = {"ssh": "openssh-client", "mke2fs": "e2fsprogs", "mmdebstrap": "mmdebstrap", "setpriv": "util-linux"}
"""Package of Debian by program."""
QEMU_PACKAGES = ["qemu-system-x86", "qemu-utils"]


def main() -> int:
    """0 when a guest can be started; 1 otherwise, with what to do."""
    missing = [package for program, package in PACKAGES.items() if which(program) is None]
    if os.environ.get(OTHER):
        missing = [package for package in missing if package == PACKAGES["ssh"]]
        return 0 if not missing or install(missing) else 1
    if platform.machine() != "x86_64":
        return _refuse("a guest is for x86_64")
    needs_qemu = _qemu_version() < OLDEST_QEMU or which("qemu-img") is None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        lacks = [*missing, *([f"qemu {OLDEST_QEMU}"] if needs_qemu else []), *(["root"] if os.geteuid() else [])]
        return _refuse(f"no {', no '.join(lacks)}") if lacks else 0
    if missing and not install(missing):
        return 1
    return 0 if not needs_qemu or _install_qemu() else 1


def _qemu_version() -> int:
    """Its major version; 0 without it."""
    if which(QEMU) is None:
        return 0
    said = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=False, timeout=30).stdout
    found = re.search(r"version (\d+)", said)
    return int(found[1]) if found else 0


def _install_qemu() -> bool:
    """From the backports of this release where it has an older one. This machine's sources stay as they are."""
    release = rootfs.release()
    if release not in image.BACKPORTS:
        return install(QEMU_PACKAGES)
    with lists_of(image.sources()) as options:
        return install(QEMU_PACKAGES, *options, f"-oAPT::Default-Release={release}-backports")


def _refuse(why: str) -> int:
    print(
        f"cannot start a guest here: {why}; run this as root on Debian, which installs what is missing, or name "
        f"another machine: {OTHER}=root@HOST",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
