"""Reads, writes and prunes death records: RUN_DIR/deaths/NAME-INCARNATION.{txt,stacks}.

A crashing child writes its own traceback as .txt. For a child that hangs, the supervisor writes evidence there.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from proto.agent import recording
from proto.agent.actor import Dumped, MemoryUse
from proto.waits import table
from supervisor.process import evidence
from supervisor.process.death_log import Death, append
from supervisor.process.stalls import Stall

log = logging.getLogger(__name__)

MAX_PER_ACTOR = 10
CANNOT_FORK = "cannot be forked"
"""Begin of the reason of an end without a process."""
_MAX_LINE = 300
_FILE = re.compile(r"(?P<name>.+)-(?P<incarnation>\d+)\.(?:txt|stacks)")


class Deaths:
    """The records of one run directory. A full disk costs records, never a restart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._calls: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._stalls: dict[str, Stall] = {}

    def path(self, name: str, incarnation: int) -> Path:
        """The record of an incarnation."""
        return self.directory / f"{name}-{incarnation}.txt"

    def detail(self, name: str, incarnation: int) -> str:
        """A record's last line and its path; empty if there is no record."""
        path = self.path(name, incarnation)
        try:
            lines = path.read_text(errors="replace").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{last[:_MAX_LINE]} (death record {path})"

    def write_evidence(
        self, name: str, incarnation: int, pid: int, why: str, dumped: Dumped | None, begun: evidence.Begun
    ) -> tuple[str, Stall]:
        """Save what a hung child is doing. Returns the file's path, empty if it could not be written, and the stall."""
        path = self.path(name, incarnation)
        stacks = path.with_suffix(".stacks")
        stall, text = evidence.finish(self.directory.parent, pid, name, begun, stacks, dumped)
        self._stalls[name] = stall
        parts = [
            self._head(name, incarnation, pid),
            f"Python stacks: {stacks}\n\n" if stacks.exists() else "Python stacks: none\n\n",
            "In flight, and mailbox head, from its I/O thread:\n",
            msgspec.json.encode(dumped).decode() + "\n\n" if dumped is not None else "no answer\n\n",
            f"{text}\n\n{why}\n",
        ]
        return self._write(path, "".join(parts)), stall

    def write_growth(
        self, name: str, incarnation: int, pid: int, why: str, use: MemoryUse | None, sizes: Iterable[str]
    ) -> str:
        """Save what a child past its memory ceiling consists of. Returns the file's path, empty without one."""
        parts = (self._head(name, incarnation, pid), "\n", evidence.growth(use, sizes), f"\n{why}\n")
        return self._write(self.path(name, incarnation), "".join(parts))

    def _head(self, name: str, incarnation: int, pid: int) -> str:
        when = time.strftime(f"%Y-%m-%dT%H:%M:%S%z {name} incarnation {incarnation} pid {pid}\n")
        return when + self._replay_line(name, incarnation)

    @staticmethod
    def _write(path: Path, text: str) -> str:
        try:
            path.write_text(text, errors="backslashreplace")  # a path of a descriptor may be any bytes
        except OSError as error:
            log.error("cannot save %s: %s", path, error.strerror)
            return ""
        return str(path)

    def in_flight(self, name: str, incarnation: int) -> str:
        """Read the call in flight of an incarnation that has ended, before the next one replaces its wait records."""
        found = table.read(self.directory.parent / "waits" / name)
        self._calls[name] = evidence.in_flight(
            found if found is not None and found.incarnation == incarnation else None
        )
        return self._calls[name][0]

    def record(self, death: Death) -> None:
        """Write a death to the log, with the calls and the stall that were read at its end."""
        _, waits = self._calls.pop(death.actor, ("", ()))
        stall = self._stalls.pop(death.actor, None)
        kind = stall.kind if stall is not None and death.cause == "hung" else ""
        kind = "fork-failing" if death.reason.startswith(CANNOT_FORK) else kind
        if not death.evidence and (path := self.path(death.actor, death.incarnation)).exists():
            death = msgspec.structs.replace(death, evidence=str(path))
        append(self.directory, msgspec.structs.replace(death, waits=waits, stall=kind))

    def _replay_line(self, name: str, incarnation: int) -> str:
        """The command that replays its messages; empty without a recording."""
        path = recording.path_of(str(self.directory.parent), name, incarnation)
        return f"Replay: supervisor replay {name} {path}\n" if path.exists() else ""

    def prune(self, name: str) -> None:
        """Keep the newest `MAX_PER_ACTOR` records of an actor. Drop empty .stacks files, except the newest."""
        found: dict[int, list[Path]] = {}
        with contextlib.suppress(OSError):
            for path in self.directory.iterdir():
                match = _FILE.fullmatch(path.name)
                if match is not None and match["name"] == name:
                    found.setdefault(int(match["incarnation"]), []).append(path)
        older = 0
        for incarnation in sorted(found, reverse=True)[1:]:
            paths = found[incarnation]
            empty = all(path.suffix == ".stacks" and _size(path) == 0 for path in paths)
            older += not empty
            if empty or older >= MAX_PER_ACTOR:
                for path in paths:
                    with contextlib.suppress(OSError):
                        path.unlink()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
