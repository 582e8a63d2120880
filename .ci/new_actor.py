"""Writes a new actor: `make new-actor NAME=disk_health PURPOSE="watches disks"`. CONTRIBUTING.md walks through it.

New are `actors/NAME` (actor.py, policy.py), its messages in `proto/node/NAME.py` and tests that pass. Entries are added
to the registry, the protocol page, README's table and the table of test folders. Nothing is written if one exists.
"""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from pathlib import Path
from string import Template

CLONE = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
USAGE = 'usage: make new-actor NAME=disk_health PURPOSE="watches disks"'

FILES = {
    "actors/$name/__init__.py": '"""The $name actor: $purpose."""\n',
    "actors/$name/policy.py": '''"""Decisions of the $name actor. Pure: values and time in, decisions out."""

from __future__ import annotations

PERIOD_S = 10.0


def is_late(last_s: float, now_s: float) -> bool:
    """Whether a look is overdue by more than a period. Both times are monotonic, in seconds."""
    return now_s - last_s > 2 * PERIOD_S
''',
    "actors/$name/actor.py": '''"""The $name actor: $purpose."""

from __future__ import annotations

import time
from typing import Any

from actors._base import Actor, handles
from actors.$name import policy
from proto.common.until import Until
from proto.node.$name import Looks, ListLooks


class $kind(Actor):
    """State: the number and time of its looks, which a new incarnation counts from zero."""

    name = "$name"

    async def rebuild(self) -> None:
        """Start without a look."""
        self._looks = 0
        self._last_s = time.monotonic()

    def on_ready(self) -> None:
        """Look once at the start, then each period."""
        self.every(Until(policy.PERIOD_S), self._check, "check")

    def _check(self) -> None:
        self._looks += 1
        self._last_s = time.monotonic()

    def describe(self) -> dict[str, Any]:
        """The state for `supervisor describe $name`."""
        return {"looks": self._looks, "late": policy.is_late(self._last_s, time.monotonic())}

    @handles(ListLooks)
    def list_looks(self, _: ListLooks) -> Looks:
        """Answer with the number of looks."""
        return Looks(count=self._looks)


ACTOR = $kind
''',
    "proto/node/$name.py": '''"""Messages of the $name actor."""

from __future__ import annotations

from proto.wire.message import Message, Request


class Looks(Message, frozen=True, kw_only=True):
    """Answers ListLooks."""

    count: int
    """Looks of this incarnation."""


class ListLooks(Request[Looks], frozen=True, kw_only=True):
    """Ask how often the actor has looked. A repeat is harmless."""
''',
    "tests/$name/__init__.py": "",
    "tests/$name/test_actor.py": '''"""The $name actor as a process."""

from __future__ import annotations

from proto.node.$name import ListLooks
from tests.harness import ActorProcess, wait_for


def test_it_looks_and_counts_again_after_a_restart() -> None:
    with ActorProcess("$name") as actor:
        wait_for(lambda: actor.ask(ListLooks()).count)
        actor.kill()
        actor.start()
        wait_for(lambda: actor.ask(ListLooks()).count == 1)
''',
    "tests/$name/pure/__init__.py": "",
    "tests/$name/pure/test_policy.py": '''"""Decisions of the $name actor."""

from __future__ import annotations

import pytest

from actors.$name import policy


@pytest.mark.parametrize(("last_s", "now_s", "late"), [(0.0, 1.0, False), (0.0, 20.0, False), (0.0, 20.5, True)])
def test_look_is_late_after_two_periods(last_s: float, now_s: float, late: bool) -> None:
    assert policy.is_late(last_s, now_s) == late
''',
}


def refuse(problem: str) -> None:
    """End with a line for people."""
    sys.exit(f"cannot write a new actor: {problem}")


def insert(path: str, before: str, line: str) -> None:
    """Add a line in front of the first line that begins with `before`."""
    file = CLONE / path
    text = file.read_text(encoding="utf-8")
    place = text.find(f"\n{before}")
    if place < 0:
        refuse(f"{path} has no line that begins with {before!r}; add this one yourself: {line}")
    file.write_text(f"{text[: place + 1]}{line}\n{text[place + 1 :]}", encoding="utf-8")


def main(name: str, purpose: str) -> None:
    """Write the files and entries of one actor."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        refuse(f"{name!r} is not a module name: lower case letters, digits and _, at most 32; {USAGE}")
    if '"' in purpose or "\n" in purpose or len(purpose) > 80:
        refuse("PURPOSE is one line of at most 80 characters without quotes")
    words = {"name": name, "purpose": purpose, "kind": "".join(part.capitalize() for part in name.split("_"))}
    files = {CLONE / Template(path).substitute(words): Template(text).substitute(words) for path, text in FILES.items()}
    for taken in (*files, CLONE / f"proto/pods/{name}.py", CLONE / f"proto/agent/{name}.py"):
        if taken.exists():
            refuse(f"{taken.relative_to(CLONE)} exists; choose another NAME")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    insert("proto/agent/registry.py", '    Entry("server"', f'    Entry("{name}", "node", "{purpose}"),')
    insert("proto/README.md", "| node | ", f"| {name} | `node/{name}.py` | command line: ListLooks |")
    for folder, marker in ((name, "PROCESS"), (f"{name}/pure", "PURE")):
        insert("tests/suite/markers.py", "}", f'    "{folder}": {marker},')
    subprocess.run([sys.executable, "-m", "tests.pages"], cwd=CLONE, check=True)
    for step in (("check", "--fix", "-q"), ("format", "-q")):
        subprocess.run([sys.executable, "-m", "ruff", *step, "actors", "proto", "tests"], cwd=CLONE, check=True)
    print(f"New: actors/{name}, proto/node/{name}.py, tests/{name}. Changed: registry, pages, table of test folders.")
    print(f"Next: make check PACKAGE=actors/{name}; then write what it does. CONTRIBUTING.md says how.")


if __name__ == "__main__":
    main(*(sys.argv[1:3] if len(sys.argv) == 3 else ("", "")))
