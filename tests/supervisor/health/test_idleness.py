"""Idle actors, and actors that stall, as the supervisor sees them without waking them."""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path

import pytest

from actors._base import Actor
from proto.agent import registry
from proto.agent.actor import Ping
from proto.waits.record import RUNNING, Wait
from proto.waits.table import RUNNING_SLOT, Mailbox, Slots, read_mailbox
from supervisor.health.idleness import is_idle
from tests.harness import wait_for
from tests.supervisor.process.saving import KINDS, stalling
from tests.supervisor.process.stalling import NAME


def test_actor_without_work_is_idle_and_is_not_woken() -> None:
    with stalling("rest") as (run_dir, process):
        wait_for(lambda: is_idle(run_dir, process.pid, NAME), 5)

        def looked_unnoticed() -> bool:
            before = switches(process.pid)
            idle = all(is_idle(run_dir, process.pid, NAME) for _ in range(20))
            return idle and switches(process.pid) == before

        wait_for(looked_unnoticed, 5)  # it may switch for reasons of its own, such as a page that is read


def switches(pid: int) -> list[str]:
    """Of its threads but ZeroMQ's, which look for a supervisor that is not there."""
    texts = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status"))
    own = (text.splitlines() for text in texts if "ZMQ" not in text.partition("\n")[0])
    return [line for lines in own for line in lines if line.startswith("voluntary")]


@pytest.mark.parametrize("kind", KINDS)
def test_actor_that_stalls_is_not_idle(kind: str) -> None:
    with stalling(kind) as (run_dir, process):
        wait_for(lambda: not is_idle(run_dir, process.pid, NAME), 5)
        time.sleep(0.2)
        assert not is_idle(run_dir, process.pid, NAME)


def test_process_without_its_own_records_is_not_idle() -> None:
    with stalling("rest") as (run_dir, process):
        wait_for(lambda: is_idle(run_dir, process.pid, NAME), 5)
        assert not is_idle(run_dir, process.pid + 1, NAME)
        (run_dir / "waits" / NAME).write_bytes(b"short")
        assert not is_idle(run_dir, process.pid, NAME)
        (run_dir / "waits" / NAME).unlink()
        assert not is_idle(run_dir, process.pid, NAME)


def test_mailbox_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a"
    slots = Slots(path, "a", 1, 0)
    assert slots.take() != RUNNING_SLOT
    assert read_mailbox(path) == Mailbox(os.getpid(), 0, 0, handles=False)
    slots.set_mailbox_thread(7)
    slots.write(RUNNING_SLOT, Wait(kind="handler", waiter="actor/a", target=RUNNING, since=0.0))
    slots.arrived(3)
    assert read_mailbox(path) == Mailbox(os.getpid(), 7, 3, handles=True)
    slots.clear(RUNNING_SLOT)
    assert read_mailbox(path) == Mailbox(os.getpid(), 7, 3, handles=False)


def test_actors_with_a_loop_of_their_own_are_never_idle(tmp_path: Path) -> None:
    actors = {entry.name: importlib.import_module(f"actors.{entry.name}.actor").ACTOR for entry in registry.ACTORS}
    own = {name for name, actor in actors.items() if actor._handlers[Ping] != Actor.on_ping.__name__}
    assert own == registry.WITH_LOOP
    assert not any(is_idle(tmp_path, 1, name) for name in own)
