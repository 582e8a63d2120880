"""A file that is replaced as a whole, by threads whose order is not that of their data."""

from __future__ import annotations

import contextlib
import errno
import os
import threading

from actors._host.files.checkpoint import sync_directory


class NumberedFile:
    """The file at `path`. `write` may be called from any thread.

    Others may write to its directory: a link under the temporary file's name is removed, not followed.
    """

    def __init__(self, path: str, most_bytes: int, *, mode: int = 0o600) -> None:
        """`most_bytes`: what its reader accepts."""
        self.path, self.most_bytes, self._mode = path, most_bytes, mode
        self._lock = threading.Lock()
        self._written = 0

    def write(self, number: int, content: bytes) -> None:
        """Replace the file, unless content of the same or a higher number is written.

        A kill leaves the old or the new file. Blocks until it is on the disk. Raises OSError, and EFBIG for content
        that the next incarnation could not read; the old file stays.
        """
        if len(content) > self.most_bytes:
            raise OSError(errno.EFBIG, f"{len(content)} bytes are more than {self.most_bytes}", self.path)
        with self._lock:
            if number > self._written:
                _replace(self.path, content, self._mode)
                self._written = number


def _replace(path: str, content: bytes, mode: int) -> None:
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(directory)
