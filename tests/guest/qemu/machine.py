"""The qemu process of a guest: its command line, and its control socket (QMP).

https://www.qemu.org/docs/master/interop/qmp-spec.html
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

QEMU = "qemu-system-x86_64"
MEMORY_MIB = 4096
TCG = ("-accel", "tcg,thread=multi", "-cpu", "max,-avx,-avx2,-smap,-smep,-la57,-pku,-erms,-fsrm")
"""Software emulation without what costs time there and gives a guest nothing.

With erms and fsrm the kernel copies and clears memory by string instructions, which are emulated byte by byte.
"""
KVM = ("-accel", "kvm", "-cpu", "host")
_KERNEL = (
    "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.show_status=no {security} "
    "mitigations=off init_on_alloc=0 transparent_hugepage=never"
)
"""The second line saves time under emulation. A huge page there makes each flush of a page one of all pages."""
ADDRESS, GATEWAY = "10.0.2.15/24", "10.0.2.2"
"""Of qemu's own network, in which the guest reaches nothing."""


class CannotStart(Exception):
    """The guest does not start; the message says why."""


class Disks(NamedTuple):
    """Files of a guest."""

    kernel: Path
    initrd: Path
    root: Path
    """qcow2."""
    checkout: Path
    """Raw; always of the same size, for the snapshot's sake."""
    command_line: str
    """The kernel's."""


def kernel(security: str) -> str:
    """The kernel's command line, with these words for its security module."""
    return _KERNEL.format(security=security)


class Machine:
    """A qemu process, from `with` on. It ends with this process, also after a kill."""

    def __init__(self, directory: Path, disks: Disks, acceleration: Sequence[str], port: int) -> None:
        """`directory` gets its socket and logs; `port` of loopback leads to the guest's ssh."""
        self.log = directory / "console.log"
        self._errors = directory / "qemu.log"
        self._control = directory / "control"
        self._command = [
            *("setpriv", "--pdeathsig=KILL", QEMU, "-machine", "q35", "-nodefaults", "-display", "none", "-no-reboot"),
            *acceleration,
            *("-smp", "2", "-m", str(MEMORY_MIB), "-serial", f"file:{self.log}"),
            *("-kernel", str(disks.kernel), "-initrd", str(disks.initrd), "-append", disks.command_line),
            *("-drive", f"file={disks.root},format=qcow2,if=virtio,cache=unsafe,discard=unmap"),
            *("-drive", f"file={disks.checkout},format=raw,if=virtio,cache=unsafe"),
            *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
            *("-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"),
            *("-qmp", f"unix:{self._control},server=on,wait=off"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def boot(self) -> None:
        """Power it on."""
        self._start()

    def resume(self, snapshot: Path, timeout_s: float = 60.0) -> None:
        """Go on where `save` stopped. Raises CannotStart, TimeoutError."""
        self._start("-incoming", f"file:{snapshot}")
        deadline = time.monotonic() + timeout_s
        while self.status() == "inmigrate":
            self._wait(deadline, "the snapshot is not read")
        self.ask("cont")

    def save(self, snapshot: Path, timeout_s: float = 60.0) -> None:
        """Stop it, write its state to a file, and end it. Its disk then belongs to that state."""
        self.ask("stop")
        self.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.ask("migrate", uri=f"file:{snapshot}")
        deadline = time.monotonic() + timeout_s
        while (status := self.ask("query-migrate").get("status")) != "completed":
            if status == "failed":
                raise CannotStart("cannot save the guest's state: qemu's migration failed")
            self._wait(deadline, "the snapshot is not written")
        self.ask("quit")
        self.wait(timeout_s)

    def status(self) -> str:
        """qemu's word for its state: "running", "internal-error". Raises CannotStart once it has ended."""
        return str(self.ask("query-status")["status"])

    @property
    def ended(self) -> bool:
        """True when qemu has ended."""
        return self._process is None or self._process.poll() is not None

    def wait(self, timeout_s: float) -> None:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        if self._process is not None:
            self._process.wait(timeout_s)

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        """The end of what qemu and the guest's console said."""
        texts = [path.read_text(errors="replace") for path in (self._errors, self.log) if path.exists()]
        return "\n".join(text.strip()[-2000:] for text in texts)

    def ask(self, command: str, timeout_s: float = 60.0, **arguments: Any) -> dict[str, Any]:
        """The answer to a QMP command. Raises CannotStart when qemu ended or refuses."""
        deadline = time.monotonic() + timeout_s
        while not self._control.exists():
            self._wait(deadline, "qemu does not listen")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            try:
                connection.connect(str(self._control))
                with connection.makefile("rw") as stream:
                    for line in ("", _request("qmp_capabilities"), _request(command, arguments)):
                        stream.write(line)
                        stream.flush()
                        answer = _answer(stream)
            except OSError as error:
                raise CannotStart(f"qemu has ended ({error}):\n{self.said()}") from error
        if "error" in answer:
            raise CannotStart(f"qemu refuses {command}: {answer['error'].get('desc')}")
        found = answer.get("return")
        return found if isinstance(found, dict) else {}

    def _start(self, *further: str) -> None:
        self._control.unlink(missing_ok=True)
        with self._errors.open("wb") as errors:
            # A session of its own: the Ctrl-C that ends a test run is not for it.
            self._process = subprocess.Popen(
                [*self._command, *further],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def _wait(self, deadline: float, what: str) -> None:
        if self.ended:
            raise CannotStart(f"qemu has ended:\n{self.said()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}:\n{self.said()}")
        time.sleep(0.05)


def _request(command: str, arguments: dict[str, Any] | None = None) -> str:
    return json.dumps({"execute": command, "arguments": arguments or {}}) + "\n"


def _answer(stream: Any) -> dict[str, Any]:
    """The next message that is no event. The greeting of a new connection is one."""
    while line := stream.readline():
        message = json.loads(line)
        if {"return", "error", "QMP"} & message.keys():
            return dict(message)
    raise ConnectionError("the connection is closed")
