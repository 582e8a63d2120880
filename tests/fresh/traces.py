"""Traces of a command in a fresh machine: all that is there after it and was not before."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from tests.fresh.machine import Machine

_PLACES = ("tmp", "run", "var/tmp", "var/log", "dev/shm")


class Traces(NamedTuple):
    """A machine's state at one time, each part as texts for people."""

    processes: frozenset[str]
    mounts: frozenset[str]
    interfaces: frozenset[str]
    cgroups: frozenset[str]
    files: frozenset[str]

    @classmethod
    def of(cls, machine: Machine) -> Traces:
        return cls(
            frozenset(_processes(machine)),
            frozenset(_mounts(machine)),
            frozenset(_interfaces(machine)),
            frozenset(machine.cgroups.made_inside()),
            frozenset(_files(machine)),
        )

    def since(self, before: Traces) -> dict[str, list[str]]:
        """New things by kind; empty where there are none."""
        pairs = zip(self._fields, self, before, strict=True)
        return {kind: sorted(now - then) for kind, now, then in pairs if now - then}


def _processes(machine: Machine) -> list[str]:
    """Pids and command lines of all processes that were started there. Zombies count: the first one reaps orphans."""
    namespace = os.readlink(f"/proc/{machine.pid}/ns/pid")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in machine.own_pids:
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/pid") == namespace:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    found.append(f"{entry.name} {' '.join(words).strip() or (entry / 'comm').read_text().strip()}")
    return found


def _mounts(machine: Machine) -> list[str]:
    lines = Path(f"/proc/{machine.pid}/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines]


def _interfaces(machine: Machine) -> list[str]:
    lines = Path(f"/proc/{machine.pid}/net/dev").read_text().splitlines()[2:]
    return [line.partition(":")[0].strip() for line in lines]


def _files(machine: Machine) -> list[str]:
    found = []
    for place in _PLACES:
        for path, directories, files in os.walk(machine.root / place):
            shown = "/" + os.path.relpath(path, machine.root)
            found += [f"{shown}/{name}" for name in (*directories, *files)]
    return found
