"""The first function of an actor process, called by the forkserver right after the fork."""

from __future__ import annotations

import faulthandler
import functools
import importlib
import logging
import os
import signal
import threading
from collections.abc import Sequence
from typing import NoReturn

import setproctitle

from actors._base import deaths, heap, recording
from actors._base.actor import Actor, ActorContext
from actors._base.messaging import tracing, waits
from actors._base.messaging.bus import Bus
from actors._base.process import listener_store, prefork_heap
from actors._host.files import checkpoint
from proto.agent.settings import Settings
from proto.common import logs
from proto.wire.message import prepare_types

log = logging.getLogger(__name__)

THREAD_STACK_BYTES = 512 * 1024
"""The default of 8 MiB a thread is only address space, but looks like memory use in top."""


def actor_class(name: str) -> type[Actor]:
    """The actor class of `actors/NAME/actor.py`, which its module names ACTOR."""
    found: type[Actor] = importlib.import_module(f"actors.{name}.actor").ACTOR
    return found


def prepare(listeners: Sequence[int]) -> None:
    """Prepare state that children share. The forkserver calls it once, before its first fork.

    `listeners` is the supervisor's socket pair for the listener store; empty for none.
    """
    listener_store.make(listeners)
    prepare_types()  # msgspec crashes when two threads are the first to read one type
    prefork_heap.load_tls()
    prefork_heap.load_checks()
    prefork_heap.load_inotify()
    prefork_heap.fill()


def main(name: str, incarnation: int, settings: Settings, supervisor_pidfd: int) -> NoReturn:
    """Run the actor until it is stopped. Exits with 0 after a stop, 70 after a crash; never returns."""
    setproctitle.setproctitle(f"supervisor: {name}")
    heap.trace_from_now()
    logs.setup(name, settings.verbosity, settings.log_format, settings.vmodule)
    threading.stack_size(THREAD_STACK_BYTES)
    _exclude_memory_from_core_dumps()
    listener_store.close_unless_used_by(name)
    try:
        _open_stacks_file(settings, name, incarnation)
        _start_recorder(settings, name, incarnation)
        _end_with_threads(settings, name, incarnation)
        waits.open_table(settings.run_dir, name, incarnation, os.getpid())
        bus = Bus(name, incarnation, settings.run_dir, supervisor_pidfd)
        bus.end_on(signal.SIGTERM)
        if settings.tracing_endpoint and name != "tracing":
            tell = functools.partial(bus.tell, "tracing")
            tracing.recorder = tracing.Recorder(name, tell, bus.call_later, settings.tracing_sampling_rate_per_million)
        if settings.fault_injection:
            importlib.import_module("actors._faults.injection").install(name, bus, settings.run_dir)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides
        actor_class(name).start(ActorContext(settings=settings, bus=bus))
        code = bus.run()
    except Exception as error:
        _crash(settings, name, incarnation, error)
    os._exit(code)


def _crash(settings: Settings, name: str, incarnation: int, error: BaseException) -> NoReturn:
    if recording.current is not None:
        recording.current.crash(error)
    deaths.crash(settings.run_dir, name, incarnation, error, recording.replay_line(name))


def _end_with_threads(settings: Settings, name: str, incarnation: int) -> None:
    """End the process when an exception ends any of its threads, also one of a library, such as gRPC's serving thread.

    Otherwise the process would go on without the thread's work, and still answer pings.
    """

    def ended(thread: threading.ExceptHookArgs) -> None:
        if thread.exc_value is not None and not isinstance(thread.exc_value, SystemExit):
            _crash(settings, name, incarnation, thread.exc_value)

    threading.excepthook = ended


def _start_recorder(settings: Settings, name: str, incarnation: int) -> None:
    recording.start(settings, name, incarnation)
    if recording.current is not None:
        checkpoint.on_load = recording.current.checkpoint


def _exclude_memory_from_core_dumps() -> None:
    """Keep Secrets, which pass through several actors, out of core files."""
    try:
        # By descriptor: the codec of a text file would take 0.6 MB.
        filter_ = os.open("/proc/self/coredump_filter", os.O_WRONLY)
        try:
            os.write(filter_, b"0")
        finally:
            os.close(filter_)
    except OSError as error:
        log.debug("cannot keep memory out of core files: %s", error)  # a kernel without CONFIG_ELF_CORE makes none


def _open_stacks_file(settings: Settings, name: str, incarnation: int) -> None:
    directory = deaths.record_path(settings.run_dir, name, incarnation).parent
    directory.mkdir(mode=0o700, exist_ok=True)
    stacks = os.open(
        directory / f"{name}-{incarnation}.stacks", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
