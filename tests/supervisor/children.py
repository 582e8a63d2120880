"""Well-behaved children and children that misbehave on purpose, selected by the actor's name.

They speak the child's side of the contract and need nothing of actors/.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import setproctitle
import zmq

from proto.agent.actor import Dumped, MemoryUse, Pong, TypeUse
from proto.agent.settings import Settings
from proto.agent.supervisor import Ready
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.message import Message

MAILBOX = {"grows": 0}
"""Messages that wait, by the kind of the child; else 3."""


class Child:
    """A minimal actor process: inbox, control, the supervisor's pidfd."""

    def __init__(self, name: str, incarnation: int, settings: Settings, supervisor_pidfd: int) -> None:
        self.name, self.incarnation, self.settings = name, incarnation, settings
        self.supervisor_pidfd = supervisor_pidfd
        self.stopping = False
        setproctitle.setproctitle(f"supervisor: {name}")
        signal.signal(signal.SIGTERM, self._terminate)
        stacks = Path(settings.run_dir, "deaths", f"{name}-{incarnation}.stacks")
        faulthandler.register(signal.SIGUSR2, os.open(stacks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        self.context = zmq.Context()
        self.inbox = self.context.socket(zmq.ROUTER)
        self.inbox.bind(f"ipc://{settings.run_dir}/{name}.sock")
        self.control = self.context.socket(zmq.DEALER)
        self.control.set(zmq.LINGER, 100)
        self.control.connect(f"ipc://{settings.run_dir}/control.sock")

    def _terminate(self, *_: object) -> None:
        self.stopping = True

    def report_ready(self, pid: int | None = None, incarnation: int | None = None) -> None:
        header = codec.encode_header(Kind.TELL, "Ready", self.name, incarnation or self.incarnation)
        self.control.send_multipart([header, codec.encode(Ready(pid=pid or os.getpid()))])

    def wait_until_known(self) -> None:
        """Until the supervisor has saved this process, which it does once it knows of the fork."""
        state = Path(self.settings.run_dir, "state.json")
        while json.loads(state.read_text())["actors"].get(self.name, {}).get("pid") != os.getpid():
            time.sleep(0.01)

    def serve(self) -> NoReturn:
        poller = zmq.Poller()
        poller.register(self.inbox, zmq.POLLIN)
        poller.register(self.supervisor_pidfd, zmq.POLLIN)
        while not self.stopping:
            ready = dict(poller.poll(50))
            if self.supervisor_pidfd in ready:
                os._exit(0)
            if self.inbox in ready:
                self._handle(*self.inbox.recv_multipart())
        os._exit(0)

    def _handle(self, identity: bytes, head: bytes, _body: bytes) -> None:
        header = codec.decode_header(head)
        if header.type == "Stop":
            self.stopping = True
        elif header.type == "Ping":
            self._answer(identity, header.correlation, Pong(mailbox=MAILBOX.get(self.name.partition("_")[0], 3)))
        elif header.type == "Dump":
            self._answer(identity, header.correlation, Dumped(in_flight="SomeMessage", mailbox_head=("Ping",)))

        elif header.type == "GetMemory":
            use = MemoryUse(types=(TypeUse(type="bytearray", count=1, kib=GROWN_MIB * 1024),), objects=7, examined=7)
            self._answer(identity, header.correlation, use)

    def _answer(self, identity: bytes, correlation: int, message: Message) -> None:
        header = codec.encode_header(Kind.REPLY, type(message).__name__, self.name, self.incarnation, correlation)
        self.inbox.send_multipart([identity, header, codec.encode(message)])

    def crash(self, text: str) -> NoReturn:
        record = Path(self.settings.run_dir, "deaths", f"{self.name}-{self.incarnation}.txt")
        record.write_text(f"Traceback (most recent call last):\n  ...\n{text}\n")
        os._exit(70)


GROWN_MIB = 64


class Grows(Child):
    """Its memory grows with its first heartbeat, in the first incarnation."""

    grown = bytearray()

    def _handle(self, identity: bytes, head: bytes, body: bytes) -> None:
        if self.incarnation == 1 and codec.decode_header(head).type == "Ping" and not self.grown:
            self.grown = bytearray(os.urandom(1024 * 1024) * GROWN_MIB)
        super()._handle(identity, head, body)


class MailboxHangs(Child):
    """Its I/O thread answers, its mailbox does not."""

    def _handle(self, identity: bytes, head: bytes, _body: bytes) -> None:
        if codec.decode_header(head).type != "Ping":
            super()._handle(identity, head, _body)


def main(name: str, incarnation: int, settings: Settings, supervisor_pidfd: int) -> NoReturn:
    """Behave as the part of the name before the first `_` says."""
    kind = name.partition("_")[0]
    if kind == "exits":
        os._exit(int(name.partition("_")[2]))
    kinds = {"mailboxhangs": MailboxHangs, "grows": Grows}
    child = kinds.get(kind, Child)(name, incarnation, settings, supervisor_pidfd)
    match kind:
        case "crashes":
            child.crash("KeyError: 'x'")
        case "readythencrashes":
            child.report_ready()
            time.sleep(0.02)
            child.crash("ValueError: later")
        case "neverready":
            child.serve()
        case "hangs":  # hangs as a whole, I/O thread too
            child.report_ready()
            while True:
                time.sleep(60)
        case "ignoresterm":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child.report_ready()
            while True:
                time.sleep(60)
        case "impostor":
            child.wait_until_known()  # of reports that come before that of the fork, the last one counts
            child.report_ready(incarnation=incarnation + 100)
            child.report_ready(pid=os.getpid() + 1)
            child.report_ready()
        case "onlyfirst":  # well the first time, then it exits at once
            if incarnation > 1:
                sys.exit(3)
            child.report_ready()
        case _:
            child.report_ready()
    child.serve()
