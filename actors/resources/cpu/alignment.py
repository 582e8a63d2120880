"""Counts containers that get whole cores, or CPUs of one L3 cache, where an option of the static policy asks for it.

Source: pkg/kubelet/cm/cpumanager/policy_static.go of Kubernetes 1.36. Without the options the kubelet shows whole cores
as 0 and counts caches nevertheless. Its own test of the topology manager's metrics takes neither, so they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from actors._metrics.kubelet import ALIGNED, ALIGNMENT_FAILURES
from actors.resources.cpu.options import Options
from actors.resources.machine.cpusets import Cpus
from actors.resources.machine.topology import Topology
from actors.resources.model.counting import Counted
from actors.resources.model.provider import AllocationError, Series
from proto.v1 import Container, Pod

CORES = ("container", "physical_cpu")
CACHE = ("container", "uncore_cache")


@dataclass(frozen=True)
class Alignment:
    """The counts of one machine."""

    topology: Topology
    options: Options
    counted: Counted

    def series(self) -> tuple[Series, ...]:
        """The series that begin with 0."""
        cores: tuple[Series, ...] = ((ALIGNED, CORES), (ALIGNMENT_FAILURES, CORES))
        caches: tuple[Series, ...] = ((ALIGNED, CACHE),)
        return (cores if self.options.full_pcpus_only else ()) + (caches if self.options.prefer_align_by_cache else ())

    @contextmanager
    def asked(self, pod: Pod, container: Container) -> Iterator[None]:
        """Count a container that gets whole cores. A failure names its counter, for when the pod is rejected."""
        if not self.options.full_pcpus_only:
            yield
            return
        try:
            yield
        except AllocationError as error:
            error.counts += ((ALIGNMENT_FAILURES, CORES),)
            raise
        self.counted.count(ALIGNED, pod.metadata.uid, container.name, CORES)

    def given(self, cpus: Cpus, pod_uid: str, container: str) -> None:
        """Count new CPUs of a container if one L3 cache serves them; those of a whole pod with an empty name."""
        caches = {self.topology.cpus[one].cache for one in cpus}
        if self.options.prefer_align_by_cache and len(caches) == 1:
            self.counted.count(ALIGNED, pod_uid, container, CACHE)
