"""Messages that the probe actor receives from pod_workers: containers to probe, and requests for results."""

from __future__ import annotations

from typing import Literal

from proto.pods.pod_workers import ProbeResult
from proto.v1 import ContainerPort, Probe
from proto.wire.message import Message, Record, Request

Inherited = Literal["startup", "readiness"]
"""A probe that has succeeded by the status in the API server."""


class ProbedContainer(Record, frozen=True, kw_only=True):
    """A container with at least one probe."""

    name: str
    container_id: str
    """CRI ID of the present container; empty: none."""
    running: bool
    started_at: float
    """Unix seconds of the present container's start; 0: none."""
    field_path: str = ""
    """Path in the pod's spec, for events: `spec.containers{NAME}`."""
    inherited: tuple[Inherited, ...] = ()
    """Probes that count as successful at once, because a former agent saw the container ready (KEP-4781)."""
    ports: tuple[ContainerPort, ...] = ()
    """The container's ports, for probes that name a port."""
    liveness: Probe | None = None
    readiness: Probe | None = None
    startup: Probe | None = None


class ProbedPod(Record, frozen=True, kw_only=True):
    """A pod with probes, reduced to the fields for probing."""

    uid: str
    namespace: str
    name: str
    pod_ip: str
    """Default host of network probes. A host-network pod has the node's address."""
    terminating: bool
    """Stop liveness and startup probes. Readiness continues while containers run, as in prober_manager."""
    containers: tuple[ProbedContainer, ...]


class SetPods(Message, frozen=True, kw_only=True):
    """Replace these pods. `full`: all other pods are dropped.

    A repeat is a sync: it probes containers that have started and are not ready, at most once a second.
    """

    pods: tuple[ProbedPod, ...]
    full: bool = False


class RemovePod(Message, frozen=True, kw_only=True):
    """Stop the pod's probes and drop its results. A repeat is harmless."""

    pod_uid: str


class Results(Message, frozen=True, kw_only=True):
    """Every present result, also from the checkpoint."""

    results: tuple[ProbeResult, ...]


class GetResults(Request[Results], frozen=True, kw_only=True):
    """Ask for all present results. A repeat is harmless."""
