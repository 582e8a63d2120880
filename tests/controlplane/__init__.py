"""A private control plane for tests: etcd, kube-apiserver and, if asked for, its controllers and scheduler.

All real, on loopback, in directories of their own. In tests: the fixture `control_plane`.
"""

from tests.controlplane.binaries import missing_control_plane, missing_kubectl
from tests.controlplane.instance import ControlPlane

__all__ = ["ControlPlane", "missing_control_plane", "missing_kubectl"]
