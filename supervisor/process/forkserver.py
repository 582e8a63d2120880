"""The forkserver: a process that imports the actors' modules once, and forks an actor for each request.

It is a process of its own, so that no ZeroMQ context, gRPC channel or thread is ever copied. It closes everything that
it opens before its first fork, except a socket pair (actors._base.process.listener_store). It takes requests and
reports exits on one inherited SOCK_SEQPACKET socket, and ends when the supervisor ends.

Packets are msgpack. The supervisor sends:

- init, a map, once;
- [fork, name, incarnation];
- [settings, bytes], for all later forks.

The forkserver sends:

- [loaded, {module: error}];
- [forked, name, incarnation, pid], with a pidfd;
- [failed, name, incarnation, error];
- [exited, pid, wait status].

A signal that stops or continues a child is such an exit, too (waitpid(2), WUNTRACED and WCONTINUED).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgpack
import msgspec
import setproctitle

from proto.agent.settings import Settings
from proto.common import logs
from proto.common.safe_text import indented

PACKET_BYTES = 256 * 1024
WAIT_FLAGS = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
"""A child that is stopped or continued is reported, too: a stopped one cannot answer any request."""
CRASHED = 70
"""EX_SOFTWARE of sysexits.h, as in actors._base.deaths."""
COMMON = (
    "zmq",
    "msgpack",
    "msgspec",
    "pykka",
    "grpc",
    "google.protobuf.message",
    "proto.wire.codec",
    "proto.agent.actor",
    "proto.agent.supervisor",
    "proto.v1",
    "proto.cri.api_pb2",
    "actors._base.process.child",
    "actors._cri",
)
"""Modules imported before the first fork: children share their pages, and no restart waits for an import."""

IN_A_CLUSTER = (
    "yaml",
    "actors._kube.client",
    "actors._kube.follow",
    "actors.config.sources.api",
    "actors.events.sending",
    "actors.node.reporting",
    "actors.objects.api.source",
    "actors.status.api_sync",
)
"""More such modules, imported only with a kubeconfig."""
WITH_TRACING = ("actors.tracing.export",)
"""More such modules, imported only with a collector's endpoint: 90 ms of a restart of tracing, and 6 MB."""

log = logging.getLogger(__name__)
ChildMain = Callable[[str, int, Settings, int], NoReturn]


class Init(msgspec.Struct, frozen=True, kw_only=True):
    """The first packet."""

    settings: Settings
    preload: tuple[str, ...]
    entry: str
    """`module:function` of the child's main. If that module has a function `prepare`, it is called before the
    first fork, with `listeners`."""
    listeners: tuple[int, ...] = ()
    """Descriptors of the socket pair in which listening sockets wait; empty for none."""


def preload(modules: tuple[str, ...]) -> dict[str, str]:
    """Import the modules. Returns errors by module; a failed import fails only its actor."""
    errors: dict[str, str] = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # including SystemExit
            errors[name] = f"{type(error).__name__}: {error}"
    return errors


def prepare(entry: str, listeners: tuple[int, ...]) -> None:
    """Call the entry module's `prepare`, if it has one. Children can be forked even if it fails."""
    try:
        function = getattr(importlib.import_module(entry.partition(":")[0]), "prepare", None)
        if function is not None:
            function(listeners)
    except Exception:
        log.exception("cannot prepare the forkserver's memory; each actor needs more memory")


class ForkServer:
    """The forkserver's loop. `supervisor` is a pidfd of the parent, readable at its end; children inherit it."""

    def __init__(self, sock: socket.socket, supervisor: int, wakeup: tuple[int, int], init: Init) -> None:
        self._sock = sock
        self._supervisor = supervisor
        self._wakeup = wakeup
        self._init = init

    def run(self) -> None:
        """Serve until the supervisor ends."""
        poller = select.poll()
        for fd in (self._sock.fileno(), self._supervisor, self._wakeup[0]):
            poller.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self._supervisor in ready:
                return
            if self._wakeup[0] in ready:
                os.read(self._wakeup[0], 4096)
                self._reap()
            if self._sock.fileno() in ready and not self._take_request():
                return

    def _take_request(self) -> bool:
        packet = self._sock.recv(PACKET_BYTES)
        if not packet:
            return False
        match msgpack.unpackb(packet):
            case ["settings", bytes(encoded)]:
                settings = msgspec.msgpack.decode(encoded, type=Settings)
                self._init = msgspec.structs.replace(self._init, settings=settings)
                logs.setup("forkserver", settings.verbosity, settings.log_format, settings.vmodule)
            case [_, str(name), int(incarnation)]:
                self._fork(name, incarnation)
        return True

    def _fork(self, name: str, incarnation: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._send(["failed", name, incarnation, str(error)])
            return
        if pid == 0:
            self._become(name, incarnation)
        pidfd = os.pidfd_open(pid)  # the child is not reaped yet, so the pid cannot be another process's
        try:
            socket.send_fds(self._sock, [msgpack.packb(["forked", name, incarnation, pid])], [pidfd])
        finally:
            os.close(pidfd)

    def _become(self, name: str, incarnation: int) -> NoReturn:
        """Be the child, with the forkserver's imports and the supervisor's pidfd, and nothing else of it."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            self._sock.close()
            for fd in self._wakeup:
                os.close(fd)
            gc.enable()
            module, _, function = self._init.entry.partition(":")
            main: ChildMain = getattr(importlib.import_module(module), function)
            main(name, incarnation, self._init.settings, self._supervisor)
        except BaseException:
            self._record(name, incarnation, traceback.format_exc())
        os._exit(CRASHED)

    def _record(self, name: str, incarnation: int, text: str) -> None:
        """Write the death record of a child whose main was not found or raised."""
        with contextlib.suppress(OSError):
            os.write(2, indented(text).encode(errors="backslashreplace"))
            path = Path(self._init.settings.run_dir, "deaths", f"{name}-{incarnation}.txt")
            path.write_text(text, errors="backslashreplace")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, WAIT_FLAGS)
            except ChildProcessError:
                return
            if not pid:
                return
            self._send(["exited", pid, status])

    def _send(self, packet: list[Any]) -> None:
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # the supervisor has ended: the next poll reports it
            self._sock.send(msgpack.packb(packet))


def _watch_supervisor(expected_pid: int) -> int:
    """Return a pidfd of the supervisor. Exits when it has ended: its pid may belong to another process."""
    try:
        fd = os.pidfd_open(expected_pid)
    except OSError:
        sys.exit(0)
    if os.getppid() != expected_pid:
        sys.exit(0)
    return fd


def main(socket_fd: int, supervisor_pid: int) -> None:
    """Serve on an inherited socket."""
    setproctitle.setproctitle("supervisor: forkserver")
    supervisor = _watch_supervisor(supervisor_pid)
    os.setsid()  # Ctrl-C in the supervisor's terminal is the supervisor's to handle
    os.set_inheritable(socket_fd, False)
    sock = socket.socket(fileno=socket_fd)
    gc.disable()  # imports leave little garbage, and collections would write to pages that children share
    init: Init = msgspec.msgpack.decode(sock.recv(PACKET_BYTES), type=Init)
    logs.setup("forkserver", init.settings.verbosity, init.settings.log_format, init.settings.vmodule)
    wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakeup[1], warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    errors = preload(init.preload)
    for descriptor in init.listeners:
        os.set_inheritable(descriptor, False)
    prepare(init.entry, init.listeners)
    gc.freeze()
    server = ForkServer(sock, supervisor, wakeup, init)
    sock.send(msgpack.packb(["loaded", errors]))
    server.run()
