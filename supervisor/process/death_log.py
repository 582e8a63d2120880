"""The log of deaths: RUN_DIR/deaths/log, a line of JSON for each death or hang, also of former supervisors.

It is bounded: past `MAX_BYTES` its older half goes. A full disk costs entries, never a restart.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from proto.common import untrusted

log = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
NAME = "log"
_MAX_TEXT = 2000


class Death(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One end that was not requested."""

    time: float
    """Unix seconds."""
    actor: str
    incarnation: int
    cause: str
    """crash, hung, killed, memory, fork or lost."""
    reason: str
    stall: str = ""
    """Of a hang: its kind, as `supervisor.process.stalls` names it."""
    call: str = ""
    """The message in its handler."""
    waits: tuple[str, ...] = ()
    """Calls in flight, the longest first."""
    evidence: str = ""
    """The path of the record."""
    degraded: bool = False
    """The actor is past its restart intensity since."""


def append(directory: Path, death: Death) -> None:
    """Add a line."""
    path = directory / NAME
    death = msgspec.structs.replace(death, reason=_plain(death.reason)[:_MAX_TEXT], call=_plain(death.call)[:200])
    try:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MAX_BYTES:
                _halve(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, msgspec.json.encode(death) + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        log.error("cannot write %s: %s; free space there", path, error.strerror)


def _plain(text: str) -> str:
    """The text with escapes for bytes that are not UTF-8, as in names of files: JSON has none."""
    return text.encode(errors="backslashreplace").decode()


def _halve(path: Path) -> None:
    lines = path.read_bytes()[-MAX_BYTES // 2 :].partition(b"\n")[2]
    new = path.with_name(f".{NAME}.{os.getpid()}")
    new.write_bytes(lines)
    new.replace(path)


def read(directory: Path) -> list[Death]:
    """All entries, oldest first; none without a log. A line that is cut or damaged is left out. Raises OSError."""
    try:
        fd = os.open(directory / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    with open(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - 2 * MAX_BYTES))
        content = file.read(2 * MAX_BYTES)
    found = []
    for line in content.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            found.append(untrusted.decode_json(line, Death))
    return found
