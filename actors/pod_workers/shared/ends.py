"""Ends: the deadlines and preStop hooks of pods and containers that end now, and causes of kills.

The checkpoint keeps them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace

from actors.pod_workers.model.end_record import ContainerEnd, EndRecord, HookRecord, KillRecord, kill_cause


class Ends:
    """Records are immutable. The pod's worker changes them, and the actor's thread at an eviction.

    The actor's thread reads them for the checkpoint.
    """

    def __init__(
        self,
        records: dict[str, EndRecord],
        containers: dict[tuple[str, str], ContainerEnd],
        changed: Callable[[], object],
        kills: dict[tuple[str, str], KillRecord] | None = None,
    ) -> None:
        """`changed`: write the checkpoint soon. Called in workers' threads."""
        self.records = records
        """Of pods that end, by UID."""
        self.containers = containers
        """Of containers that end alone, by pod UID and CRI ID."""
        self.kills = {} if kills is None else kills
        """The last kill of a container before it starts again, by pod UID and container name."""
        self._changed = changed
        self._lock = threading.Lock()
        """Of a change of `records`: an eviction may shorten an end while its worker records a hook."""

    def begin(self, uid: str, end_by: float) -> None:
        """Record a pod's end or earlier deadline before its worker knows of it. The caller writes the checkpoint."""
        with self._lock:
            self._shorten(uid, end_by)

    def end_by(self, uid: str, proposed: float) -> float:
        """Record the deadline of a pod's end, and return it: the earlier of `proposed` and the recorded one."""
        with self._lock:
            is_changed = self._shorten(uid, proposed)
            end_by = self.records[uid].end_by
        if is_changed:
            self._changed()
        return end_by

    def _shorten(self, uid: str, proposed: float) -> bool:
        record = self.records.get(uid)
        if record is not None and record.end_by <= proposed:
            return False
        self.records[uid] = EndRecord(proposed) if record is None else replace(record, end_by=proposed)
        return True

    def container_end_by(self, uid: str, container_id: str, proposed: float) -> float:
        """The same for a container that ends alone. In the end of its pod the deadline is `proposed`."""
        if uid in self.records:
            return proposed
        end = self.containers.get((uid, container_id))
        if end is None or proposed < end.end_by:
            end = ContainerEnd(proposed) if end is None else replace(end, end_by=proposed)
            self._set_container(uid, container_id, end)
        return end.end_by

    def hook(self, uid: str, container_id: str) -> HookRecord | None:
        """A preStop hook that has begun in this end of the pod or container."""
        record, end = self.records.get(uid), self.containers.get((uid, container_id))
        known = record.hooks.get(container_id) if record is not None else None
        return known or (end.hook if end is not None else None)

    def hook_began(self, uid: str, container_id: str, now: float) -> None:
        """Record the begin of a hook; the first begin stands. Without effect where no end is recorded."""
        if self.hook(uid, container_id) is None:
            self._set_hook(uid, container_id, HookRecord(now))

    def hook_done(self, uid: str, container_id: str) -> None:
        """Record that a hook has ended."""
        hook = self.hook(uid, container_id)
        if hook is not None:
            self._set_hook(uid, container_id, replace(hook, done=True))

    def _set_hook(self, uid: str, container_id: str, hook: HookRecord) -> None:
        end = self.containers.get((uid, container_id))
        with self._lock:
            record = self.records.get(uid)
            if record is not None:
                self.records[uid] = replace(record, hooks={**record.hooks, container_id: hook})
        if record is not None:
            self._changed()
        elif end is not None:
            self._set_container(uid, container_id, replace(end, hook=hook))

    def _set_container(self, uid: str, container_id: str, end: ContainerEnd) -> None:
        self.containers[uid, container_id] = end
        self._changed()

    def killed(self, uid: str, container: str, container_id: str, cause: str) -> None:
        """Record why this container is ended, before it is. The first cause of an instance stands."""
        known = self.kills.get((uid, container))
        if known is None or known.id != container_id:
            self.kills[uid, container] = KillRecord(container_id, cause)
            self._changed()

    def add_to_cause(self, uid: str, container: str, container_id: str, note: str) -> None:
        """Add a note to the recorded cause of that instance's kill, if it is still known."""
        known = self.kills.get((uid, container))
        if known is not None and known.id == container_id:
            self.kills[uid, container] = KillRecord(container_id, kill_cause(known.cause, note))
            self._changed()

    def kill_cause(self, uid: str, container: str, container_id: str) -> str:
        """Why this actor has ended that instance, or ends it; empty when it has ended by itself."""
        known = self.kills.get((uid, container))
        return known.cause if known is not None and known.id == container_id else ""

    def is_to_run(self, uid: str) -> None:
        """Forget the end of a pod that a source wants again, or that a cancelled shutdown of the machine ended."""
        with self._lock:
            record = self.records.pop(uid, None)
        if record is not None:
            self._changed()

    def keep_containers(self, uid: str, ending: Collection[str]) -> None:
        """Forget the ends of this pod's other containers: they have exited, or are to run."""
        for key in [key for key in tuple(self.containers) if key[0] == uid and key[1] not in ending]:
            if self.containers.pop(key, None) is not None:
                self._changed()

    def forget(self, uid: str) -> None:
        """No process of the pod runs any more."""
        self.is_to_run(uid)
        self.keep_containers(uid, ())
        for key in [key for key in tuple(self.kills) if key[0] == uid]:
            if self.kills.pop(key, None) is not None:
                self._changed()

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other pods: they ended while this actor was down."""
        known = {*tuple(self.records), *(uid for uid, _ in (*tuple(self.containers), *tuple(self.kills)))}
        for uid in known - set(uids):
            self.forget(uid)
