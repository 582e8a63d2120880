"""The actor's pool of helper processes: one stays idle, others are forked when it is busy, a hanging one is killed.

A helper that survives SIGKILL is written off: its batch fails with HelperHung, and `when_gone` reports its end later.
Everything runs in the actor's mailbox thread, except `_io_...` methods, which post to it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Any

from actors._base import Actor, Future
from actors._base.messaging import waits
from actors.volume.helper import channel, process
from actors.volume.helper.dedicated import DedicatedJobs, owner_of
from actors.volume.helper.process import Progress
from actors.volume.steps.codec import Outcome, Outcomes, Step, decode_answer, encode
from actors.volume.steps.csi import CsiMount
from actors.volume.steps.volumes import Block, Local, Mount

log = logging.getLogger(__name__)

CALL_S = 8.0
"""A helper without a mark of progress for so long hangs: one system call of one step took all of it."""
KILLED_S = 1.0
"""Time from SIGKILL to being written off; only a call that the kernel cannot interrupt outlives it."""
BUSY_S = 0.02
"""A batch that has waited so long gets another helper."""
IDLE_S = 5.0
"""A helper without work for so long ends; another fork costs a few milliseconds, its memory is worth more."""
OWNING_S, OWNING_AGAIN_S = 30.0, 60.0
"""A change of ownership is reported after so long, and again every so often (pkg/volume/volume_linux.go)."""
FORK_AGAIN_S = 1.0
"""Pause after a failed fork, while other helpers are at work."""
WIDTH = 8
"""Most helpers at work at once, without those written off, and without dedicated ones, which have bounds of their own
(`dedicated.py`)."""
NOT_BEGUN = "it was not begun, because the pod is being removed"


class HelperGone(Exception):
    """The helper died or failed before it answered, or could not start; its steps may have been done or not."""


class HelperHung(Exception):
    """A step did not return in time.

    `pid` of the helper while the kernel keeps it: nothing may touch the volume until `Pool.when_gone`. 0 when it
    was killed. `since`: Unix seconds of its last progress.
    """

    def __init__(self, index: int, name: str, since: float, pid: int) -> None:
        super().__init__(f"step {index} ({name}) did not return")
        self.index, self.name, self.since, self.pid = index, name, since, pid


@dataclass
class Job:
    """A batch of steps and the future for its outcomes."""

    steps: tuple[Step, ...]
    future: Future[tuple[Outcome, ...]]
    dedicated: bool = False
    """Run in a new helper, which ends with the batch."""
    niced: bool = False
    """In a helper with the lowest CPU and I/O priority."""
    owner: str = ""
    """Of a dedicated job under way."""
    retried: bool = False
    """A helper died during it before."""
    subject: waits.Subject | None = field(default_factory=waits.SUBJECT.get)
    """The waiter."""
    waiting: waits.Waiting | None = None
    """Its record: in a dedicated job's queue, and while a helper carries it out."""
    reports: int = 0
    """Of the change of ownership under way."""


class Helper:
    """One helper process, from its fork to its end."""

    def __init__(self, root: str, *, dedicated: bool, niced: bool) -> None:
        """Fork from the mailbox thread: the helper ends with the thread that forked it. `dedicated`: for one job.

        Raises OSError when the machine has no process, memory or descriptor left for it.
        """
        self.dedicated = dedicated
        self.job: Job | None = None
        self.began = 0.0
        self.killed = self.hangs = self.exited = False
        actor_pid = os.getpid()
        with ExitStack() as undo:
            self.sock, theirs = channel.pair()
            undo.callback(self.sock.close)
            with closing(theirs):
                self.progress = Progress()
                undo.callback(self.progress.close)
                self.pid = os.fork()
                if self.pid == 0:
                    self.sock.close()
                    process.main(theirs, self.progress, root, actor_pid, niced=niced)
            undo.callback(_end_child, self.pid)
            self.pidfd = os.pidfd_open(self.pid)
            undo.pop_all()

    def kill(self) -> None:
        """Send SIGKILL; the pidfd reports the end."""
        self.killed = True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)


