"""Records volumes that are not as desired as waits: `supervisor why` finds them while this actor is stopped."""

from __future__ import annotations

import time

from actors._base.messaging.waits import Standing, Subject
from actors.volume.policy import NEW, Actual
from actors.volume.reconcile.volume_state import PodVolumes
from proto.v1 import Pod


def subject_of(pod: Pod) -> Subject:
    """The pod as the subject of waits."""
    meta = pod.metadata
    return Subject(f"pod/{meta.namespace}/{meta.name}", meta.uid)


class VolumeWaits:
    """The waits of all pods' volumes. Used in the actor's mailbox thread."""

    def __init__(self) -> None:
        self._standing: dict[str, Standing] = {}

    def tell(self, uid: str, pod: PodVolumes) -> None:
        """Record the state of a pod's volumes."""
        missing = [] if pod.pod is None else [name for name in pod.wanted if not _is_good(pod.actual.get(name, NEW))]
        if not missing or pod.pod is None:
            self.forget(uid)
            return
        standing = self._standing.setdefault(uid, Standing())
        meta = pod.pod.metadata
        now = time.monotonic()
        for name in missing:
            one = pod.actual.get(name, NEW)
            subject = Subject(f"volume/{meta.namespace}/{meta.name}/{name}", uid)
            what = f'volume "{name}"'
            if one.stuck_pid:
                standing.put(name, subject, "helper", what, target=f"helper/{one.stuck_pid}", error=one.error)
            else:
                next_try = one.retry_at if one.error and one.retry_at > now else 0.0
                standing.put(name, subject, "condition", what, error=one.error, next_try=next_try)
        standing.keep(set(missing))

    def forget(self, uid: str) -> None:
        """Nothing of the pod is waited for."""
        standing = self._standing.pop(uid, None)
        if standing is not None:
            standing.keep(set())


def _is_good(one: Actual) -> bool:
    return one.mounted and not one.error and not one.unresponsive
