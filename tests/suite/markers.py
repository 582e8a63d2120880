"""The marker of each test: by its folder, raised by the fixtures that it requests.

`pure` tests start no process, open no socket and do not wait (purity.py checks it). `process` tests use what any Linux
machine with Python has: processes, sockets, mounts, cgroups, containers on the embedded runtime. `containerd` tests
need a containerd with CNI plug-ins, `cluster` tests a control plane. `guest` tests start a guest with systemd.
"""

from __future__ import annotations

from collections.abc import Collection

PURE, PROCESS, CONTAINERD, CLUSTER, GUEST = "pure", "process", "containerd", "cluster", "guest"
MARKERS = (PURE, PROCESS, CONTAINERD, CLUSTER, GUEST)
"""In the order of what they need."""

FOLDERS = {
    "agent/api": PROCESS,
    "agent/lifecycle": PROCESS,
    "agent/node": PROCESS,
    "agent/pressure": PROCESS,
    "agent/recovery": PROCESS,
    "agent/specs": PROCESS,
    "agent/systemd": PROCESS,
    "agent/volumes": PROCESS,
    "base": PROCESS,
    "base/pure": PURE,
    "bench": PROCESS,
    "bench/pure": PURE,
    "certificates": PROCESS,
    "certificates/pure": PURE,
    "cgroup": PURE,
    "cgroup/process": PROCESS,
    "cli": PROCESS,
    "cli/pure": PURE,
    "config": PROCESS,
    "config/pure": PURE,
    "container_gc": PROCESS,
    "container_gc/pure": PURE,
    "containerd": PROCESS,
    "cri": PROCESS,
    "cri/pure": PURE,
    "events": PROCESS,
    "events/pure": PURE,
    "eviction": PROCESS,
    "eviction/pure": PURE,
    "faults/pure": PURE,
    "files": PROCESS,
    "files/pure": PURE,
    "flags": PURE,
    "foreign": PROCESS,
    "fresh": CONTAINERD,
    "fuzz": PROCESS,
    "guest": CONTAINERD,
    "guest/service": CONTAINERD,
    "host": PROCESS,
    "image_gc": PROCESS,
    "image_gc/pure": PURE,
    "image_pull": PROCESS,
    "image_pull/pure": PURE,
    "kube": PROCESS,
    "kube/pure": PURE,
    "kubeletconfig": PURE,
    "kubeletconfig/process": PROCESS,
    "live": PROCESS,
    "live/pure": PURE,
    "logs": PURE,
    "metrics": PURE,
    "model": PURE,
    "node": PROCESS,
    "node/pure": PURE,
    "objects": PROCESS,
    "objects/pure": PURE,
    "replay": PROCESS,
    "replay/pure": PURE,
    "oom": PROCESS,
    "oom/pure": PURE,
    "pages": PURE,
    "ownership": PROCESS,
    "ownership/pure": PURE,
    "pki": PROCESS,
    "pleg": PROCESS,
    "pleg/pure": PURE,
    "plugins": PROCESS,
    "pod_workers": PURE,
    "probe": PROCESS,
    "probe/pure": PURE,
    "proof": PROCESS,
    "proto": PURE,
    "proto/process": PROCESS,
    "remote_console": PROCESS,
    "remote_console/pure": PURE,
    "resources/devices": PROCESS,
    "resources/dra": PROCESS,
    "resources/dra/pure": PURE,
    "resources/devices/pure": PURE,
    "resources": PROCESS,
    "resources/cpu/pure": PURE,
    "resources/pod_resources": PROCESS,
    "resources/pod_resources/pure": PURE,
    "resources/pure": PURE,
    "resources/serving": PROCESS,
    "runtime": PROCESS,
    "runtime/pure": PURE,
    "server": PROCESS,
    "stats": PROCESS,
    "stats/pure": PURE,
    "status": PROCESS,
    "status/pure": PURE,
    "streaming": PURE,
    "suite": PURE,
    "suite/process": PROCESS,
    "supervisor": PROCESS,
    "supervisor/pure": PURE,
    "tracing": PROCESS,
    "volume": PROCESS,
    "volume/pure": PURE,
}
"""Marker of each folder below tests/ that has test modules."""

FIXTURES = {
    "containerd": CONTAINERD,
    "control_plane": CLUSTER,
    "full_control_plane": CLUSTER,
    "guest": GUEST,
    "own_control_plane": CLUSTER,
}
"""Marker that a test has at least that requests the fixture, or has its name as a parameter."""


def marker_of(folder: str, requested: Collection[str]) -> str:
    """The marker of a test in `folder` ("probe/pure") that requests these fixtures.

    A folder that is missing above counts as PROCESS; test_markers.py fails then.
    """
    given = [FOLDERS.get(folder, PROCESS), *(FIXTURES[name] for name in requested if name in FIXTURES)]
    return max(given, key=MARKERS.index)
