"""A process of an actor that stalls: `python -m tests.supervisor.process.stalling RUN_DIR KIND`. It prints `stalls`."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from actors._base import Actor, handles
from actors._base.actor import ActorContext
from actors._base.messaging import waits
from actors._base.messaging.bus import Bus
from actors._cri.client import Cri
from proto.agent.actor import Describe, Ping
from proto.agent.settings import Settings

NAME = "volume"


def stall_busy() -> None:
    while True:
        pass


def stall_read() -> None:
    os.read(os.pipe()[0], 1)


def stall_write() -> None:
    end = os.pipe()[1]
    while True:
        os.write(end, b"x" * 65536)


def stall_lock() -> None:
    lock = threading.Lock()

    def hold() -> None:
        with lock:
            time.sleep(600)

    threading.Thread(target=hold, daemon=True).start()
    while not lock.locked():
        time.sleep(0.01)
    lock.acquire()


def stall_deadlock() -> None:
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with two:
            both.wait()
            one.acquire()

    threading.Thread(target=other, daemon=True).start()
    with one:
        both.wait()
        two.acquire()


def stall_uninterruptible() -> None:
    """The parent of a vfork sleeps uninterruptibly until its child executes a program. The child waits for a FIFO."""
    fifo = f"{sys.argv[1]}/fifo"
    os.mkfifo(fifo)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def stall_sleep() -> None:
    time.sleep(600)


def stall_child() -> None:
    subprocess.run(["sleep", "600"], check=False)  # of this process's group, which the test kills


def stall_cri() -> None:
    path = f"{sys.argv[1]}/cri.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    Cri(f"unix://{path}").version(timeout=600).result()


class Stalling(Actor):
    name = NAME
    asks = frozenset({"objects"})

    async def rebuild(self) -> None:
        """Have an idle thread of the pool: it waits for a lock, but does not stall."""
        await self.blocking(60.0, int)

    def on_ready(self) -> None:
        kind = sys.argv[2]
        if kind == "io":
            self.bus.loop.do(lambda: time.sleep(600))
        elif kind == "flood":
            self.post(self._flood, name="SetPods")
        elif kind == "ask":
            self.post(lambda: self.peer("objects").ask(Describe(), 600).result(), name="MountPod from pod_workers")
        elif kind == "rest":
            self.post(lambda: None, name="PodChanged")  # the thread of the first message is known
        elif kind != "stop":
            stall: Callable[[], None] = globals()[f"stall_{kind}"]
            self.post(stall, name="MountPod from pod_workers")
        print("stalls", flush=True)

    def _flood(self) -> None:
        for _ in range(5000):
            self.post(time.sleep, 0.005, name="PodChanged")

    @handles(Ping)
    def on_ping(self, _: Ping) -> None:  # type: ignore[override]
        return None


def main() -> None:
    run_dir = sys.argv[1]
    Path(run_dir, "deaths").mkdir()
    stacks = os.open(f"{run_dir}/deaths/{NAME}-1.stacks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
    waits.open_table(run_dir, NAME, 1, os.getpid())
    bus = Bus(NAME, 1, run_dir, os.pidfd_open(os.getppid()))
    bus.report_ready = lambda: None  # type: ignore[method-assign]
    Stalling.start(ActorContext(settings=Settings(run_dir=run_dir), bus=bus))
    bus.run()


if __name__ == "__main__":
    main()
