"""Times the starts of API pods, from their creation until the API server shows all their containers as started.

Source: pkg/kubelet/util/pod_startup_latency_tracker.go and the SLI
https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md: stateless pods, without
pulls and init containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from actors._metrics import kubelet as metrics
from proto.v1 import Pod, PodStatus, Volume

ENDED = ("Succeeded", "Failed")


class StartLatency:
    """State: pods that this process has seen before they were started, by UID."""

    def __init__(self) -> None:
        self._left_out: dict[str, float | None] = {}
        """Seconds that the SLI leaves out; None until the node has started the pod."""
        self._unscheduled: set[str] = set()
        self._network_seen = False

    def started(self, uid: str, left_out_s: float) -> None:
        """The node has started every container of the pod. The first report counts."""
        if uid in self._left_out and self._left_out[uid] is None:
            self._left_out[uid] = left_out_s

    def watched(self, pods: Iterable[Pod], own: Callable[[str], Pod | None], now: float) -> None:
        """The API server shows these pods. `own`: the node's pod by UID, with its spec. `now`: Unix seconds."""
        for shown in pods:
            uid, status = shown.metadata.uid, shown.status
            if uid in self._unscheduled:
                continue
            if status.phase in ENDED:
                self._left_out.pop(uid, None)
            elif _is_unscheduled(status):
                self._left_out.pop(uid, None)
                self._unscheduled.add(uid)
            elif uid not in self._left_out:
                if status.start_time is None:
                    self._left_out[uid] = None
            elif (left_out_s := self._left_out[uid]) is not None and all_started(status):
                pod = own(uid)
                if pod is not None:
                    self._observe(pod, left_out_s, now)
                del self._left_out[uid]

    def keep(self, uids: set[str]) -> None:
        """Forget every other pod."""
        self._left_out = {uid: left_out for uid, left_out in self._left_out.items() if uid in uids}
        self._unscheduled &= uids

    def forget(self, uids: Iterable[str]) -> None:
        """Forget deleted pods."""
        for uid in uids:
            self._left_out.pop(uid, None)
            self._unscheduled.discard(uid)

    def _observe(self, pod: Pod, left_out_s: float, now: float) -> None:
        created = pod.metadata.creation_timestamp
        if created is None:
            return
        total_s = now - datetime.fromisoformat(created).timestamp()
        metrics.POD_START_TOTAL_SECONDS.observe(total_s)
        if any(map(_is_stateful, pod.spec.volumes)):
            return
        metrics.POD_START_SLI_SECONDS.observe(total_s - left_out_s)
        if not pod.spec.host_network and not self._network_seen:
            self._network_seen = True
            metrics.FIRST_POD_START_SLI_SECONDS.set(total_s - left_out_s)


def all_started(status: PodStatus) -> bool:
    """True if every container runs."""
    return all(
        one.state.running is not None and one.state.running.started_at is not None for one in status.container_statuses
    )


def _is_stateful(volume: Volume) -> bool:
    return not (volume.secret or volume.config_map or volume.downward_api or volume.empty_dir)


def _is_unscheduled(status: PodStatus) -> bool:
    return any(one.type == "PodScheduled" and one.status == "False" for one in status.conditions)
