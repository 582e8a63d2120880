"""Counts admissions of pods, and containers that ask for resources of their own, as the kubelet does: each pod once.

The kubelet tries a pod's admission once. Here a pod that waits is tried again, and pod_workers asks anew for running
pods after its restart. Neither is a further admission.
"""

from __future__ import annotations

from collections.abc import Container as ContainerOf
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from actors._metrics.registry import Counter, Labels
from actors.resources.model.provider import AllocationError, Series
from proto.v1 import Container, Pod


class Counted:
    """State: what was counted for each pod, by UID, until its release."""

    def __init__(self) -> None:
        self._counted: dict[str, set[tuple[Series, str]]] = {}

    def count(self, counter: Counter, pod_uid: str, container: str = "", labels: Labels = ()) -> bool:
        """Count the pod or its container, and return True. False: it has counted before."""
        counted = self._counted.setdefault(pod_uid, set())
        key = (counter, labels), container
        if key in counted:
            return False
        counted.add(key)
        counter.inc(*labels)
        return True

    def forget(self, pod_uid: str) -> None:
        """The pod is rejected or gone. Its next admission counts again."""
        self._counted.pop(pod_uid, None)

    def retain(self, pod_uids: ContainerOf[str]) -> None:
        """Only these pods are not gone."""
        self._counted = {uid: counted for uid, counted in self._counted.items() if uid in pod_uids}


@dataclass
class Pinnings:
    """The counters of one manager."""

    requests: Counter
    errors: Counter
    counted: Counted = field(default_factory=Counted)

    @contextmanager
    def asked(self, pod: Pod, container: Container) -> Iterator[None]:
        """Count a request. A failure names the counter of errors, for when the pod is rejected because of it."""
        self.counted.count(self.requests, pod.metadata.uid, container.name)
        try:
            yield
        except AllocationError as error:
            error.counts += ((self.errors, ()),)
            raise
