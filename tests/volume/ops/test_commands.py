"""Programs and system calls that a volume helper runs in children."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.volume.ops import commands
from tests.harness import alive, wait_for

FAR_S = 60.0


def by_program(made: Path) -> None:
    commands.run(["touch", str(made)], FAR_S, lambda *_: None)


def by_call(made: Path) -> None:
    commands.call(made.touch, FAR_S, lambda *_: None)


@pytest.mark.parametrize("work", [by_program, by_call])
def test_child_of_a_helper_that_died_at_once_does_nothing(
    work: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, made, gate = tmp_path / "child", tmp_path / "made", os.pipe()
    set_death_signal = commands._set_death_signal

    def late(*helper: int) -> None:
        child.write_text(str(os.getpid()))
        os.read(gate[0], 1)
        set_death_signal(*helper)

    monkeypatch.setattr(commands, "_set_death_signal", late)
    helper = os.fork()
    if helper == 0:
        try:
            work(made)
        finally:
            os._exit(1)
    pid = int(wait_for(lambda: child.exists() and child.read_text(), what="the child has begun"))
    os.kill(helper, signal.SIGKILL)
    os.waitpid(helper, 0)
    os.write(gate[1], b"x")
    wait_for(lambda: not alive(pid), what="the child has ended")
    assert not made.exists()
    for descriptor in gate:
        os.close(descriptor)
