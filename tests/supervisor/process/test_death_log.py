"""The log of deaths on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.process import death_log, evidence
from supervisor.process.death_log import Death
from supervisor.process.deaths import Deaths
from supervisor.process.stalls import Stall


def death(number: int, reason: str = "killed by SIGKILL") -> Death:
    return Death(time=1.5, actor="volume", incarnation=number, cause="killed", reason=reason, waits=("ask actor/x Y",))


def test_entries_are_read_in_order(tmp_path: Path) -> None:
    for number in range(3):
        death_log.append(tmp_path, death(number))
    assert death_log.read(tmp_path) == [death(number) for number in range(3)]


def test_cut_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    death_log.append(tmp_path, death(1))
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"time": 1}\n' + b"[" * 5000 + b"\n\xff\n" + b'{"actor": "vol')
    assert death_log.read(tmp_path) == [death(1)]


def test_log_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    for number in range(1500):
        death_log.append(tmp_path, death(number, "x" * 5000))
    assert (tmp_path / "log").stat().st_size <= death_log.MAX_BYTES + 4096
    found = death_log.read(tmp_path)
    assert found[-1].incarnation == 1499
    assert len(found[0].reason) == 2000
    assert [one.incarnation for one in found] == list(range(found[0].incarnation, 1500))


def test_failed_fork_is_named(tmp_path: Path) -> None:
    deaths = Deaths(tmp_path)
    deaths.record(death(1, "cannot be forked: [Errno 11] Resource temporarily unavailable"))
    assert [one.stall for one in death_log.read(tmp_path)] == ["fork-failing"]


def test_log_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "other")
    death_log.append(tmp_path, death(1))
    death_log.append(tmp_path / "missing", death(1))
    assert not (tmp_path / "other").exists()


def test_evidence_with_bytes_that_are_no_text_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stall = Stall("lock", "it waits for a lock of /x\udcff")
    monkeypatch.setattr(evidence, "finish", lambda *_: (stall, stall.text))
    begun = evidence.begin(tmp_path, os.getpid(), "volume")
    path, _ = Deaths(tmp_path).write_evidence("volume", 1, os.getpid(), "hangs", None, begun)
    assert "a lock of /x\\udcff" in Path(path).read_text()
