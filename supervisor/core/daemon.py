"""The parent process: one thread with one loop around the state machine in `process_tree`.

The loop converts input of file descriptors, signals and sockets into events, and carries out the instructions that the
state machine returns. It imports no Pykka, gRPC or Kubernetes type, because it must never fail.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import setproctitle
import zmq

from proto.agent.actor import Dumped, MemoryUse, Pong
from proto.agent.settings import Settings
from proto.agent.supervisor import Note
from proto.common import logs
from proto.common.machine import procfs
from proto.wire.message import Message
from supervisor.core import requests
from supervisor.core.faults import Faults
from supervisor.core.service import AgentService
from supervisor.core.upgrade import exchange, handover
from supervisor.core.upgrade.handover import Handover
from supervisor.health.idleness import is_idle
from supervisor.health.notify import Notifier
from supervisor.host import last_start
from supervisor.host.rundir import RunDir, StartError, check_writable
from supervisor.process import evidence, forkclient, state
from supervisor.process.death_log import Death
from supervisor.process.deaths import Deaths
from supervisor.process.forkserver import COMMON, IN_A_CLUSTER, WAIT_FLAGS, WITH_TRACING
from supervisor.process.forkserver_manager import ForkserverManager
from supervisor.process.processes import Process, Processes, become_subreaper
from supervisor.sockets.control import Asker, Control
from supervisor.sockets.publisher import OnEvent, Publisher
from supervisor.supervision import transitions
from supervisor.supervision.process_tree import ProcessTree
from supervisor.supervision.specs import ChildSpec, SpecError, validate
from supervisor.supervision.transitions import Event, Instruction

if TYPE_CHECKING:
    from supervisor.config.reload.controller import ReloadController
    from supervisor.core.upgrade.controller import UpgradeController

log = logging.getLogger(__name__)

SAVE_AGAIN_S = 5.0
"""Time to the next try after state.json could not be written."""
SOCKETS_S = 1.0
"""Shortest time between two looks at the files of the supervisor's own sockets."""
DRIVERS = ("cgroupfs", "systemd")
"""The cgroup drivers of container runtimes."""
CHILD_ENTRY = "actors._base.process.child:main"
_LONGEST_WAIT_S = 24 * 3600.0
"""zmq_poll(3) refuses more than 2^31 ms."""
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def run(
    settings: Settings,
    specs: Iterable[ChildSpec],
    *,
    on_event: OnEvent | None = None,
    child_entry: str = CHILD_ENTRY,
    service: AgentService | None = None,
    reload: ReloadController | None = None,
    upgrade: UpgradeController | None = None,
    taken: Handover | None = None,
) -> int:
    """Run the agent until SIGTERM, SIGINT or StopAgent. Returns the exit status: 0, or 1 when it has to start again.

    Needs the main thread of a process of its own: it takes over signals, the process title and every child's exit.
    `on_event` is called in the loop with each published event (proto.agent.supervisor.EVENTS); it must not block.
    `child_entry` is `module:function` of a child's main, `main(name, incarnation, settings, supervisor_pidfd)`.
    The loop also calls `service`, with events, input and time, and `reload`, which may change settings. `upgrade` may
    replace this process. With `taken` it is such a replacement; then a failed start raises.
    """
    setproctitle.setproctitle("supervisor")
    logs.setup("supervisor", settings.verbosity, settings.log_format, settings.vmodule)
    run_dir = os.path.abspath(settings.run_dir)
    try:
        ordered = validate(specs)
        with RunDir(run_dir, [spec.name for spec in ordered], taken.lock if taken is not None else -1) as place:
            check_writable(Path(settings.root_dir), "--root-dir")
            settings = msgspec.structs.replace(settings, run_dir=run_dir)
            daemon = Daemon(settings, ordered, child_entry, on_event, service, reload, upgrade, taken)
            daemon.lock = place.lock
            place.ours = handover.committed = True
            if taken is not None:
                exchange.settle(daemon, taken)
            daemon.run()
            return daemon.status
    except (StartError, SpecError) as error:
        if taken is not None and not handover.committed:
            raise
        sys.stderr.write(f"supervisor: {error}\n")
        return 1


