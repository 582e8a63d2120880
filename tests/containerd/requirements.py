"""Lists the requirements of a private containerd on this machine, and how to get missing ones.

`NODEVISOR_CONTAINERD=DIR` in the environment selects containerd, ctr, the shim and, if present, runc of that directory.
Any version from 1.6 on will do. The CNI plug-ins stay the machine's.
"""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

BUSYBOX_BINARY = Path("/usr/bin/busybox")
CNI_DIRS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback")
OTHER = "NODEVISOR_CONTAINERD"
PROGRAMS = ("containerd", "ctr", "containerd-shim-runc-v2")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
if _other := os.environ.get(OTHER):
    PATH = f"{Path(_other).resolve()}:{PATH}"  # containerd itself looks there for its shim
APT = (
    "apt-get install -y --no-install-recommends "
    "containerd runc containernetworking-plugins busybox-static iproute2 iptables"
)


def missing_requirements() -> str:
    """Say what the tests on containerd lack here and what to do about it; empty when nothing is missing."""
    return _missing([] if BUSYBOX_BINARY.exists() else ["a static busybox"])


def missing_for_samples() -> str:
    """The same of a private containerd for the samples, whose images are made without busybox too."""
    return _missing([])


def _missing(further: list[str]) -> str:
    if problem := _incomplete():
        return problem
    lacks = [name for name in (*PROGRAMS, "runc", "ip") if not which(name)]
    if cni_dir() is None:
        lacks.append("CNI plug-ins (bridge, host-local, loopback)")
    lacks += further
    if lacks:
        return f"cannot run pods here: no {', no '.join(lacks)}; run: {APT}"
    if os.geteuid() != 0:
        return "cannot run pods here: containerd needs root; run the tests as root"
    return ""


def _incomplete() -> str:
    """Why NODEVISOR_CONTAINERD cannot be taken: half of one version and half of another would run."""
    directory = os.environ.get(OTHER)
    lacks = [name for name in PROGRAMS if directory and shutil.which(name, path=directory) is None]
    return f"cannot run the containerd of {OTHER}={directory}: no {', no '.join(lacks)} there" if lacks else ""


@functools.cache
def containerd_version() -> tuple[int, int]:
    """Major and minor version of the containerd that is run. Raises RuntimeError when it does not tell."""
    command = [which("containerd") or "containerd", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    found = re.search(r"\sv?(\d+)\.(\d+)\b", said)
    if found is None:
        raise RuntimeError(f"cannot tell the version of {command[0]} from {said!r}")
    return int(found[1]), int(found[2])


def mounts_images() -> bool:
    """Return True when that containerd has image volumes, which need 2.1. False without containerd."""
    return which("containerd") is not None and containerd_version() >= (2, 1)


def missing_for_host_ports() -> str:
    """Say what the tests of host ports need besides; empty when nothing is missing."""
    directory = cni_dir()
    if directory is None or not (directory / "portmap").exists():
        return f"cannot map ports of pods here: no CNI plug-in portmap; run: {APT}"
    return "" if which("iptables") else f"cannot map ports of pods here: no iptables; run: {APT}"


def missing_for_pages() -> str:
    """Say what the tests of the web page need besides; empty when nothing is missing."""
    problem = "cannot look at a web page here: no chromium; run: apt-get install -y --no-install-recommends chromium"
    return "" if which("chromium") else problem


def which(name: str) -> str | None:
    """Path of a program, also of those in the administrator's directories."""
    return shutil.which(name, path=PATH)


def cni_dir() -> Path | None:
    """The directory that has the CNI plug-ins; None when none has all that are needed."""
    return next((dir_ for dir_ in CNI_DIRS if all((dir_ / name).exists() for name in CNI_PLUGINS)), None)


def can_lower_oom_score() -> bool:
    """Return True with CAP_SYS_RESOURCE. Without it a container's oom_score_adj cannot go below containerd's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 24 & 1)
    return False
