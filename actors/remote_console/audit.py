"""The audit log of remote consoles: a JSON line for each connection and command, in two files of at most 4 MiB."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from proto.common import logs, rfc3339
from proto.common.safe_text import one_line
from proto.common.secret_names import redacted
from proto.common.token_bucket import TokenBucket
from proto.wire.message import Message

log = logging.getLogger(__name__)

NAME, OLDER = "audit.log", "audit.log.1"
MOST_BYTES = 4 << 20
MOST_DETAIL = 300
UNKNOWN_PER_S, UNKNOWN_BURST = 1 / 60, 20
"""Entries of connections without a key: at any rate of theirs, both files have room for weeks."""


class Audit:
    """Appends entries. A full disk costs entries, which the log has, too.

    Everyone may connect without a key. So these entries are limited and the rest counted: they displace no others.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._unknown = now, TokenBucket(UNKNOWN_PER_S, UNKNOWN_BURST)
        self._left_out = 0
        self._path, self._older = folder / NAME, folder / OLDER
        self._fd = -1
        self._size = 0
        self._refused = logs.Limited(log)

    def connection(self, address: str, what: str, key: str = "", role: str = "") -> None:
        """A connection was accepted, refused or ended. Refusals can come at any rate, so that the log is limited."""
        self._refused.log(logging.INFO, "console at %s: %s%s", address, f"{key}: " if key else "", one_line(what))
        if not key:
            self.summarize()
            if self._left_out or not self._unknown.try_take(self._now()):
                self._left_out += 1
                return
        self._write(key=key, role=role, address=address, command="", result=what)

    def summarize(self) -> None:
        """Write the count of entries that were left out, as soon as their rate allows an entry."""
        if self._left_out and self._unknown.try_take(self._now()):
            self._write_left_out()

    def _write_left_out(self) -> None:
        what = f"{self._left_out} more entries of connections without a key were left out"
        self._left_out = 0
        self._write(key="", role="", address="", command="", result=what)

    def command(self, key: str, role: str, address: str, command: str, result: str, took_ms: float) -> None:
        """A command is over."""
        log.info("console %s (%s) at %s: %s: %s", key, role, address, command, one_line(result))
        self._write(key=key, role=role, address=address, command=command, result=result, ms=round(took_ms, 1))

    def _write(self, **entry: Any) -> None:
        line = msgspec.json.encode({"time": rfc3339.now(), **entry}) + b"\n"
        try:
            if self._fd < 0 or self._size + len(line) > MOST_BYTES:
                self._open()
            self._size += os.write(self._fd, line)
        except OSError as error:
            self._refused.log(logging.ERROR, "cannot write %s: %s", self._path, error.strerror)

    def _open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > MOST_BYTES * 3 // 4:
            self._path.replace(self._older)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Write the count of what was left out, and close the file."""
        if self._left_out:
            self._write_left_out()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def described(target: str, type_name: str, message: Message | None) -> str:
    """A command as one line: target, type and the fields without secrets."""
    fields = redacted(msgspec.to_builtins(message, builtin_types=(bytes,))) if message is not None else {}
    text = msgspec.json.encode(fields).decode() if fields else ""
    return one_line(f"{target} {type_name} {text}".strip())[:MOST_DETAIL]
