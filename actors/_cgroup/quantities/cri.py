"""Converts limits to CRI messages."""

from __future__ import annotations

from actors._cgroup.quantities.resources import LinuxResources
from proto.cri import api_pb2 as pb


def linux_container_resources(resources: LinuxResources) -> pb.LinuxContainerResources:
    """Return the message for RunPodSandbox, CreateContainer or UpdateContainerResources."""
    return pb.LinuxContainerResources(
        cpu_period=resources.cpu_period,
        cpu_quota=resources.cpu_quota,
        cpu_shares=resources.cpu_shares,
        memory_limit_in_bytes=resources.memory_limit_in_bytes,
        oom_score_adj=resources.oom_score_adj,
        memory_swap_limit_in_bytes=resources.memory_swap_limit_in_bytes,
        hugepage_limits=[pb.HugepageLimit(page_size=size, limit=limit) for size, limit in resources.hugepage_limits],
        unified=dict(resources.unified),
    )
