"""The forkserver: a process that has imported what every actor needs, and forks one per request.

Its own process, so that no ZeroMQ context, gRPC channel or thread of the supervisor's is ever copied. What it opens
itself is closed before its first fork, but for a pair of sockets (actors._base.process.listener_store). It takes
requests and reports exits on one inherited SOCK_SEQPACKET socket, and ends when the supervisor does.

Packets are msgpack arrays. To here: init, a map, once; [fork, name, incarnation]; [settings, bytes], which every later
fork gets.
From here: [loaded, {module: error}], [forked, name, incarnation, pid] with a pidfd, [failed, name, incarnation, error],
[exited, pid, wait status].
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
from supervisor.process import prefork_heap

PACKET_BYTES = 256 * 1024
CRASHED = 70
"""EX_SOFTWARE of sysexits.h, as actors._base has it."""
COMMON = (
    "zmq",
    "msgpack",
    "msgspec",
    "pykka",
    "actors._base.process.lean",
    "google.protobuf.message",
    "proto.wire.codec",
    "proto.agent.actor",
    "proto.agent.supervisor",
    "proto.v1",
    "proto.cri.api_pb2",
    "actors._base.process.child",
    "actors._cri",
)
"""Imported once here instead of in every child: the pages are shared, the import time is not part of a restart."""

IN_A_CLUSTER = (
    "yaml",
    "actors._kube.client",
    "actors._kube.watch",
    "actors.config.sources.api",
    "actors.events.sending",
    "actors.objects.api.source",
    "actors.status.api_sync",
)
"""With a kubeconfig: what actors import only then, and what would be part of each restart."""

log = logging.getLogger(__name__)
ChildMain = Callable[[str, int, Settings, int], NoReturn]


class Init(msgspec.Struct, frozen=True, kw_only=True):
    """The first packet."""

    settings: Settings
    preload: tuple[str, ...]
    entry: str
    """`module:function` of the child's main. A function `prepare(settings)` of that module is called before the first
    fork: what it leaves in memory is shared."""


def preload(modules: tuple[str, ...]) -> dict[str, str]:
    """Import each; what went wrong by module. A module that cannot be imported is its actor's trouble, not ours."""
    errors: dict[str, str] = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # SystemExit of a careless module included
            errors[name] = f"{type(error).__name__}: {error}"
    return errors


def prepare(entry: str, settings: Settings) -> None:
    """Call the entry's `prepare`, if it has one. Should it fail, children can be forked; they only are larger."""
    try:
        function = getattr(importlib.import_module(entry.partition(":")[0]), "prepare", None)
        if function is not None:
            function(settings)
    except Exception:
        log.exception("cannot prepare what actors share; each of them needs more memory")


class ForkServer:
    """The loop. `supervisor` is a pidfd of the parent, readable once it is gone; children inherit it."""

    def __init__(self, sock: socket.socket, supervisor: int, wakeup: tuple[int, int], init: Init) -> None:
        self._sock = sock
        self._supervisor = supervisor
        self._wakeup = wakeup
        self._init = init

    def run(self) -> None:
        """Serve until the supervisor is gone."""
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
                logs.setup("forkserver", settings.verbosity, settings.log_format)
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
        pidfd = os.pidfd_open(pid)  # not reaped before we do it, so the pid is still its own
        try:
            socket.send_fds(self._sock, [msgpack.packb(["forked", name, incarnation, pid])], [pidfd])
        finally:
            os.close(pidfd)

    def _become(self, name: str, incarnation: int) -> NoReturn:
        """Be the child: nothing of the forkserver's stays but the imports and the supervisor's pidfd."""
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
        """The death record of a child whose own main cannot even be found, or let an exception out."""
        with contextlib.suppress(OSError):
            os.write(2, indented(text).encode(errors="backslashreplace"))
            path = Path(self._init.settings.run_dir, "deaths", f"{name}-{incarnation}.txt")
            path.write_text(text, errors="backslashreplace")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._send(["exited", pid, status])

    def _send(self, packet: list[Any]) -> None:
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # the supervisor is gone: seen in the next poll
            self._sock.send(msgpack.packb(packet))


def _watch_supervisor(expected_pid: int) -> int:
    """A pidfd of the supervisor. Exits when it died before we looked: its pid may be another process's by then."""
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
    gc.disable()  # until there are children: what is imported stays
    init: Init = msgspec.msgpack.decode(sock.recv(PACKET_BYTES), type=Init)
    logs.setup("forkserver", init.settings.verbosity, init.settings.log_format)
    wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakeup[1], warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    errors = preload(init.preload)
    # The cache of looked-up attributes holds references, which children give back as they fill it: what imports left in
    # it goes before it is filled with what children look up.
    sys._clear_type_cache()
    prepare(init.entry, init.settings)
    prefork_heap.fill()
    gc.freeze()
    server = ForkServer(sock, supervisor, wakeup, init)
    sock.send(msgpack.packb(["loaded", errors]))
    server.run()
