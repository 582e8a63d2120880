"""The checkpoint of pod_workers: crash-loop back-offs, rejected and evicted pods, ends under way, causes of kills.

Neither the runtime nor another actor knows these facts. A restarted actor reads them from pod_workers.json in the
checkpoint directory.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from actors._base import Actor
from actors._host import other_agent
from actors._host.files import checkpoint, paths
from actors._host.files.checkpoint import Writes
from actors._host.node.shutdown import NOT_ADMITTED
from actors._host.system import boot_id
from actors.pod_workers.model import back_off, end_record
from actors.pod_workers.model.back_off import Replaced, RestartDelay
from actors.pod_workers.model.end_record import ContainerEnd, EndRecord, KillRecord
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

VERSION = 1
SAVE_SOON_S = 0.02
"""Delay of the first write after a quiet time, to include changes that come together."""
SAVE_PERIOD_S = 0.25
"""At most one write in this time, but for `Checkpoint.save`."""
SAVE_DEADLINE_S = 10.0
LOSS = "a restart forgets back-offs, rejected pods and grace periods"


def path(root_dir: str) -> str:
    """The file's path."""
    return os.path.join(paths.checkpoints_dir(root_dir), "pod_workers.json")


def recent_path(root_dir: str) -> str:
    """The path of a newer copy, which need not be on the disk yet: a power cut may lose or damage it."""
    return os.path.join(paths.checkpoints_dir(root_dir), "pod_workers-recent.json")


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of the checkpoint."""

    back_offs: dict[tuple[str, str], RestartDelay] = field(default_factory=dict)
    """By pod UID and container name."""
    rejected: dict[str, tuple[str, str]] = field(default_factory=dict)
    """(reason, message) of rejected and evicted pods by UID."""
    ends: dict[str, EndRecord] = field(default_factory=dict)
    """By pod UID. Empty after a reboot."""
    container_ends: dict[tuple[str, str], ContainerEnd] = field(default_factory=dict)
    """By pod UID and CRI ID. Empty after a reboot."""
    replaced: dict[str, dict[str, Replaced]] = field(default_factory=dict)
    """By pod UID and container name: kills whose start has not followed yet. Inner dicts do not change."""
    kills: dict[tuple[str, str], KillRecord] = field(default_factory=dict)
    """By pod UID and container name: why the last kill of a container that starts again was."""
    number: int = 0
    """Of the write. It grows."""
    rejected_before: set[str] = field(default_factory=set)
    """UIDs in `rejected` from before this start of the agent. See `AdmissionQueue.decide_again`."""
    rejected_by_earlier_start: dict[str, tuple[str, str]] = field(default_factory=dict)
    """As `rejected`, of static pods that were decided on again since. status may still have that end of theirs."""
    is_settled: bool = False
    """It was written after `Checkpoint.settled` in this start of the agent: only this actor was down."""
    other_agent: str | None = None
    """The last other agent (`other_agent.noted`) that it knows. None: no file, or that of a former release."""
    awaits_server: bool = False
    """Another agent has served the pods, and the API server has not sent them since."""
    served_by_other_agent: set[str] = field(default_factory=set)
    """UIDs in `rejected_before` of pods that another agent may have run since."""
    ran: set[str] = field(default_factory=set)
    """While `awaits_server`: UIDs of API pods that this agent has run since. The other agent did not end them."""


class _File(msgspec.Struct):
    """The file as `Checkpoint` writes it; the rows of the `Any` parts are those of `back_off` and `end_record`."""

    number: int = 0
    agent: str | None = None
    settled: bool = True
    boot_id: str = ""
    back_offs: Any = ()
    replaced: Any = ()
    ends: Any = ()
    container_ends: Any = ()
    kills: Any = ()
    rejected: list[tuple[str, str, str]] = []
    rejected_before: set[str] = set()
    forgiven: list[tuple[str, str, str]] = []
    other_agent: str | None = None
    awaits_server: bool = False
    outdated: set[str] = set()
    ran: set[str] = set()


def load(root_dir: str, agent: str = "") -> Saved:
    """Read the newer of the two files; without them all parts are empty. `agent`: its ID, empty when unknown.

    A file of another shape is logged and not used.
    """
    files = [_load(one, agent) for one in (path(root_dir), recent_path(root_dir))]
    return max(filter(None, files), key=lambda saved: saved.number, default=_saved(_File(), agent))


def _load(file: str, agent: str) -> Saved | None:
    data = checkpoint.load(file, VERSION)
    try:
        return None if data is None else _saved(msgspec.convert(data, _File), agent)
    except msgspec.ValidationError as error:
        log.error(
            "cannot use the checkpoint %s: %s; going on without its back-offs, rejected pods and grace periods",
            file, error,
        )  # fmt: skip
        return None


def _saved(file: _File, agent: str) -> Saved:
    """Raises msgspec.ValidationError."""
    rejected, rejected_by_earlier_start = (
        {uid: (reason, message) for uid, reason, message in rows} for rows in (file.rejected, file.forgiven)
    )
    by_this_agent = agent in ("", file.agent)
    ends = end_record.from_plain(file.ends)
    container_ends = end_record.containers_from_plain(file.container_ends)
    of_this_boot = file.boot_id == boot_id()
    return Saved(
        back_off.from_plain(file.back_offs),
        rejected,
        ends if of_this_boot else {},
        container_ends if of_this_boot else {},
        back_off.replaced_from_plain(file.replaced),
        kills=end_record.kills_from_plain(file.kills),
        number=file.number,
        rejected_before=file.rejected_before if by_this_agent else set(rejected),
        rejected_by_earlier_start=rejected_by_earlier_start,
        is_settled=by_this_agent and file.settled,
        other_agent=file.other_agent,
        awaits_server=file.awaits_server,
        served_by_other_agent=file.outdated & rejected.keys(),
        ran=file.ran,
    )


def after_other_agent(saved: Saved, noted: str) -> Saved:
    """The same where `noted`, the last other agent, has served the pods since `saved` was written. Pure.

    It is noted at starts of the agent only, so this is a new start, also where the agent's ID is unknown. Without a
    file of this release it is not known when that agent served. Then nothing changes.
    """
    if saved.other_agent is None or noted in ("", saved.other_agent):
        return replace(saved, other_agent=noted or saved.other_agent or "")
    rejected = saved.rejected.keys()
    return replace(
        saved, other_agent=noted, awaits_server=True, is_settled=False,
        rejected_before=set(rejected), served_by_other_agent=set(rejected), ran=set(),
    )  # fmt: skip


class Checkpoint:
    """Owns the checkpointed values. Used in the actor's mailbox thread, but for `save` and `outlive_kill`.

    The admission queue changes `rejected`, `rejected_before`, `rejected_by_earlier_start` and `served_by_other_agent`
    in place, workers the rest.
    """

    def __init__(self, actor: Actor, agent: str = "") -> None:
        """`agent`: the ID of this start of the agent (`agent_id`)."""
        self._actor, self._agent = actor, agent
        self._saving = self._changed = False
        self._saved_at = 0.0
        self._writes = Writes(actor, path(actor.settings.root_dir), LOSS, self.save_soon, deadline_s=SAVE_DEADLINE_S)
        self._writing = threading.Lock()
        self._writing_recent = threading.Lock()
        found = load(actor.settings.root_dir, agent)
        self.saved = after_other_agent(found, other_agent.noted(actor.settings.root_dir))
        # The file of a release that an upgrade has replaced is written anew: it does not know the other agent.
        self._is_settled = self.saved.is_settled and found.other_agent is not None
        self._awaits_server = self.saved.awaits_server
        self._numbers = itertools.count(self.saved.number + 1)
        self._asked = self._written = 0
        """Calls of `outlive_kill`, and the last one whose values are in the recent file."""
        self._order = threading.Lock()
        """Held for moments: while a call or a write gets its number, and the write its values."""

    def settled(self) -> None:
        """Save that this start of the agent is over: the next process goes on from this one, and waits for no server.

        Without it a healthy node may write nothing, and each kill of this actor would count as a start.
        """
        if not self._is_settled:
            self._is_settled = True
            self.save_soon()

    def server_answered(self) -> None:
        """Save that the API server has sent its pods since another agent served them."""
        if self._awaits_server:
            self._awaits_server = False
            self.saved.ran.clear()
            self.save_soon()

    def has_begun(self, uid: str) -> None:
        """Save that this agent runs the API pod: no later start, as after a reboot, makes it wait for the server."""
        if self._awaits_server and uid not in self.saved.ran:
            self.saved.ran.add(uid)
            self.save_soon()

    def has_terminated(self, uid: str) -> None:
        """Forget the pod."""
        self.saved.ran.discard(uid)

    def save_soon(self) -> None:
        """Write once for all changes of the next moments, in a pool thread: the disk may take long."""
        self._changed = True
        if not self._saving:
            self._saving = True
            wait_s = max(SAVE_SOON_S, self._saved_at + SAVE_PERIOD_S - time.monotonic())
            self._actor.after(wait_s, lambda: self._actor.spawn(self._save_in_thread(), "save_checkpoint"))

    async def _save_in_thread(self) -> None:
        self._changed = False
        self._saved_at = time.monotonic()
        try:
            await self._writes.run(self._write_all)
        finally:
            self._saving = False
        if self._changed:
            self.save_soon()

    async def outlive_kill(self) -> None:
        """Return when a kill of this process loses no value of now. It waits for no disk. From any thread.

        Calls that come together share a write.
        """
        with self._order:
            self._asked += 1
            call = self._asked
        try:
            await self._actor.blocking(SAVE_DEADLINE_S, functools.partial(self._save_recent, call))
        except (OSError, AskTimeout) as error:
            self._writes.has_failed(error)

    def _save_recent(self, call: int) -> None:
        with self._writing_recent:
            if call > self._written:
                self._written = self._asked  # their values are there already
                self._write(recent_path(self._actor.settings.root_dir), sync=False)

    def save(self) -> None:
        """Write now, and return when it is on the disk. From any thread; the later of two writes has the later values.

        After an error it is written as `Writes` says; a restart before forgets the changes.
        """
        try:
            self._write_all()
        except OSError as error:
            self._writes.has_failed(error)
        else:
            self._writes.has_succeeded()

    def _write_all(self) -> None:
        with self._writing:
            self._write(path(self._actor.settings.root_dir), sync=True)

    def _write(self, file: str, *, sync: bool) -> None:
        boot, saved = boot_id(), self.saved
        with self._order:  # the file with the higher number has the later values
            data = {
                "number": next(self._numbers),
                "agent": self._agent,
                "settled": self._is_settled,
                "boot_id": boot,
                "back_offs": back_off.to_plain(dict(saved.back_offs)),
                "replaced": back_off.replaced_to_plain(dict(saved.replaced)),
                "ends": end_record.to_plain(dict(saved.ends)),
                "container_ends": end_record.containers_to_plain(dict(saved.container_ends)),
                "kills": end_record.kills_to_plain(dict(saved.kills)),
                # A pod that was rejected because the machine shut down is decided on again after the boot.
                "rejected": [[uid, *why] for uid, why in dict(saved.rejected).items() if why[0] != NOT_ADMITTED],
                "rejected_before": list(saved.rejected_before),
                "forgiven": [[uid, *why] for uid, why in dict(saved.rejected_by_earlier_start).items()],
                "other_agent": saved.other_agent,
                "awaits_server": self._awaits_server,
                "outdated": list(saved.served_by_other_agent),
                "ran": list(saved.ran),
            }
        checkpoint.save(file, VERSION, data, sync=sync)
