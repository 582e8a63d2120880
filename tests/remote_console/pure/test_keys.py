"""The files of keys: added, listed, revoked; damaged or hostile ones are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.remote_console import keys
from actors.remote_console.keys import KeyProblem


def test_key_is_added_listed_and_revoked(tmp_path: Path) -> None:
    key = keys.add(tmp_path, "ops", "operate")
    (listed,) = keys.authorized(tmp_path)
    assert (listed.name, listed.role, listed.public) == ("ops", "operate", key.public)
    assert key.server == keys.server_key(tmp_path).public
    assert key.secret not in (tmp_path / keys.KEYS).read_text()
    keys.revoke(tmp_path, "ops")
    assert keys.authorized(tmp_path) == ()


@pytest.mark.parametrize("name", ["", "A", "../x", "a b", "x" * 64, "-x"])
def test_wrong_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(KeyProblem, match="cannot add the key"):
        keys.add(tmp_path, name, "read")


def test_name_is_given_once(tmp_path: Path) -> None:
    keys.add(tmp_path, "ops", "read")
    with pytest.raises(KeyProblem, match="it exists"):
        keys.add(tmp_path, "ops", "debug")


def test_keys_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_KEYS", 2)
    keys.add(tmp_path, "a", "read")
    keys.add(tmp_path, "b", "read")
    with pytest.raises(KeyProblem, match="the most"):
        keys.add(tmp_path, "c", "read")


@pytest.mark.parametrize("content", [b"", b"{", b'{"keys":[{"name":"x"}]}', b"\xff", b"[" * 100_000])
def test_damaged_file_authorizes_no_key(content: bytes, tmp_path: Path) -> None:
    (tmp_path / keys.KEYS).write_bytes(content)
    with pytest.raises(KeyProblem):
        keys.authorized(tmp_path)


def test_client_file_is_private_and_replaces_none(tmp_path: Path) -> None:
    key = keys.add(tmp_path, "ops", "read")
    path = tmp_path / "ops.key"
    keys.write_client(path, key)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert keys.read_client(path) == key
    with pytest.raises(KeyProblem, match="exists"):
        keys.write_client(path, key)
