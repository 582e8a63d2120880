"""A minimal Debian of this machine's release: Python, git and make, and an ordinary user. Nothing of nodevisor.

The packages come from where this machine's apt takes its own. NODEVISOR_FRESH_RELEASE=trixie or sid names another
release, with another Python.
"""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.fresh.downloads.cache import cached

INCLUDE = "python3,python3-venv,git,make,ca-certificates"
USER, UID = "user", 1000
_HOOKS = (
    f'chroot "$1" useradd --create-home --shell /bin/bash --uid {UID} {USER}',
    'echo fresh > "$1/etc/hostname"',
    'echo 127.0.0.1 localhost fresh > "$1/etc/hosts"',
    ': > "$1/etc/resolv.conf"',
    # The repository that is cloned belongs to root, and git asks an ordinary user whether that is well.
    'printf "[safe]\\n\\tdirectory = *\\n" > "$1/etc/gitconfig"',
)
OTHER_RELEASE = os.environ.get("NODEVISOR_FRESH_RELEASE", "")
_MAY_BE_OLD = '--aptopt=Acquire::Check-Valid-Until "false";'
"""For a mirror's copy of sid, whose list is valid for a week only."""
_TARGET = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"


class CannotMake(Exception):
    """The root file system cannot be made; the message says why and what to do."""


def rootfs() -> Path:
    """The directory that has it; made in 40 s where the cache has none. Raises CannotMake."""
    wanted = OTHER_RELEASE or release()
    listed = _of_release(sources(), wanted)
    recipe = "\n".join((platform.machine(), INCLUDE, *_HOOKS, *listed))
    return cached("rootfs", recipe, lambda directory: make_debian(directory, INCLUDE, _HOOKS, listed, wanted))


def _of_release(sources: Sequence[str], wanted: str) -> list[str]:
    """The same archives of another release; sid has no archive of updates."""
    lines = {line.replace(release(), wanted) for line in sources}
    return sorted(line for line in lines if wanted != "sid" or " sid " in line)


def release() -> str:
    """This machine's release of Debian, as "bookworm"."""
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def make_debian(directory: Path, include: str, hooks: Sequence[str], sources: Sequence[str], suite: str = "") -> None:
    """Fill `directory` with a minimal Debian and further packages. Raises CannotMake.

    `hooks` are shell commands that run last, with the directory as $1; `sources` lines of a sources.list; `suite` the
    release, by default this machine's.
    """
    options = [f"--include={include}", *(f"--customize-hook={hook}" for hook in hooks), *apt_options()]
    options += [_MAY_BE_OLD] if suite == "sid" else []
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        *options,
        suite or release(),
        directory,
        "-",
    ]
    text = "\n".join(sources) + "\n"
    made = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=1200)
    if made.returncode != 0:
        raise CannotMake(f"cannot make a minimal Debian ({made.returncode}):\n{made.stderr[-2000:]}")


def sources() -> list[str]:
    """Lines of a sources.list for Debian's own archives among this machine's."""
    command = ["apt-get", "indextargets", "--format", _TARGET, "Created-By: Packages", "Origin: Debian"]
    for prepare in (None, ["apt-get", "update", "-q"]):  # without lists apt does not know whose an archive is
        if prepare:
            subprocess.run(prepare, check=True, capture_output=True, timeout=300)
        listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        if lines := sorted(set(listed.splitlines())):
            return lines
    raise CannotMake("cannot make a minimal Debian: apt has no archive of Debian's in its sources")


def apt_options() -> list[str]:
    """This machine's settings for reaching archives: proxies and certificates."""
    command = ["apt-config", "dump", "--format", '%f "%v";%n', "Acquire"]
    dumped = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    wanted = re.compile(r'Acquire::https?::\S*(Proxy|CaInfo|Verify-Peer)\S* "[^"]+";', re.IGNORECASE)
    return [f"--aptopt={line}" for line in dumped.splitlines() if wanted.fullmatch(line)]
