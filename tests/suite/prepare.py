"""Before `make test-node`: has what its tests need on this machine, or names it. `python -m tests.suite.prepare`.

On Debian, as root, it installs the packages that are missing and builds the control plane, and says so. Elsewhere it
names them and stops.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.containerd.requirements import BUSYBOX_BINARY, cni_dir, missing_requirements, which
from tests.controlplane.binaries import API_SERVER, CACHE, CONTROLLERS, ETCD, SCHEDULER, find
from tests.suite.needs import NEEDS

BUILD = Path(__file__).resolve().parents[2] / ".ci/kubernetes"
BUILT = (API_SERVER, CONTROLLERS, SCHEDULER)


def _has(*programs: str) -> Callable[[], bool]:
    return lambda: all(which(name) for name in programs)


def _has_plugins() -> bool:
    directory = cni_dir()
    return directory is not None and (directory / "portmap").exists()


PACKAGES: Mapping[str, Callable[[], bool]] = {
    "containerd": _has("containerd", "ctr", "containerd-shim-runc-v2"),
    "runc": _has("runc"),
    "crun": _has("crun"),
    "containernetworking-plugins": _has_plugins,
    "busybox-static": BUSYBOX_BINARY.exists,
    "etcd-server": lambda: find(ETCD) is not None,
    **{need.package: need.is_met for need in NEEDS.values() if need.package and need.package != "busybox-static"},
}
"""Debian packages, and whether this machine has what they are for, from wherever."""


def missing_packages() -> list[str]:
    """The packages to install."""
    return [package for package, is_there in PACKAGES.items() if not is_there()]


def missing_programs() -> list[str]:
    """Return missing programs of the control plane, for which Debian has only a source package."""
    return [name for name in BUILT if find(name) is None]


def main() -> int:
    """0 when the tests can run; 1 otherwise, with what to do."""
    can_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    packages, programs = missing_packages(), missing_programs()
    if not can_install and (packages or programs):
        return _refuse(packages, programs)
    if packages and not install(packages):
        return 1
    if programs or not (CACHE / "kubectl").exists():
        _build(programs)
    if problem := missing_requirements():
        print(problem, file=sys.stderr)
        return 1
    return 0


def _refuse(packages: list[str], programs: list[str]) -> int:
    told = "cannot run these tests here"
    if packages:
        told += f": no {', no '.join(packages)} (as Debian calls the packages); install them"
    if programs:
        told += (
            f": no {', no '.join(programs)}; name a directory with them in KUBEBUILDER_ASSETS, or build them, as root "
            "on Debian: .ci/kubernetes"
        )
    print(f"{told}; as root on Debian, make test-node installs and builds all this itself", file=sys.stderr)
    return 1


def install(packages: list[str], *options: str) -> bool:
    """Install them, and say so; `options` are for apt-get. False, with the reason said, when it fails."""
    print(f"Installing what the tests need: {' '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
        print("+ apt-get", *options, *command, flush=True)
        if subprocess.run(["apt-get", *options, *command], env=environment, check=False).returncode != 0:
            print("cannot install them: see apt-get's output above", file=sys.stderr)
            return False
    return True


def _build(programs: list[str]) -> None:
    """Tests that need a control plane fail without it and say so; the others are as good as ever."""
    if programs:
        print(f"Building {', '.join(programs)} into {CACHE}, once: 5 to 10 minutes, 4 GB meanwhile.", flush=True)
    if subprocess.run([BUILD], check=False).returncode != 0:
        print(
            "cannot build the control plane, see above: tests that need it will fail; the others run", file=sys.stderr
        )


if __name__ == "__main__":
    sys.exit(main())
