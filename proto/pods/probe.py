"""Messages the probe actor receives, all from pod_workers."""

from __future__ import annotations

from typing import Literal

from proto.pods.pod_workers import ProbeResult
from proto.v1 import ContainerPort, Probe
from proto.wire.message import Message, Record, Request

Inherited = Literal["startup", "readiness"]
"""A probe that the API server's status says has succeeded."""


class ProbedContainer(Record, frozen=True, kw_only=True):
    """One container with at least one probe."""

    name: str
    container_id: str
    """Present CRI ID; empty while there is none."""
    running: bool
    started_at: float
    """Unix seconds of the present container's start; 0 while there is none."""
    field_path: str = ""
    """In the pod's spec, for its events: `spec.containers{NAME}`."""
    inherited: tuple[Inherited, ...] = ()
    """Probes that count as succeeded from the start, since another kubelet has seen this container ready (KEP-4781)."""
    ports: tuple[ContainerPort, ...] = ()
    """For probes that name a port."""
    liveness: Probe | None = None
    readiness: Probe | None = None
    startup: Probe | None = None


class ProbedPod(Record, frozen=True, kw_only=True):
    """A pod with probes. All that probing needs, nothing else."""

    uid: str
    namespace: str
    name: str
    pod_ip: str
    """Default host of network probes; the node's address for a host-network pod."""
    terminating: bool
    """Liveness and startup probes stop; readiness goes on while containers run (as prober_manager does)."""
    containers: tuple[ProbedContainer, ...]


class SetPods(Message, frozen=True, kw_only=True):
    """Replace these pods (full=False), or all of them (full=True: what is not listed is forgotten). Idempotent."""

    pods: tuple[ProbedPod, ...]
    full: bool = False


class RemovePod(Message, frozen=True, kw_only=True):
    """Stop probing the pod and forget its results. A repeat is harmless."""

    pod_uid: str


class Results(Message, frozen=True, kw_only=True):
    """Every standing result, checkpointed ones included."""

    results: tuple[ProbeResult, ...]


class GetResults(Request[Results], frozen=True, kw_only=True):
    """All standing results. A repeat is harmless."""
