"""Keeps what is known of pods without a worker: from the runtime's list, from peers, or from a worker that ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from actors._cgroup.fs import pod_cgroup_exists
from actors._host.files.own_pods import OwnPods
from actors.pod_workers.model.orphans import ForeignPods
from actors.pod_workers.model.termination_request import TERMINAL_PHASES
from actors.pod_workers.model.view import PodView
from proto.agent.settings import Settings
from proto.pods.pod_workers import ProbeResult
from proto.v1 import Pod, PodStatus


class Unclaimed:
    """Facts by pod UID. A worker that starts takes those of its pod."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.foreign = ForeignPods(OwnPods(settings.root_dir, take_over=settings.take_over))
        self.views: dict[str, PodView] = {}
        """Pods in the runtime: listed at start, or left when a worker ended."""
        self.statuses: dict[str, PodStatus] = {}
        """The statuses that were published last."""
        self.results: dict[str, list[ProbeResult]] = defaultdict(list)
        self.failed: set[str] = set()
        """Pods whose worker failed and has no successor yet: the runtime's state of them is not known."""
        self.admit_again: set[str] = set()
        """Pods with sandboxes that an ended worker has left: admission decides on them as on new pods."""

    def phase(self, pod: Pod) -> str | None:
        """The phase that was published last, or that the pod came with."""
        return (self.statuses.get(pod.metadata.uid) or pod.status).phase

    def has_processes(self, uid: str) -> bool:
        """Return True for a pod that runs."""
        return uid in self.views and self.views[uid].has_processes

    def has_ended(self, pod: Pod) -> bool:
        """Return True for a pod with a final phase and without processes."""
        return self.phase(pod) in TERMINAL_PHASES and not self.has_processes(pod.metadata.uid)

    def is_beyond_admission(self, pod: Pod) -> bool:
        """Return True for a pod that runs, ends or has ended: admission does not decide on it."""
        uid = pod.metadata.uid
        view = self.views.get(uid)
        if pod.metadata.deletion_timestamp is not None or (view is not None and view.sandboxes):
            return uid not in self.admit_again
        return self.phase(pod) in TERMINAL_PHASES

    def is_refused(self, pod: Pod) -> bool:
        """Return True for a pod that must not begin. Asked before admission, which would mark the pod as ours."""
        return self.foreign.refuses(pod, lambda: self._has_something(pod))

    def _has_something(self, pod: Pod) -> bool:
        uid = pod.metadata.uid
        return uid in self.foreign or uid in self.views or pod_cgroup_exists(pod, self._settings)

    def begin_anew(self, pod: Pod) -> None:
        """Forget the end of a pod that an earlier start of the agent rejected or evicted."""
        uid = pod.metadata.uid
        self.statuses.pop(uid, None)
        if pod.metadata.deletion_timestamp is None and not self.has_processes(uid):
            self.admit_again.add(uid)

    def keep_statuses(self, uids: Collection[str]) -> None:
        """Forget the statuses of all other pods."""
        self.statuses = {uid: status for uid, status in self.statuses.items() if uid in uids}

    def take_view(self, uid: str) -> PodView | None:
        """The runtime's view for a worker that starts, empty for a new pod; None when it is not known."""
        self.admit_again.discard(uid)
        is_unknown = self.foreign.claim(uid) or uid in self.failed
        return None if is_unknown else self.views.pop(uid, PodView())

    def left_by_worker(self, uid: str, view: PodView) -> None:
        """Keep what a worker that has ended left in the runtime."""
        if view.sandboxes:
            self.views[uid] = view
            self.admit_again.add(uid)  # its restart counts go on

    def worker_failed(self, uid: str, status: PodStatus | None, results: Collection[ProbeResult]) -> None:
        """Keep the facts of a failed worker for the next one."""
        self.failed.add(uid)
        if status is not None:
            self.statuses[uid] = status
        self.results[uid].extend(results)
