"""The monitor's event loop: clients, starting commands, output and exits."""

from __future__ import annotations

import _socket
import fcntl
import os
import select
import signal
import sys
import time

from actors.runtime.monitor.container import Container
from actors.runtime.monitor.exits import ADOPTION_S, UNKNOWN, become_subreaper, exit_code, is_child
from actors.runtime.monitor.files import descriptors, read_text, start_time, write
from actors.runtime.monitor.output import Output
from actors.runtime.monitor.sink import Sinks

TYPE_CHECKING = False
"""Type checkers know this name; importing `typing` would take a megabyte."""
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from actors.runtime.monitor.container import Waiter

PACKET_BYTES = 262144
MOST_UNCLAIMED = 4096
"""The most exit codes that are kept for pids without a known container; the oldest is dropped."""
EXIT_S = 10.0
"""Longest wait for the parent of an adopted container to reap it. The exit code can be read only then."""
TRY_MS = 20
"""Interval of the checks whether such a process was reaped, or a started one has become a child."""
MOST_READS_AT_END = 64
"""Reads of a pipe at its end, at most: a process that the container left may write on and must not block the loop."""
TIOCGPTPEER = 0x5441
"""Opens a terminal's slave by its master, whose devpts is the container's (Linux 4.13, ioctl_tty(2))."""
SIGNALS_OF_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""The interpreter ignores these; a container starts with their defaults."""


class Monitor:
    """The event loop and all its state."""

    def __init__(self, listener: Any) -> None:
        self.listener = listener
        self.clients: dict[int, Any] = {}
        self.received: list[int] = []
        """Descriptors of the current packet."""
        self.containers: dict[str, Container] = {}
        self.commands: dict[int, Container] = {}
        """Containers whose OCI runtime command runs, by its pid."""
        self.pids: dict[int, Container] = {}
        self.unclaimed_exits: dict[int, int] = {}
        """Exit codes by pid of processes that may turn out to be a container's first. Noted during starts only."""
        self.adopting: list[Container] = []
        """Containers whose OCI runtime command has ended, and whose processes are not known as children yet."""
        self.exiting: list[Container] = []
        self.begun = False
        self.poll = select.poll()
        self.sinks = Sinks(self)
        self.handlers: dict[int, Callable[[int], object]] = {}
        self.wake, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(self.wake, self.on_signal)
        self.watch(listener.fileno(), self.on_client)

    def watch(self, fd: int, handler: Callable[[int], object], events: int = select.POLLIN) -> None:
        self.handlers[fd] = handler
        self.poll.register(fd, events)

    def unwatch(self, fd: int) -> None:
        if self.handlers.pop(fd, None) is not None:
            self.poll.unregister(fd)

    def run(self) -> None:
        while self.clients or self.containers or self.commands or not self.begun:
            for fd, _ in self.poll.poll(TRY_MS if self.adopting or self.exiting else None):
                handler = self.handlers.get(fd)
                if handler is not None:
                    self.attempt(handler, fd)
            for container in self.adopting[:]:
                self.attempt(self.try_adopt, container)
            for container in self.exiting[:]:
                self.attempt(self.try_exit_code, container)

    def attempt(self, act: Callable[[Any], object], what: Any) -> None:
        try:
            act(what)
        except Exception as error:  # an error of one container must not stop the others
            print(f"monitor: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    # Clients

    def on_client(self, _: int) -> None:
        fd, _ = self.listener._accept()
        client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fileno=fd)
        os.set_inheritable(fd, False)
        client.settimeout(5.0)  # a client that does not read is dropped: the files have all news
        self.clients[fd] = client
        self.begun = True
        self.watch(fd, self.on_packet)

    def on_packet(self, fd: int) -> None:
        client = self.clients[fd]
        try:
            packet, ancillary, _, _ = client.recvmsg(PACKET_BYTES, _socket.CMSG_SPACE(8), _socket.MSG_CMSG_CLOEXEC)
        except OSError:
            packet, ancillary = b"", ()
        if not packet:
            self.drop(fd)
            return
        self.received = descriptors(ancillary)
        number, verb, *arguments = packet.decode("utf-8", "surrogateescape").split("\0")
        try:
            answer = getattr(self, "do_" + verb.replace("-", "_"))(*arguments, (fd, number))
        except (OSError, TypeError, AttributeError, KeyError, ValueError) as error:
            answer = ("error", f"{type(error).__name__}: {error}")
        for unused in self.received:
            os.close(unused)
        if answer is not None:
            self.answer((fd, number), *answer)

    def drop(self, fd: int) -> None:
        self.unwatch(fd)
        self.clients.pop(fd).close()

    def answer(self, waiter: Waiter, *fields: str, passed: int = -1) -> None:
        self.tell(waiter[0], "reply", waiter[1], *fields, passed=passed)

    def tell(self, fd: int, *fields: str, passed: int = -1) -> None:
        client = self.clients.get(fd)
        if client is None:
            return
        ancillary = []
        if passed >= 0:
            ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed.to_bytes(4, sys.byteorder))]
        try:
            client.sendmsg(["\0".join(fields).encode("utf-8", "surrogateescape")], ancillary)
        except OSError:
            self.drop(fd)

    # Verbs

    def do_list(self, waiter: Waiter) -> tuple[str, ...]:
        for container in self.containers.values():
            if container.unwritten:  # the client that was told of the exit may be gone
                self.report(container, container.unwritten, waiter[:1])
        return "ok", str(os.getpid()), *self.containers

    def do_start(self, id_: str, directory: str, log: str, stdin: str, console: str, *rest: Any) -> Any:
        *command, waiter = rest
        if id_ in self.containers:
            return "error", "it has been started already"
        container = self.containers[id_] = Container(id_, directory)
        container.waiter = waiter
        fds = []
        try:
            container.log.open(log)
            if console:
                self.listen_for_console(container, console)
                fds = [os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)] * 3
            else:
                fds = [self.open_stdin(container, stdin), self.open_output(container, "stdout")]
                fds.append(self.open_output(container, "stderr"))
            actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds)]
            pid = os.posix_spawn(
                command[0], command, os.environ, file_actions=actions, setsigdef=SIGNALS_OF_PYTHON, setsigmask=()
            )
        except OSError:
            self.forget(container)
            raise
        finally:
            for fd in set(fds):
                os.close(fd)
        if not self.commands and not self.adopting:  # the exits of an earlier start belong to no container of this one
            self.unclaimed_exits.clear()
        self.commands[pid] = container
        return None

    def do_adopt(self, id_: str, directory: str, log: str, pid: str, _: Waiter) -> tuple[str, ...]:
        if id_ in self.containers:
            return ("ok",)
        container = self.containers[id_] = Container(id_, directory)
        try:
            container.log.open(log)
        except OSError as error:  # its output is dropped, so that it does not block, and its exit is still recorded
            print(f"monitor: container {id_}: {error}", file=sys.stderr, flush=True)
        for stream in ("stdout", "stderr"):
            try:
                fd = os.open(f"{directory}/{stream}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:  # it had a terminal, whose master ended with the former monitor
                continue
            self.follow(container, fd, stream)
        container.pid = int(pid)
        try:
            container.pidfd = os.pidfd_open(container.pid)
        except ProcessLookupError:
            self.ended(container, UNKNOWN)
            return ("ok",)
        self.watch(container.pidfd, lambda _: self.on_exit(container))
        return ("ok",)

    def do_reopen(self, id_: str, log: str, _: Waiter) -> tuple[str, ...]:
        self.containers[id_].log.open(log)
        return ("ok",)

    def do_attach(self, id_: str, streams: str, waiter: Waiter) -> None:
        """Reply `open` when the container takes input, and pass its terminal."""
        container = self.containers[id_]
        for stream in streams.split(",") if streams else ():
            fd = self.received.pop(0)
            output = next((one for one in container.outputs if one.stream == stream.encode()), None)
            if output is None or container.ended:  # a process that it left may keep the output open
                os.close(fd)
                continue
            self.sinks.add(fd, container, output)
        has_input = container.stdin >= 0 or container.terminal >= 0
        self.answer(waiter, "ok", "open" if has_input else "", passed=container.terminal)

    def do_close_stdin(self, id_: str, _: Waiter) -> tuple[str, ...]:
        container = self.containers[id_]
        if container.stdin >= 0:
            os.close(container.stdin)
            container.stdin = -1
        return ("ok",)

    def do_forget(self, id_: str, _: Waiter) -> tuple[str, ...]:
        container = self.containers.get(id_)
        if container is not None:
            self.forget(container)
        return ("ok",)

    def forget(self, container: Container) -> None:
        self.close_slave(container)
        for output in container.outputs[:]:
            self.close_output(container, output)
        self.unwatch(container.pidfd)
        container.log.close()
        for fd in (container.stdin, container.pidfd):
            if fd >= 0:
                os.close(fd)
        container.stdin = container.pidfd = container.terminal = -1
        self.close_console(container)
        self.containers.pop(container.id, None)
        self.pids.pop(container.pid, None)
        for waiting in (self.adopting, self.exiting):
            if container in waiting:
                waiting.remove(container)

    # Open files of a container

    def open_stdin(self, container: Container, path: str) -> int:
        if not path:
            return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        container.stdin = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(reader, True)
        return reader

    def open_output(self, container: Container, stream: str) -> int:
        path = f"{container.dir}/{stream}"
        writer = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.follow(container, os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), stream)
        return writer

    def follow(self, container: Container, fd: int, stream: str) -> None:
        output = Output(fd, stream, container.log)
        container.outputs.append(output)
        self.resume(container, output)

    def resume(self, container: Container, output: Output) -> None:
        if output in container.outputs and output.fd not in self.handlers:
            self.watch(output.fd, lambda _: self.read_output(container, output))

    def listen_for_console(self, container: Container, path: str) -> None:
        container.console = listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        listener.settimeout(1.0)
        self.watch(listener.fileno(), lambda _: self.receive_console(container))

    def receive_console(self, container: Container) -> None:
        fd, _ = container.console._accept()
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=fd)
        connection.settimeout(5.0)
        try:
            _, ancillary, _, _ = connection.recvmsg(4096, 64, _socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return
        finally:
            connection.close()
        for terminal in descriptors(ancillary):
            os.set_blocking(terminal, False)
            container.terminal = terminal
            self.hold_slave(container)
            self.follow(container, terminal, "stdout")
        self.close_console(container)

    def hold_slave(self, container: Container) -> None:
        """Keep the slave open until the exit: without one the master ends, though the container may open one again."""
        self.close_slave(container)
        try:
            flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
            container.slave = fcntl.ioctl(container.terminal, TIOCGPTPEER, flags)
        except OSError:  # an older kernel: output ends when the container has closed its terminal
            pass

    def close_slave(self, container: Container) -> None:
        if container.slave >= 0:
            os.close(container.slave)
            container.slave = -1

    def close_console(self, container: Container) -> None:
        if container.console is not None:
            path = container.console.getsockname()
            self.unwatch(container.console.fileno())
            container.console.close()
            container.console = None
            try:
                os.unlink(path)
            except OSError:
                pass

    # Output

    def read_output(self, container: Container, output: Output) -> bool:
        """Read once; return True when more output may be ready."""
        more = output.read()
        self.sinks.hold(output)
        if more is None:
            self.close_output(container, output)
        return bool(more)

    def close_output(self, container: Container, output: Output) -> None:
        self.unwatch(output.fd)
        container.outputs.remove(output)
        if container.terminal == output.fd:
            container.terminal = -1
        os.close(output.fd)
        self.sinks.end(output)

    # Exits

    def on_signal(self, fd: int) -> None:
        try:
            os.read(fd, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.reaped(pid, os.waitstatus_to_exitcode(status))

    def reaped(self, pid: int, code: int) -> None:
        if pid in self.commands:
            self.command_ended(self.commands.pop(pid), code)
        elif pid in self.pids:
            self.ended(self.pids.pop(pid), code)
        elif self.commands or self.adopting:
            if len(self.unclaimed_exits) >= MOST_UNCLAIMED:
                self.unclaimed_exits.pop(next(iter(self.unclaimed_exits)))
            # A container may exit before its pid is known. Most others are its orphans, or processes of exec. Their
            # exit codes are not kept: the kernel soon gives their pids to other containers.
            self.unclaimed_exits[pid] = code

    def command_ended(self, container: Container, code: int) -> None:
        """The OCI runtime has started the container, or failed."""
        if code == 0 and container.console is not None:
            self.receive_console(container)  # it was sent, but not received yet
        self.close_console(container)
        if code != 0:
            self.answer_start(container, "error", f"the OCI runtime ended with exit code {code}")
            self.forget(container)
            return
        container.pid = int(read_text(f"{container.dir}/pid"))
        container.adopt_by = time.monotonic() + ADOPTION_S
        self.adopting.append(container)
        self.try_adopt(container)

    def answer_start(self, container: Container, *fields: str) -> None:
        waiter, container.waiter = container.waiter, None
        assert waiter is not None
        self.answer(waiter, *fields)

    def try_adopt(self, container: Container) -> None:
        """Note the started container as running or ended, once its process is a child or gone."""
        child = is_child(container.pid)
        if child is None and time.monotonic() < container.adopt_by:
            return
        self.adopting.remove(container)
        ended: int | None = self.unclaimed_exits.pop(container.pid, UNKNOWN)  # UNKNOWN: too many others ended meanwhile
        if child:  # an orphan had that pid during the start
            ended = None
        # Once it is reaped, the pid may be another process's, whose start time would let that one be killed.
        ticks = start_time(container.pid) if ended is None else "0"
        write(f"{container.dir}/started", f"{container.pid} {ticks} {time.time_ns()}\n")
        self.answer_start(container, "ok", str(container.pid))
        if ended is None:
            self.pids[container.pid] = container
        else:
            self.ended(container, ended)

    def on_exit(self, container: Container) -> None:
        self.unwatch(container.pidfd)
        container.exit_by = time.monotonic() + EXIT_S
        self.exiting.append(container)
        self.try_exit_code(container)

    def try_exit_code(self, container: Container) -> None:
        """Read the exit code of a container that is not a child."""
        code = exit_code(container.pidfd)
        if code is None and time.monotonic() < container.exit_by:
            return
        self.exiting.remove(container)
        self.ended(container, UNKNOWN if code is None else code)

    def ended(self, container: Container, code: int) -> None:
        """The first process has exited. Its log is complete before clients learn of the exit."""
        container.ended = True
        self.close_slave(container)
        outputs = container.outputs[:]
        unread = outputs
        for _ in range(MOST_READS_AT_END):  # alternately: the log then keeps roughly the order of stdout and stderr
            unread = [output for output in unread if self.read_output(container, output)]
        for output in outputs:
            self.sinks.end(output)
        result = str(code if code >= 0 else 128 - code), str(time.time_ns())
        self.report(container, result, list(self.clients))

    def report(self, container: Container, result: tuple[str, str], clients: Sequence[int]) -> None:
        container.unwritten = () if write(f"{container.dir}/exit", " ".join(result) + "\n") else result
        for fd in clients:
            self.tell(fd, "exited", container.id, *result)


def main(arguments: list[str]) -> None:
    """Run the loop. `arguments`: the listener's descriptor, then the command line that starts this program.

    The command is executed a second time: the process stays a subreaper, without the megabyte that ctypes takes.
    """
    number, *again = arguments
    if again:
        become_subreaper()
        os.execv(again[0], [*again, number])
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, lambda *_: None)  # not SIG_IGN, which containers would inherit
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fileno=int(number))
    os.set_inheritable(listener.fileno(), False)
    Monitor(listener).run()
