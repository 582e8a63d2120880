"""Finds the control plane's programs in $KUBEBUILDER_ASSETS, PATH, or the cache that .ci/kubernetes fills."""

import os
import shutil
from pathlib import Path

CACHE = Path("/var/cache/nodevisor/kubernetes")
API_SERVER, CONTROLLERS, SCHEDULER, ETCD = "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"


def find(name: str) -> str | None:
    """Path of one of them."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    return shutil.which(name, path=assets) or shutil.which(name) or shutil.which(name, path=str(CACHE))


def missing_control_plane() -> str:
    """Say what is missing and what to do about it; empty when nothing is."""
    missing = [name for name in (ETCD, API_SERVER, CONTROLLERS, SCHEDULER) if find(name) is None]
    missing += [] if shutil.which("setpriv") else ["setpriv"]
    if not missing:
        return ""
    return (
        f"cannot run a control plane here: no {', no '.join(missing)}; name a directory with them in "
        "$KUBEBUILDER_ASSETS, or build them from Debian's sources, which takes some minutes: .ci/kubernetes"
    )


def missing_kubectl() -> str:
    """The same of kubectl, of any version."""
    return "" if shutil.which("kubectl") else "no kubectl: install the Debian package kubernetes-client"


def own_kubectl() -> str:
    """kubectl of the server's version, for what later ones do by other paths; else the one there is."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    return shutil.which("kubectl", path=assets) or shutil.which("kubectl", path=str(CACHE)) or "kubectl"
