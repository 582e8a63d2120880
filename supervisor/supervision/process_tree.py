"""The supervision state machine of all children: events in, instructions out. No socket, process or clock.

`ProcessTree.handle` takes one event of `transitions` at a monotonic time and returns instructions in order. The daemon
carries them out and reports the results as further events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from proto.agent.supervisor import ActorRow, Exited, Note, PeerState, PeerStates, Started
from proto.common.backoff import Random
from proto.wire.errors import Refused
from proto.wire.message import Done, Message
from supervisor.supervision import hangs, memory, orders, policy, transitions
from supervisor.supervision.child import Child
from supervisor.supervision.policy import Cause, History
from supervisor.supervision.specs import ChildSpec
from supervisor.supervision.transitions import TRANSITIONS, Event, Instruction, State, Taken

KILL_WAIT_S = 2.0
"""SIGKILL ends a process at once unless it is in an uninterruptible sleep. After this long it is written off."""
EVIDENCE_WAIT_S = 0.6
"""The longest delay of a hung child's end for saving evidence."""
STALL_S = 1.0
"""A tick this late shows that the supervisor itself did not run. That time counts against no child."""
LONG_IN_SERVICE = "in service for long enough"


class ProcessTree:
    """All children by name, in start order.

    `incarnations` are the highest numbers so far by name, from the state file.
    """

    def __init__(self, specs: Iterable[ChildSpec], incarnations: Mapping[str, int], random: Random) -> None:
        self.children = {spec.name: Child(spec, incarnations.get(spec.name, 0)) for spec in specs}
        self.lost: list[ActorRow] = []
        """Incarnations written off."""
        self.stopping = False
        self.ignored_ready = 0
        """Count of Ready messages from another than the present incarnation or process."""
        self._stop_askers: list[object] = []
        self._random = random
        self._out: list[Instruction] = []
        self._now = 0.0
        self._wanted: float | None = None

    @property
    def finished(self) -> bool:
        """True once every child has ended after a request to stop."""
        return self.stopping and not any(child.alive for child in self.children.values())

    @property
    def now(self) -> float:
        """Monotonic time of the event that is handled."""
        return self._now

    def rows(self, now: float) -> list[ActorRow]:
        """The rows of all children, then those of written off incarnations."""
        return [child.row(now) for child in self.children.values()] + self.lost

    def peer_states(self) -> PeerStates:
        """The snapshot for new subscribers: every child's incarnation and readiness."""
        children = self.children.values()
        return PeerStates(
            peers=tuple(
                PeerState(name=child.name, incarnation=child.incarnation, ready=child.in_service) for child in children
            )
        )

    def awaits_fork(self, name: str, incarnation: int) -> bool:
        """True while this is the present incarnation and the forkserver has not answered its request."""
        child = self.children.get(name)
        return child is not None and child.alive and child.incarnation == incarnation and not child.pid

    def next_wakeup(self) -> float | None:
        """The monotonic time of the next Tick; None while none is due."""
        due = [at for child in self.children.values() for at in hangs.due(child) if at is not None]
        self._wanted = min(due, default=None)
        return self._wanted

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Handle an event. Returns the instructions that follow from it, in order."""
        self._now, self._out = now, []
        match event:
            case transitions.Boot():
                self._start_unblocked()
            case transitions.StopAsked(asker):
                self._on_stop_asked(asker)
            case transitions.Tick():
                self._on_tick()
            case transitions.RestartAsked() | transitions.ActorOrdered():
                orders.carry_out(self, event)
            case _:
                self._on_child_event(event)
        return self._out

    def _on_child_event(self, event: Event) -> None:
        child = self.children.get(event.name)  # type: ignore[union-attr]
        current = child is not None and child.alive and child.incarnation == event.incarnation  # type: ignore[union-attr]
        if child is None or not current:
            self.ignored_ready += isinstance(event, transitions.ReadyReceived)
            return
        match event:
            case transitions.Forked(pid=pid):
                self._on_forked(child, pid)
            case transitions.ForkFailed(reason=reason, lost=lost):
                self._on_fork_failed(child, reason, lost)
            case transitions.ReadyReceived(pid=pid):
                self._on_ready(child, pid)
            case transitions.Ended():
                self._on_ended(child, event)
            case transitions.PongReceived():
                self._on_pong(child, event)
            case transitions.SeenIdle():
                child.mailbox, child.pinged = 0, None
                self._on_alive(child, event)
            case transitions.Halted() | transitions.Continued() | transitions.Gone():
                self._on_process(child, event)
            case transitions.Suspected() if child.state is State.READY:
                self._on_suspected(child)
            case transitions.SocketGone() if child.state is State.READY:
                self._hang(child, "its socket file was removed")
            case transitions.EvidenceSaved():
                self._on_evidence(child, event)

    def _on_process(self, child: Child, event: transitions.Halted | transitions.Continued | transitions.Gone) -> None:
        match event:
            case transitions.Halted():
                child.stopped = self._now if child.pid else child.stopped
            case transitions.Continued():
                child.stopped = None
            case transitions.Gone():  # it has no deadline to miss any more
                child.deadline = child.next_ping = child.pinged = child.stopped = None

    def take_over(self, taken: Iterable[Taken], now: float) -> list[Instruction]:
        """Take over processes of the former supervisor with this pid, all of which are ready."""
        found = [(self.children[one.name], one) for one in taken]
        for child, _ in found:
            child.tried = True  # before the first is ready: its dependents run already
        out: list[Instruction] = []
        for child, one in found:
            child.incarnation, child.starts = one.incarnation - 1, one.starts - 1
            self.start(child)
            self.handle(transitions.Forked(child.name, one.incarnation, one.pid), now)
            out += self.handle(transitions.ReadyReceived(child.name, one.incarnation, one.pid), now)
            child.ready, child.deaths, child.last_death = one.ready, one.deaths, one.last_death
        return out

    # Starting

    def _start_unblocked(self) -> None:
        for child in self.children.values():
            blocked = any(not self.children[name].tried for name in child.spec.depends_on)
            if not child.starts and not blocked and not child.held:
                self.start(child)

    def start(self, child: Child) -> None:
        """Fork the next incarnation."""
        child.begin(self._now)
        self.transition(child, State.STARTING)
        self._out.append(transitions.Fork(child.name, child.incarnation))

    def tried(self, child: Child) -> None:
        """Note that the first start has succeeded or failed, and start what depends on it."""
        if not child.tried:
            child.tried = True
            if not self.stopping:
                self._start_unblocked()

    def _on_forked(self, child: Child, pid: int) -> None:
        child.pid = pid
        if child.state is State.STOPPING:  # told to stop while the fork was under way
            self._ask_to_end(child, in_service=False)
            return
        child.deadline = self._now + child.spec.start_deadline_s
        if child.early_ready:
            self._on_ready(child, child.early_ready)

    def _on_fork_failed(self, child: Child, reason: str, lost: bool) -> None:
        if lost and not child.asked and not self.stopping:
            child.starts -= 1  # the child did not fail: neither a restart nor a step of the back-off
            self._publish(Exited(name=child.name, incarnation=child.incarnation, reason=reason))
            self.start(child)
            return
        no_fault = child.asked or lost
        self._end(child, Cause.SHUTDOWN if no_fault else Cause.CRASH, f"cannot be forked: {reason}")

    def _on_ready(self, child: Child, pid: int) -> None:
        if child.pid == 0:
            child.early_ready = pid
            return
        if child.pid != pid:
            self.ignored_ready += 1
            return
        if child.state is not State.STARTING:
            return
        self.transition(child, State.READY)
        child.ready = self._now
        child.deadline = None
        child.next_ping = self._next_ping(child)
        self._publish(Started(name=child.name, incarnation=child.incarnation))
        askers, child.askers = child.askers, []
        for asker in askers:
            self.answer(asker, child.row(self._now))
        self.tried(child)

    # Watching

    def _next_ping(self, child: Child) -> float | None:
        period_s = child.spec.heartbeat_period_s
        if not period_s:
            return None
        return (math.floor(self._now / period_s) + 1) * period_s  # aligned: one wake-up for all children

    def _on_pong(self, child: Child, event: transitions.PongReceived) -> None:
        child.mailbox, child.pinged, child.ponged, child.suspected = event.mailbox, None, self._now, False
        self._on_alive(child, event)

    def _on_alive(self, child: Child, event: transitions.PongReceived | transitions.SeenIdle) -> None:
        if child.state is not State.READY:
            return
        child.next_ping = self._now if child.suspected else self._next_ping(child)
        child.growth.add(self._now, event.memory_kib, child.spec.memory_ceiling_mib, event.busy)
        if not self.stopping and (why := memory.why_replace(child, self.children.values(), self._now)):
            self._begin_to_replace(child, why)
        if child.history.degraded and self._now - (child.ready or self._now) >= child.spec.intensity_period_s:
            self.forgive(child, LONG_IN_SERVICE)

    def _on_suspected(self, child: Child) -> None:
        """An asker alone ends no child: the watchdog asks it now, and waits for a shorter time."""
        if child.spec.heartbeat_period_s and child.spec.suspected_deadline_s:
            child.suspected = True
            child.next_ping = self._now if child.pinged is None else None

    def forgive(self, child: Child, why: str) -> None:
        """Forget the restarts so far."""
        degraded, child.history = child.history.degraded, History()
        if degraded:
            self._note_recovery(child, why)

    def _note_recovery(self, child: Child, why: str) -> None:
        self.note("info", "Recovered", child, f"{why}, no longer degraded")

    def _on_tick(self) -> None:
        late_s = self._now - self._wanted if self._wanted is not None else 0.0
        if late_s > STALL_S:
            self._extend_deadlines()
        for child in self.children.values():
            self._tick(child)

    def _extend_deadlines(self) -> None:
        """Extend the children's deadlines: when the supervisor stood still, as on a paused machine, so did they."""
        for child in self.children.values():
            if child.pinged is not None:
                child.pinged = self._now
            if child.stopped is not None:
                child.stopped = self._now
            if child.deadline is None:
                continue
            if child.state is State.STARTING:
                child.deadline = self._now + child.spec.start_deadline_s
            elif child.state is State.STOPPING:
                child.deadline = max(child.deadline, self._now + STALL_S)

    def _tick(self, child: Child) -> None:
        if child.deadline is not None and self._now >= child.deadline:
            self._on_deadline(child)
        elif why := hangs.why_hung(child, self._now):
            self._hang(child, why)
        elif child.state is State.READY and child.next_ping is not None and self._now >= child.next_ping:
            child.pinged, child.next_ping = self._now, None
            unless_idle = hangs.may_be_idle(child, self._now)
            self._out.append(transitions.SendPing(child.name, child.incarnation, unless_idle))

    def _on_deadline(self, child: Child) -> None:
        match child.state:
            case State.STARTING:
                self._hang(child, f"not ready within {child.spec.start_deadline_s:g} s of its start")
            case State.STOPPING if child.killed:
                self._write_off(child)
            case State.STOPPING:
                if not child.hung:
                    self.note(
                        "warning", "StopTimedOut", child, f"did not stop within {child.spec.shutdown_s:g} s, killing it"
                    )
                self._kill(child)
            case State.READY:
                self._stop_outgrown(child)
            case State.BACKOFF | State.DEGRADED:
                self.start(child)

    def _hang(self, child: Child, why: str) -> None:
        child.hung = why
        self.transition(child, State.STOPPING)
        child.next_ping = child.pinged = None
        child.deadline = self._now + EVIDENCE_WAIT_S
        self.note("error", "Unresponsive", child, f"{why}, saving evidence and replacing it")
        self._out.append(transitions.SaveEvidence(child.name, child.incarnation, why))

    def _begin_to_replace(self, child: Child, why: str) -> None:
        """A child past its memory ceiling serves until the evidence is on disk."""
        child.growing = why
        child.deadline = self._now + memory.EVIDENCE_WAIT_S
        self.note("warning", "MemoryCeiling", child, why)
        sizes = child.growth.lines(child.started)
        self._out.append(transitions.SaveGrowth(child.name, child.incarnation, why, sizes))

    def _stop_outgrown(self, child: Child) -> None:
        self.stop(child)
        child.outgrown, child.growing, child.outgrown_at = child.growing, "", self._now

    def _on_evidence(self, child: Child, event: transitions.EvidenceSaved) -> None:
        if child.state is State.READY and child.growing:
            child.evidence = event.path
            self._stop_outgrown(child)
        if child.state is State.STOPPING and child.hung and not child.killed:
            child.evidence = event.path
            child.hung += f"; {event.stall}" if event.stall else ""
            self._kill(child)

    # Ending

    def stop(self, child: Child) -> None:
        """Request an orderly end; of a child that is being forked, once it has a process.

        An unanswered fork has no deadline here: its process may still come, and would run beside the next incarnation.
        The forkserver has a deadline. Forks that it leaves unanswered count as lost.
        """
        child.asked = True
        if child.state is State.STOPPING:
            return
        in_service = child.state is State.READY
        self.transition(child, State.STOPPING)
        child.next_ping = child.pinged = None
        child.deadline = None
        if child.pid:
            self._ask_to_end(child, in_service)

    def _ask_to_end(self, child: Child, in_service: bool) -> None:
        child.deadline = self._now + min(child.spec.shutdown_s, child.end_within_s)
        self._out.append(transitions.AskStop(child.name, child.incarnation, in_service))

    def _kill(self, child: Child) -> None:
        child.killed = True
        child.deadline = self._now + KILL_WAIT_S
        self._out.append(transitions.Kill(child.name, child.incarnation))

    def _write_off(self, child: Child) -> None:
        self.transition(child, State.LOST)
        row = child.row(self._now)
        self.lost.append(msgspec.structs.replace(row, name=f"{child.name}#{child.incarnation}"))
        self._out.append(transitions.WriteOff(child.name, child.incarnation))
        reason = f"SIGKILL did not end process {child.pid} within {KILL_WAIT_S:g} s, written off"
        self.note("error", "WrittenOff", child, reason)
        # Past its memory ceiling, a child was asked to end too; but it was not by a request, so it starts again.
        cause = Cause.HUNG if child.hung else Cause.MEMORY if child.outgrown else Cause.SHUTDOWN
        why = child.hung or child.outgrown
        self._end(child, cause, f"{why}; {reason}" if why else reason)

    def _on_ended(self, child: Child, event: transitions.Ended) -> None:
        status, child.call = event.wait_status, event.call
        cause = policy.cause_of(
            status, asked=child.asked and not child.hung, hung=bool(child.hung), outgrown=bool(child.outgrown)
        )
        if child.hung or child.outgrown:
            reason = (child.hung or child.outgrown) + (f" (evidence {child.evidence})" if child.evidence else "")
        else:
            reason = policy.describe_status(status) + (f" in {child.call}" if child.call else "")
            reason += f": {event.detail}" if event.detail else ""
        self._end(child, cause, reason)

    def _end(self, child: Child, cause: Cause, reason: str) -> None:
        if cause is not Cause.SHUTDOWN or child.state is State.LOST:
            child.died(cause.value, reason)
            self._out.append(
                transitions.RecordDeath(
                    child.name,
                    child.incarnation,
                    "lost" if child.state is State.LOST else cause.value,
                    reason,
                    child.call,
                    child.evidence,
                    child.history.degraded,
                )
            )
        self._publish(Exited(name=child.name, incarnation=child.incarnation, reason=reason))
        child.pid = 0
        child.deadline = child.next_ping = child.pinged = None
        if self.stopping:
            self.transition(child, State.STOPPED)
            self._stop_next()
        elif child.held:
            orders.stopped(self, child)
        elif child.again:
            self.forgive(child, orders.ON_REQUEST)
            self.start(child)
        else:
            self._decide(child, cause, reason)
        self.tried(child)

    def _decide(self, child: Child, cause: Cause, reason: str) -> None:
        was_degraded = child.history.degraded
        decision = policy.decide(child.spec, child.history, child.run(self._now), cause, self._random)
        child.history = decision.history
        self.refuse_askers(child, reason)
        if decision.start_at is None:
            self.transition(child, State.STOPPED)
            self.note("info", "Ended", child, f"ended ({reason}), is {child.spec.restart.value} and stays so")
            return
        delay_s = decision.start_at - self._now
        degraded = decision.history.degraded
        if was_degraded and not degraded:  # it ended between its recovery and the heartbeat that reports it
            self._note_recovery(child, LONG_IN_SERVICE)
        if degraded and not was_degraded:
            self.note(
                "error",
                "Degraded",
                child,
                f"degraded: more than {child.spec.max_restarts} restarts in {child.spec.intensity_period_s:g} s, "
                f"from now on one every {child.spec.backoff_cap_s:g} s; last: {reason}",
            )
        else:
            when = f"in {delay_s:.3g} s" if delay_s > 0 else "now"
            self.note("warning", "Died", child, f"{reason}, starts again {when}")
        if delay_s <= 0:
            self.start(child)
            return
        self.transition(child, State.DEGRADED if degraded else State.BACKOFF)
        child.deadline = decision.start_at

    # Requests

    def refuse_askers(self, child: Child, reason: str) -> None:
        """Refuse the requests that wait for the next Ready."""
        askers, child.askers = child.askers, []
        for asker in askers:
            self.answer(asker, Refused("NotReady", f"{child.name} ended before it was ready: {reason}"))

    def _on_stop_asked(self, asker: object) -> None:
        if asker is not None:
            self._stop_askers.append(asker)
        if not self.stopping:
            self.stopping = True
            for child in self.children.values():
                child.again = False
                orders.drop_stop_askers(self, child)
                self.refuse_askers(child, "the agent is stopping")
                if child.state in (State.BACKOFF, State.DEGRADED):
                    child.deadline = None
                    self.transition(child, State.STOPPED)
        self._stop_next()

    def _stop_next(self) -> None:
        """Stop the children that no living child depends on."""
        needed = {name for child in self.children.values() if child.alive for name in child.spec.depends_on}
        for child in reversed(self.children.values()):
            if child.alive and not child.asked and child.name not in needed:
                self.stop(child)
        if self.finished:
            askers, self._stop_askers = self._stop_askers, []
            self._out.extend(transitions.Answer(asker, Done()) for asker in askers)

    # Output

    def answer(self, asker: object, answer: Message | Exception) -> None:
        """Answer a request."""
        self._out.append(transitions.Answer(asker, answer))

    def send(self, instruction: Instruction) -> None:
        """Add an instruction."""
        self._out.append(instruction)

    def transition(self, child: Child, to: State) -> None:
        """Change a child's state."""
        if to not in TRANSITIONS[child.state]:
            raise AssertionError(f"{child.name}: no move from {child.state.value} to {to.value}")
        child.state = to

    def _publish(self, message: Message) -> None:
        self._out.append(transitions.Publish(message))

    def note(self, level: str, reason: str, child: Child, text: str) -> None:
        """Publish a remark for operators."""
        self._publish(Note(level=level, actor=child.name, text=text, reason=reason))
