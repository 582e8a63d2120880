"""A FUSE file system that is mounted, takes every request and never answers one: a storage server that died.

Whoever asks it anything hangs in the kernel, where not even SIGKILL reaches, until `close`.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import threading
from pathlib import Path

from actors._host import mounts

FUSE_INIT = 26
_REQUEST = struct.Struct("<IIQQIIII")  # len, opcode, unique, nodeid, uid, gid, pid, padding
_ANSWER = struct.Struct("<IiQ")  # len, error, unique
_INIT = struct.Struct("<IIIIHHIIHHI7I")  # major, minor, readahead, flags, background, congestion, write, time, ...


class DeadFuse:
    """Mounted on a directory that is made for it. Use with contextlib.closing."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory
        self.asked = threading.Event()
        """Somebody waits for an answer."""
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
            opcode, unique = _REQUEST.unpack_from(request)[1:3]
            if opcode != FUSE_INIT:
                self.asked.set()
                continue
            body = _INIT.pack(7, 31, 0, 0, 12, 9, 4096, 1, 1, 0, 0, *[0] * 7)
            os.write(self._fd, _ANSWER.pack(_ANSWER.size + len(body), 0, unique) + body)

    def close(self) -> None:
        """Unmount, and let go of whoever hangs."""
        subprocess.run(["umount", "-l", self.path], check=True)
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._fd)
        os.close(self._end)