class Pool:
    """Distributes batches of steps to helpers."""

    def __init__(self, actor: Actor, root: str) -> None:
        self.call_s = CALL_S
        self.on_owning: Callable[[Step, int], None] = lambda step, files: None  # noqa: ARG005 - the signature
        """A step's change of ownership takes long: the files so far; 0 the first time."""
        self._actor, self._bus, self._root = actor, actor.bus, root
        self._idle: list[Helper] = []
        self._busy: set[Helper] = set()
        self._queue: deque[Job] = deque()
        self._dedicated: DedicatedJobs[Job] = DedicatedJobs()
        self._written_off: dict[int, list[Callable[[], None]]] = {}
        self._growing = False
        self._retiring = False
        self.forked = 0

    def describe(self) -> dict[str, Any]:
        """Counts, and PIDs of the helpers that could not be killed."""
        return {
            "idle": len(self._idle),
            "busy": len(self._busy),
            "queued": len(self._queue),
            "dedicated": self._dedicated.describe(),
            "written_off": sorted(self._written_off),
            "forked": self.forked,
        }

    def run(self, *steps: Step, dedicated: bool = False, niced: bool = False) -> Future[tuple[Outcome, ...]]:
        """Carry out the steps in order in one helper. The future raises HelperGone or HelperHung.

        `dedicated`: the steps may take minutes, so they get a helper without other work, once there are not too many,
        and are not repeated when it dies. `niced`: dedicated, with the lowest CPU and I/O priority.
        """
        job = Job(steps, Future(), dedicated or niced, niced)
        if job.dedicated:
            owner = owner_of(steps)
            what = f"a volume helper for {owner}: {_shown(steps)}"
            job.waiting = waits.begin("queue", what=what, subject=job.subject)
            self._dedicated.add(owner, job)
            self._dispatch_dedicated()
        else:
            self._queue.append(job)
            self._dispatch()
        return job.future

    def withdraw(self, uid: str) -> None:
        """Fail the jobs that set up volumes of this pod and have not begun: the pod is to be removed."""
        for job in self._dedicated.withdraw(lambda job: not _sets_up(job.steps, uid)):
            _end_record(job)
            job.future.set_error(HelperGone(NOT_BEGUN))

    def when_gone(self, pid: int, callback: Callable[[], None]) -> None:
        """Call back once a helper that was written off has ended; at once if it already has."""
        waiting = self._written_off.get(pid)
        if waiting is None:
            callback()
        else:
            waiting.append(callback)

    def adopt(self, pid: int, pidfd: int | None = None) -> None:
        """Track a stuck process: a helper of an earlier incarnation, or a helper's child that cannot be killed."""
        self._written_off[pid] = []
        if pidfd is None:
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                self._actor.post(self._forget_written_off, pid, name="helper_gone")
                return

        def gone() -> None:
            self._bus.unwatch_fd(pidfd, lambda: _close(pidfd))
            self._actor.post(self._forget_written_off, pid, name="helper_gone")

        self._bus.watch_fd(pidfd, gone)

    # Work

    def _dispatch(self) -> None:
        while self._queue and (self._idle or not self._busy):
            job = self._queue.popleft()
            if self._idle:
                self._assign(self._idle.pop(), job)
            else:
                self._assign_new(job)
        if self._queue and not self._growing and len(self._busy) < WIDTH:
            self._growing = True
            self._actor.after(BUSY_S, self._grow)
        self._dispatch_dedicated()

    def _dispatch_dedicated(self) -> None:
        while (taken := self._dedicated.take()) is not None:
            owner, job = taken
            job.owner = owner
            self._assign_new(job)

    def _grow(self) -> None:
        self._growing = False
        if self._queue and not self._idle and len(self._busy) < WIDTH:
            try:
                one = self._fork()
            except OSError as error:
                log.warning("cannot start another volume helper: %s; waiting for the others", error)
                self._growing = True
                self._actor.after(FORK_AGAIN_S, self._grow)
                return
            self._assign(one, self._queue.popleft())
        self._dispatch()

    def _assign_new(self, job: Job) -> None:
        """Give the job to a new helper. It fails when none can start: its request is repeated later."""
        try:
            one = self._fork(dedicated=job.dedicated, niced=job.niced)
        except OSError as error:
            log.error("cannot start a volume helper: %s", error)
            self._account(job)
            job.future.set_error(HelperGone(f"cannot start a helper: {error}"))
        else:
            self._assign(one, job)

    def _fork(self, *, dedicated: bool = False, niced: bool = False) -> Helper:
        one = Helper(self._root, dedicated=dedicated, niced=niced)
        self.forked += 1
        self._bus.watch_fd(one.sock.fileno(), lambda: self._io_read(one))
        self._bus.watch_fd(one.pidfd, lambda: self._io_exited(one))
        return one

    def _assign(self, one: Helper, job: Job) -> None:
        one.job, one.began = job, time.monotonic()
        one.progress.at(0, "")
        _end_record(job)
        job.waiting = waits.begin("helper", f"helper/{one.pid}", _shown(job.steps), subject=job.subject)
        if not one.dedicated:
            self._busy.add(one)
        try:
            channel.send(one.sock, encode(job.steps))
        except OSError as error:
            log.debug("cannot send steps to helper %d: %s", one.pid, error)  # it is dying: its exit fails the batch
            one.kill()
        self._actor.after(self.call_s, self._check_progress, one, job)

    def _check_progress(self, one: Helper, job: Job) -> None:
        if one.job is not job or one.killed:
            return
        self._look_at_owning(one, job)
        silent_s = time.monotonic() - max(one.began, one.progress.read()[0])
        if silent_s < self.call_s:
            self._actor.after(self.call_s - silent_s, self._check_progress, one, job)
            return
        one.hangs = True
        one.kill()
        self._actor.after(KILLED_S, self._write_off, one, job)

    def _look_at_owning(self, one: Helper, job: Job) -> None:
        index, files, since = one.progress.owned()
        if not files:
            job.reports = 0
        elif time.monotonic() - since >= OWNING_S + job.reports * OWNING_AGAIN_S:
            self.on_owning(job.steps[index], files if job.reports else 0)
            job.reports += 1

    def _write_off(self, one: Helper, job: Job) -> None:
        if one.job is not job:
            return
        when, index, name = one.progress.read()
        log.error("helper %d hangs in the kernel at volume %r and cannot be killed: written off", one.pid, name)
        self._busy.discard(one)
        self._written_off[one.pid] = []
        one.job = None
        self._account(job)
        job.future.set_error(HelperHung(index, name, time.time() - (time.monotonic() - when), one.pid))
        self._dispatch()

    def _account(self, job: Job) -> None:
        """The job is no longer under way. Its helper may be, when it is written off."""
        _end_record(job)
        if job.dedicated:
            self._dedicated.ended(job.owner)

    # Answers and exits

    def _io_read(self, one: Helper) -> None:
        try:
            packet = channel.receive(one.sock, wait=False)
        except BlockingIOError:
            return
        except OSError:
            packet = None
        if packet is None:
            self._bus.unwatch_fd(one.sock.fileno())
        else:
            self._actor.post(self._answered, one, packet, name="helper_answered")

    def _io_exited(self, one: Helper) -> None:
        if one.exited:
            return
        one.exited = True
        self._io_read(one)  # an answer sent right before the end counts
        self._bus.unwatch_fd(one.sock.fileno())
        self._bus.unwatch_fd(one.pidfd, lambda: self._actor.post(self._exited, one, name="helper_exited"))

    def _answered(self, one: Helper, packet: bytes) -> None:
        if one.job is None or one.killed:
            return  # its exit or its end as written off completes the job
        job, one.job = one.job, None
        self._account(job)
        self._busy.discard(one)
        answer = decode_answer(packet)
        if isinstance(answer, Outcomes):
            if one.dedicated:
                one.kill()
            else:
                self._idle.append(one)
                self._retire_later()
            job.future.set(answer.outcomes)
        else:
            for line in ("a volume helper failed:", *answer.traceback.splitlines()):
                log.error("%s", line)
            one.kill()
            job.future.set_error(HelperGone("the helper process failed; its traceback is in the agent's log"))
        self._dispatch()

    def _exited(self, one: Helper) -> None:
        with suppress(ChildProcessError):
            os.waitpid(one.pid, os.WNOHANG)
        when, index, name = one.progress.read()
        for fd in (one.pidfd, one.sock.detach()):
            _close(fd)
        one.progress.close()
        if one in self._idle:
            self._idle.remove(one)
        self._busy.discard(one)
        job, one.job = one.job, None
        if job is not None:
            self._account(job)
        if job is not None and one.hangs:
            job.future.set_error(HelperHung(index, name, time.time() - (time.monotonic() - when), 0))
        elif job is not None and not job.retried and not job.dedicated:
            job.retried = True  # killed from outside, perhaps before it began; steps may be repeated
            self._queue.appendleft(job)
        elif job is not None:
            job.future.set_error(HelperGone("the helper process died"))
        self._forget_written_off(one.pid)
        self._dispatch()

    def _forget_written_off(self, pid: int) -> None:
        for callback in self._written_off.pop(pid, ()):
            callback()

    # Idle helpers

    def _retire_later(self) -> None:
        if not self._retiring:
            self._retiring = True
            self._actor.after(IDLE_S, self._retire)

    def _retire(self) -> None:
        self._retiring = False
        now = time.monotonic()
        for one in list(self._idle):
            if now - one.began >= IDLE_S:
                self._idle.remove(one)
                one.sock.shutdown(socket.SHUT_RDWR)  # it reads the end of file and exits; its pidfd reports it
        if self._idle:
            self._retire_later()


def _end_child(pid: int) -> None:
    """Kill a helper that has no job yet, and wait for its end."""
    os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _end_record(job: Job) -> None:
    if job.waiting is not None:
        job.waiting.end()


def _sets_up(steps: tuple[Step, ...], uid: str) -> bool:
    """Return True for steps that set up volumes of the pod."""
    uids = {
        step.volume.uid if isinstance(step, CsiMount) else step.uid
        for step in steps
        if isinstance(step, CsiMount | Mount | Local | Block)
    }
    return uid in uids


def _shown(steps: tuple[Step, ...]) -> str:
    """The steps for people: `SetUp of volume "data"`."""
    names = (getattr(step, "name", "") for step in steps)
    return ", ".join(
        type(step).__name__ + (f' of volume "{name}"' if name else "") for step, name in zip(steps, names, strict=True)
    )


def _close(fd: int) -> None:
    with suppress(OSError):
        os.close(fd)
