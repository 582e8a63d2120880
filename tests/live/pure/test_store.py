"""The state on disk, with missing and damaged files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from proto.agent.settings import Settings
from supervisor.config.reload import store
from supervisor.config.reload.candidate import Candidate, Entry

GOOD = Candidate(settings=Settings(max_pods=3, cluster_dns=("10.0.0.1",)), digest="d", at_start={"maxOpenFiles": 1})


def test_saved_state_comes_back(tmp_path: Path) -> None:
    saved = store.Saved(flags="f", good=GOOD, trial="t", bad=("x", "y"))
    store.save(str(tmp_path), saved)
    assert store.load(str(tmp_path), "f") == saved


def test_state_of_other_flags_is_ignored(tmp_path: Path) -> None:
    store.save(str(tmp_path), store.Saved(flags="f", good=GOOD))
    assert store.load(str(tmp_path), "g") == store.Saved()


@pytest.mark.parametrize("change", [(b'max_pods":3', b'max_pods":4'), (b'"version":1', b'"version":9'), (b"{", b"")])
def test_damaged_file_counts_as_missing(
    change: tuple[bytes, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(str(tmp_path), store.Saved(flags="f", good=GOOD))
    path = tmp_path / "nodevisor" / store.GOOD
    path.write_bytes(path.read_bytes().replace(*change, 1))
    assert store.load(str(tmp_path), "f") == store.Saved()
    assert "last-known-good.json" in caplog.text


def test_file_of_another_kind_is_read_at_once_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "nodevisor").mkdir()
    for name in (store.GOOD, store.HISTORY):
        os.mkfifo(tmp_path / "nodevisor" / name)
    assert store.load(str(tmp_path), "f") == store.Saved()
    assert "last-known-good.json: [Errno 22] it is no regular file" in caplog.text
    with pytest.raises(OSError, match="it is no regular file"):
        store.history(str(tmp_path))


def test_missing_file_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert store.load(str(tmp_path), "f") == store.Saved()
    assert store.history(str(tmp_path)) == []
    assert not caplog.text


def test_history_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    for number in range(store.MAX_ENTRIES + 5):
        store.append(str(tmp_path), Entry(verdict=str(number)))
    entries = store.history(str(tmp_path))
    assert len(entries) == store.MAX_ENTRIES
    assert entries[-1].verdict == str(store.MAX_ENTRIES + 4)


def test_damaged_history_is_empty(tmp_path: Path) -> None:
    store.append(str(tmp_path), Entry(verdict="one"))
    (tmp_path / "nodevisor" / store.HISTORY).write_bytes(b'[{"verdict"')
    store.append(str(tmp_path), Entry(verdict="two"))
    assert [entry.verdict for entry in store.history(str(tmp_path))] == ["two"]


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    store.save(str(tmp_path), store.Saved(flags="f", good=GOOD))
    assert (tmp_path / "nodevisor" / store.GOOD).stat().st_mode & 0o777 == 0o600
    assert msgspec.json.decode((tmp_path / "nodevisor" / store.GOOD).read_bytes())["version"] == store.VERSION