def _pair() -> tuple[int, ...]:
    """The socket pair in which listening sockets wait for the next incarnation of their actor."""
    return tuple(end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))


def _preloaded(settings: Settings, specs: Iterable[ChildSpec], child_entry: str) -> tuple[str, ...]:
    """The modules that the forkserver imports once for all its children: the actors' own, and what most of them use."""
    modules: tuple[str, ...] = (*COMMON, child_entry.partition(":")[0])
    if child_entry == CHILD_ENTRY:
        modules += tuple(f"actors.{spec.name}.actor" for spec in specs)
        modules += IN_A_CLUSTER if settings.kubeconfig else ()
        modules += WITH_TRACING if settings.tracing_endpoint else ()
    return modules


class Daemon:
    """The loop and its parts. Needs a run directory that is locked by this process."""

    def __init__(
        self,
        settings: Settings,
        specs: tuple[ChildSpec, ...],
        child_entry: str,
        on_event: OnEvent | None,
        service: AgentService | None = None,
        reload: ReloadController | None = None,
        upgrade: UpgradeController | None = None,
        taken: Handover | None = None,
    ) -> None:
        self.settings = settings
        self.reload = reload
        self.upgrade = upgrade
        self.lock = -1
        """Descriptor of the run directory's lock."""
        self.service = service or AgentService(Notifier({}, 0), ())
        self.run_dir = Path(settings.run_dir)
        self.status = 0
        """The exit status."""
        self.started = taken.started if taken is not None else time.monotonic()
        self._state_path = self.run_dir / "state.json"
        self._saved = state.load(self._state_path)
        for name in state.end_leftovers(self._saved) if taken is None else ():
            log.warning("ended %s of a former supervisor", name)
        self.incarnation = self._incarnation_of("supervisor") + 1
        become_subreaper()
        self._poller = zmq.Poller()
        self.listeners = taken.listeners if taken is not None else _pair()
        # Before the ZeroMQ context: a fork must not copy its threads and sockets.
        self.forkserver = ForkserverManager(
            settings,
            _preloaded(settings, specs, child_entry),
            child_entry,
            self._poller,
            self._incarnation_of("forkserver"),
            by_fork=True,
            listeners=self.listeners,
        )
        self._wakeup = self._take_signals()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.processes = Processes(self._context, self._poller, settings.run_dir)
        self.deaths = Deaths(self.run_dir / "deaths")
        self.faults = Faults(self, enabled=settings.fault_injection)
        self.control = Control(self._context, f"{settings.run_dir}/control.sock")
        self.publisher = Publisher(self._context, f"{settings.run_dir}/world.sock", on_event)
        for fd in (self._wakeup, self.control.socket, self.publisher.socket, *self.service.fds):
            self._poller.register(fd, zmq.POLLIN)
        self.tree = ProcessTree(specs, {spec.name: self._incarnation_of(spec.name) for spec in specs}, random.random)
        self._events: deque[Event] = deque([transitions.Boot()])
        self._forks: list[transitions.Fork] = []
        self._dirty = True
        self._save_due: float | None = None
        """When state.json is written again after a failure."""
        self._sockets_due = 0.0
        if taken is not None:
            for instruction in exchange.take_over(self, taken):
                self._carry_out(instruction)
        if reload is not None:
            reload.begin(self)
        if upgrade is not None:
            upgrade.begin(self)

    def restart(self, actor: str) -> None:
        """Restart an actor."""
        self.push(transitions.RestartAsked(actor, None))

    def driver_told(self, driver: str) -> None:
        """End with status 1 when the container runtime has another cgroup driver than the agent.

        All that depends on it is decided at a start: the cgroup that is claimed, its pods, every actor's settings.
        """
        if driver not in ("", *DRIVERS) or self.tree.stopping:
            return
        before, ours = "", self.settings.cgroup_driver
        try:
            before = last_start.keep(self.settings, driver)
        except OSError as error:
            log.error("cannot save the runtime's cgroup driver for the next start: %s; check ROOT_DIR/nodevisor", error)
        if driver == ours or (not driver and before != ours):
            return
        # A version of it that tells none leaves the choice to the configuration, and ours may be what it told before.
        theirs = f"cgroup driver is {driver}" if driver else "cgroup driver is the configured one now"
        text = (
            f"the container runtime's {theirs}, the agent started with {ours}: "
            "ending with status 1; start the agent again, as systemd does, and pods go on"
        )
        self.note("error", "CgroupDriver", "supervisor", text)
        self.status = 1
        self.push(transitions.StopAsked())

    def close_for_exec(self) -> None:
        """Save the state and close every socket; processes and lock stay."""
        self.faults.close()
        self._save()
        if self.reload is not None:
            self.reload.close()
        self._context.destroy(linger=200)

    def _incarnation_of(self, name: str) -> int:
        return max(state.incarnations(self._saved).get(name, 0), state.floor(self._saved))

    def _take_signals(self) -> int:
        """Return the readable end of a pipe that gets each signal's number."""
        readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        return readable

    # The loop

    def run(self) -> None:
        """Run until every child has stopped after a request to stop."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handover.SIGNALS)  # a former self has blocked them
        try:
            while not self.tree.finished or self._events:
                self._run_once()
        finally:
            self.close()

    def _run_once(self) -> None:
        """Read input first, then check deadlines: a late loop must not take unread answers for missing ones."""
        try:
            self._handle_events()
            ready = dict(self._poller.poll(self._timeout_ms()))
            self._read(ready)
            self._look_at_deadlines()
            if self.reload is not None:
                self._handle_events()  # it reads the tree's present state
                self.reload.on_loop(ready)
            self._handle_events()
            if self.upgrade is not None:
                self.upgrade.on_loop()
                self._handle_events()
        except Exception:  # the supervisor's end would end every actor
            log.exception("unexpected error in the supervisor's loop")
            time.sleep(0.1)  # an error that repeats must not take a whole core

    def _timeout_ms(self) -> int | None:
        wakeup = self.tree.next_wakeup()
        reload = self.reload.deadline(time.monotonic()) if self.reload is not None else None
        upgrade = self.upgrade.deadline() if self.upgrade is not None else None
        rooms = (wakeup, self.service.deadline(), self.faults.deadline(), reload, upgrade, self._save_due)
        due = [*self.processes.deadlines(), *self.forkserver.deadlines(), *(at for at in rooms if at is not None)]
        if not due:
            return None
        return max(0, int(min(min(due) - time.monotonic(), _LONGEST_WAIT_S) * 1000) + 1)

    def _read(self, ready: dict[object, int]) -> None:
        if self._wakeup in ready:
            self._on_signals()
        if self.forkserver.is_in(ready):
            self._on_forkserver()
        for process in list(self.processes.by_name.values()):
            if process.pidfd in ready and process.gone_at is None:
                self.processes.mark_gone(process, time.monotonic())
                self.push(transitions.Gone(process.name, process.incarnation))
            if process.link is not None and process.link.socket in ready:
                self._on_link(process)
        if self.control.socket in ready:
            requests.serve(self)
        for fd in self.service.fds:
            if fd in ready and self.service.on_input(fd):
                self.push(transitions.StopAsked())
        if self.publisher.socket in ready and self.publisher.new_subscribers():
            self.publisher.publish(self.tree.peer_states())

    def _handle_events(self) -> None:
        while self._events:
            event = self._events.popleft()
            for instruction in self.tree.handle(event, time.monotonic()):
                try:
                    self._carry_out(instruction)
                except Exception:  # without the others, a Fork may be lost, and its child waits for ever
                    log.exception("cannot carry out %s of %s", type(instruction).__name__, type(event).__name__)
        if self._dirty or (self._save_due is not None and time.monotonic() >= self._save_due):
            self._save()  # before the forks: an incarnation in use must never be given again
        while self._forks:
            fork = self._forks.pop(0)
            self.forkserver.fork(fork.name, fork.incarnation)

    def push(self, event: Event) -> None:
        """Queue an event for the state machine; it is handled in the same iteration of the loop."""
        self._events.append(event)

    def _look_at_deadlines(self) -> None:
        now = time.monotonic()
        for process in self.processes.without_status(now):
            self._ended(process, None)
        for process in list(self.processes.by_name.values()):
            if process.evidence_due is not None and now >= process.evidence_due:
                self._save_evidence(process)
        if self.forkserver.gone or self.forkserver.overdue():
            self._replace_forkserver()
        if self.tree.stopping:
            for name, incarnation in self.forkserver.withdraw():
                self.push(transitions.ForkFailed(name, incarnation, "the agent is stopping", lost=True))
        self.forkserver.start_when_due()
        self.service.tick(now, self.tree.stopping)
        self.faults.tick(now)
        self.push(transitions.Tick())

    def put_in_force(self, settings: Settings, actors: Iterable[str], end_within_s: float | None = None) -> None:
        """Use these settings for every process that starts from now on, and restart these actors."""
        logs.setup("supervisor", settings.verbosity, settings.log_format, settings.vmodule)
        if settings.verbosity != self.settings.verbosity:
            for process in self.processes.by_name.values():
                self.processes.link(process).set_verbosity(settings.verbosity)
        self.settings = settings
        self.forkserver.use(settings)
        for name in actors:
            self.push(transitions.RestartAsked(name, None, end_within_s))

    def ping(self, actors: Iterable[str]) -> None:
        """Send these actors a heartbeat, in addition to the watchdog's."""
        for name in actors:
            if (process := self.processes.by_name.get(name)) is not None:
                self.processes.link(process).ping()

    def watch(self, fd: int) -> None:
        """Call `reload` for input on this descriptor."""
        self._poller.register(fd, zmq.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Undo `watch`."""
        self._poller.unregister(fd)

    # Input

    def _on_signals(self) -> None:
        numbers = os.read(self._wakeup, 4096)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            log.log(logs.NOTICE, "stopping; pods go on running")
            self.push(transitions.StopAsked())
        if signal.SIGHUP in numbers:
            log.log(logs.NOTICE, "SIGHUP has no effect: changed configuration files are read at once")
        while signal.SIGCHLD in numbers:
            try:
                pid, status = os.waitpid(-1, WAIT_FLAGS)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.forkserver.pid:  # its pidfd reports its end, after its last packets
                self.forkserver.on_status(status)
            else:
                self._on_wait_status(pid, status)

    def _on_forkserver(self) -> None:
        for report in self.forkserver.read():
            match report:
                case forkclient.ChildForked() as forked:
                    self._on_child_forked(forked)
                case forkclient.ForkFailed(name, incarnation, error):
                    self.push(transitions.ForkFailed(name, incarnation, error))
                case forkclient.StatusChanged(pid, status):
                    self._on_wait_status(pid, status)
                case forkclient.Loaded(errors):
                    for module, error in errors.items():
                        self.note("error", "ImportFailed", module, f"cannot be imported: {error}")

    def _on_child_forked(self, forked: forkclient.ChildForked) -> None:
        name, incarnation, pid, pidfd = forked.name, forked.incarnation, forked.pid, forked.pidfd
        if name in self.processes.by_name or not self.tree.awaits_fork(name, incarnation):
            # It would serve beside the present incarnation, and no deadline would end it.
            log.error("killing process %d: %s #%d is not the incarnation to start", pid, name, incarnation)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return
        self.processes.add(name, incarnation, pid, pidfd)
        self._dirty = True
        self.push(transitions.Forked(name, incarnation, pid))

    def _replace_forkserver(self) -> None:
        unanswered = self.forkserver.reap()
        for process in self.processes.reaped():  # by the forkserver: the status has ended with it
            self._ended(process, None)
        self.kill_unreported()
        self.note("warning", "Died", "forkserver", "ended, replacing it; actors go on")
        self.forkserver.start_when_due()
        self._dirty = True
        for name, incarnation in unanswered:
            self.push(transitions.ForkFailed(name, incarnation, "the forkserver ended", lost=True))

    def kill_unreported(self) -> None:
        """Kill children of the forkserver that it had not reported when it ended."""
        ours = {process.pid for process in self.processes.by_name.values()}
        for pid in procfs.children(os.getpid()):
            # Forked but not reported: the state machine starts this incarnation anew, so it must not become ready.
            if pid not in ours and procfs.title(pid).startswith("supervisor: "):
                log.warning("killing process %d: the forkserver ended before it reported the fork", pid)
                os.kill(pid, signal.SIGKILL)  # our own child, not reaped: the pid is still its own

    def _on_wait_status(self, pid: int, status: int) -> None:
        process = self.processes.with_pid(pid)
        if process is not None and os.WIFSTOPPED(status):
            self.push(transitions.Halted(process.name, process.incarnation))
        elif process is not None and os.WIFCONTINUED(status):
            self.push(transitions.Continued(process.name, process.incarnation))
        elif process is not None:
            self._ended(process, status)
        elif pid in self.processes.written_off:
            self.processes.written_off.discard(pid)
            self.tree.lost = [row for row in self.tree.lost if row.pid != pid]
            log.warning("process %d, written off before, has ended", pid)

    def _ended(self, process: Process, status: int | None) -> None:
        detail = self.deaths.detail(process.name, process.incarnation) if status else ""
        call = self.deaths.in_flight(process.name, process.incarnation)
        self.processes.remove(process)
        self.deaths.prune(process.name)
        self._dirty = True
        self.push(transitions.Ended(process.name, process.incarnation, status, detail, call))

    def _on_link(self, process: Process) -> None:
        assert process.link is not None
        for answer in process.link.read():
            match answer:
                case Pong(mailbox=mailbox):
                    size = self._size(process, mailbox)
                    self.push(transitions.PongReceived(process.name, process.incarnation, mailbox, *size))
                case Dumped() if process.evidence_due is not None and process.begun is not None:
                    process.dumped = answer
                    process.evidence_due = min(process.evidence_due, process.begun.sample.at + evidence.SAMPLE_S)
                case MemoryUse() if process.evidence_due is not None and process.begun is None:
                    process.memory, process.evidence_due = answer, 0.0

    def _size(self, process: Process, mailbox: int) -> tuple[int, str]:
        ceiling_mib = self.tree.children[process.name].spec.memory_ceiling_mib
        return evidence.size(self.run_dir, process.pid, process.name, mailbox, ceiling_mib)

    # Output

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case transitions.Publish(message):
                self._publish(message)
            case transitions.Answer(asker, answer):
                self.control.answer(asker if isinstance(asker, Asker) else None, answer)
            case transitions.RecordDeath():
                self.deaths.record(
                    Death(
                        time=time.time(),
                        actor=instruction.name,
                        incarnation=instruction.incarnation,
                        cause=instruction.cause,
                        reason=instruction.reason,
                        call=instruction.call,
                        evidence=instruction.evidence,
                        degraded=instruction.degraded,
                    )
                )
            case transitions.Fork():
                self._forks.append(instruction)
                self._dirty = True
            case _:
                process = self.processes.get(instruction.name, instruction.incarnation)
                if process is not None:
                    self._carry_out_on(process, instruction)

    def _carry_out_on(self, process: Process, instruction: Instruction) -> None:
        match instruction:
            case transitions.AskStop(in_service=True):
                self.processes.link(process).stop()
            case transitions.AskStop():
                process.signal(signal.SIGTERM)
            case transitions.Kill():
                process.signal(signal.SIGKILL)
            case transitions.SendPing(unless_idle=unless_idle):
                self._restore_sockets()
                if unless_idle and is_idle(self.run_dir, process.pid, process.name):
                    self.push(transitions.SeenIdle(process.name, process.incarnation, *self._size(process, 0)))
                else:
                    self.processes.link(process).ping()
                if not os.path.exists(f"{self.settings.run_dir}/{process.name}.sock"):
                    self.push(transitions.SocketGone(process.name, process.incarnation))
            case transitions.SaveEvidence(why=why):
                process.begun = evidence.begin(self.run_dir, process.pid, process.name)
                self.processes.ask_for_evidence(process, why)
            case transitions.SaveGrowth(why=why, sizes=sizes):
                self.processes.ask_for_memory(process, why, sizes)
            case transitions.WriteOff():
                self.processes.written_off.add(process.pid)
                self.processes.remove(process)
                self._dirty = True

    def _restore_sockets(self) -> None:
        if time.monotonic() < self._sockets_due:
            return  # the heartbeats of all actors are sent together
        self._sockets_due = time.monotonic() + SOCKETS_S
        for listening in (self.control.listening, self.publisher.listening):
            try:
                if listening.restore():
                    text = f"its socket file {listening.path} was removed; made it again"
                    self.note("warning", "SocketGone", "supervisor", text)
            except zmq.ZMQError as error:
                log.error("cannot listen at %s again: %s", listening.path, error)

    def _save_evidence(self, process: Process) -> None:
        process.evidence_due = None
        life = process.name, process.incarnation
        if process.begun is None:
            path = self.deaths.write_growth(*life, process.pid, process.why, process.memory, process.sizes)
            self.push(transitions.EvidenceSaved(*life, path))
            return
        path, stall = self.deaths.write_evidence(*life, process.pid, process.why, process.dumped, process.begun)
        self.push(transitions.EvidenceSaved(*life, path, f"{stall.kind}: {stall.text}"))

    def note(self, level: str, reason: str, actor: str, text: str) -> None:
        """Log a note and publish it."""
        self._publish(Note(level=level, actor=actor, text=text, reason=reason))

    def _publish(self, message: Message) -> None:
        if isinstance(message, Note):
            log.log(_LEVELS[message.level], "%s: %s", message.actor, message.text)
        else:
            log.debug("%s", message)
        self.service.on_event(message)
        self.publisher.publish(message)

    def _save(self) -> None:
        entries = {name: msgspec.structs.replace(entry, pid=0) for name, entry in self._saved.actors.items()}
        entries["supervisor"] = state.Entry(incarnation=self.incarnation)
        entries["forkserver"] = self.forkserver.entry()
        for child in self.tree.children.values():
            process = self.processes.get(child.name, child.incarnation)
            pid, start_time = (process.pid, process.start_time) if process is not None else (0, 0)
            entries[child.name] = state.Entry(incarnation=child.incarnation, pid=pid, start_time=start_time)
        self._saved = state.Saved(actors=entries)
        try:
            state.save(self._state_path, self._saved)
        except OSError as error:
            level = logging.ERROR if self._save_due is None else logging.DEBUG  # once in a row
            log.log(level, "cannot save %s: %s; free space there", self._state_path, error.strerror)
            self._save_due = time.monotonic() + SAVE_AGAIN_S
        else:
            if self._save_due is not None:
                log.log(logs.NOTICE, "saved %s again", self._state_path)
            self._save_due = None
        self._dirty = False

    def close(self) -> None:
        """End the forkserver, save the state and close every socket."""
        self.faults.close()
        self.forkserver.close()
        self._save()
        if self.reload is not None:
            self.reload.close()
        self._context.destroy(linger=500)  # in ms, for the answer to StopAgent
