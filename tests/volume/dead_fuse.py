"""A FUSE file system that is mounted, takes every request and never answers one: a storage server that died.

A process that calls it hangs in the kernel, beyond SIGKILL, until `close` or until the file system answers again. Then
it is an empty directory.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import threading
from contextlib import suppress
from errno import ENOENT, ENOSYS
from pathlib import Path

from actors._host.files import mounts

LOOKUP, FORGET, GETATTR, STATFS, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS = 1, 2, 3, 17, 26, 27, 28, 29, 34
INTERRUPT, BATCH_FORGET = 36, 42
_REQUEST = struct.Struct("<IIQQIIII")  # len, opcode, unique, nodeid, uid, gid, pid, padding
_ANSWER = struct.Struct("<IiQ")  # len, error, unique
_INIT = struct.Struct("<IIIIHHIIHHI7I")  # major, minor, readahead, flags, background, congestion, write, time, ...
_ATTR = struct.Struct("<QIIQQQQQQIIIIIIIIII")  # valid, nsec, -, ino, size, blocks, 3 times, 3 nsec, mode, nlink, ...
_NO_ANSWER = frozenset({FORGET, INTERRUPT, BATCH_FORGET})
_BODIES = {
    INIT: _INIT.pack(7, 31, 0, 0, 12, 9, 4096, 1, 1, 0, 0, *[0] * 7),
    GETATTR: _ATTR.pack(0, 0, 0, 1, *[0] * 8, 0o40755, 2, *[0] * 5),
    STATFS: bytes(80),
    OPENDIR: bytes(16),
    READDIR: b"",
    RELEASEDIR: b"",
    ACCESS: b"",
}
_FOUND = struct.pack("<5Q", 2, *[0] * 4) + _BODIES[GETATTR][16:]  # node ID, valid for no time


class DeadFuse:
    """Mounted on a directory that is made for it. Use with contextlib.closing.

    `holds`: the name of an empty directory in it.
    """

    def __init__(self, directory: Path, *, alive: bool = False, holds: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory
        self.asked = threading.Event()
        """A process waits for an answer."""
        self.askers: dict[int, str] = {}
        """Command lines by PID of the processes that called while it was dead."""
        self._alive = alive
        self._name = holds.encode()
        self._held: list[tuple[int, int, bytes]] = []
        self._lock = threading.Lock()
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._end = os.eventfd(0)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        mounts.mount("dead", str(directory), "fuse", options)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._end not in select.select([self._fd, self._end], [], [])[0]:
            try:
                request = os.read(self._fd, 1 << 20)
            except OSError:
                return
            _, opcode, unique, _, _, _, pid, _ = _REQUEST.unpack_from(request)
            name = request[_REQUEST.size :].rstrip(b"\0") if opcode == LOOKUP else b""
            with self._lock:
                if self._alive or opcode == INIT:
                    self._answer(opcode, unique, name)
                elif opcode not in _NO_ANSWER:
                    self._held.append((opcode, unique, name))
                    self._note(pid)
                    self.asked.set()

    def _note(self, pid: int) -> None:
        with suppress(OSError):
            self.askers[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()

    def _answer(self, opcode: int, unique: int, name: bytes) -> None:
        if opcode in _NO_ANSWER:
            return
        body = _FOUND if name and name == self._name else _BODIES.get(opcode)
        error = 0 if body is not None else ENOENT if opcode == LOOKUP else ENOSYS
        with suppress(OSError):  # who asked has gone meanwhile
            os.write(self._fd, _ANSWER.pack(_ANSWER.size + len(body or b""), -error, unique) + (body or b""))

    def die(self) -> None:
        """Stop answering."""
        with self._lock:
            self._alive = False

    def leave(self) -> None:
        """Take no more requests: a process that calls it can still be killed. Only `close` follows."""
        os.eventfd_write(self._end, 1)
        self._thread.join()

    def revive(self) -> None:
        """Answer all requests, also pending ones."""
        with self._lock:
            self._alive = True
            while self._held:
                self._answer(*self._held.pop())

    def close(self) -> None:
        """Unmount, and release hanging processes."""
        subprocess.run(["umount", "-l", self.path], check=True)
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._fd)
        os.close(self._end)
