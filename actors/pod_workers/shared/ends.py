"""Ends: the deadlines and preStop hooks of all pods that end now, as the checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from actors.pod_workers.model.end_record import EndRecord, HookRecord


class Ends:
    """Records are immutable and have one writer, the pod's worker; the actor's thread reads them for the checkpoint."""

    def __init__(self, records: dict[str, EndRecord], changed: Callable[[], object]) -> None:
        """`changed`: write the checkpoint soon. Called in workers' threads."""
        self.records = records
        """By pod UID."""
        self._changed = changed

    def end_by(self, uid: str, proposed: float) -> float:
        """Record the deadline of a pod's end, and return it: the earlier of `proposed` and the recorded one."""
        record = self.records.get(uid)
        if record is None or proposed < record.end_by:
            self.records[uid] = EndRecord(proposed) if record is None else replace(record, end_by=proposed)
            self._changed()
        return self.records[uid].end_by

    def hook(self, uid: str, container_id: str) -> HookRecord | None:
        """A preStop hook that has begun in this end of the pod."""
        record = self.records.get(uid)
        return record.hooks.get(container_id) if record is not None else None

    def hook_began(self, uid: str, container_id: str, now: float) -> None:
        """Record the begin of a hook; the first begin stands. Without effect for a container that ends alone."""
        if self.hook(uid, container_id) is None:
            self._set(uid, container_id, HookRecord(now))

    def hook_done(self, uid: str, container_id: str) -> None:
        """Record that a hook has ended."""
        hook = self.hook(uid, container_id)
        if hook is not None:
            self._set(uid, container_id, replace(hook, done=True))

    def _set(self, uid: str, container_id: str, hook: HookRecord) -> None:
        record = self.records.get(uid)
        if record is not None:
            self.records[uid] = replace(record, hooks={**record.hooks, container_id: hook})
            self._changed()

    def forget(self, uid: str) -> None:
        """No process of the pod runs any more."""
        if self.records.pop(uid, None) is not None:
            self._changed()

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other pods: they ended while this actor was down."""
        for uid in self.records.keys() - uids:
            self.forget(uid)
