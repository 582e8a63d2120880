"""Sockets of the pod resources API tell whether another node agent has served the root directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from actors._host import other_agent
from actors._host.files import checkpoint
from actors.resources.serving.unix_server import serve


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root directory with a path short enough for sockets."""
    monkeypatch.chdir(tmp_path)
    root = Path("root")
    (root / "pod-resources").mkdir(parents=True)
    return root


def listen_as_kubelet(root: Path, umask: int = 0o022) -> None:
    """Leave a socket as Go's listeners do."""
    path = root / "pod-resources" / "kubelet.sock"
    path.unlink(missing_ok=True)
    before = os.umask(umask)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    finally:
        os.umask(before)


def noted(root: Path) -> str:
    other_agent.note(str(root))
    return other_agent.noted(str(root))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_socket_of_a_kubelet_is_noted(root: Path, umask: int) -> None:
    listen_as_kubelet(root, umask)
    first = noted(root)
    assert first
    os.chmod(root / "pod-resources" / "kubelet.sock", 0o777)
    assert noted(root) == first, "the same one"
    os.unlink(root / "pod-resources" / "kubelet.sock")
    assert noted(root) == first, "it stays noted"
    listen_as_kubelet(root, umask)
    os.utime(root / "pod-resources" / "kubelet.sock", (1, 1))  # in the same tick it may have the same inode, too
    assert noted(root) not in ("", first), "it was started again"


def test_our_own_sockets_are_not_noted(root: Path) -> None:
    path = root / "pod-resources" / "kubelet.sock"
    for mode in (0o600, 0o666, 0o670):
        serve(str(path), str(root / "behind"), ()).stop()
        os.chmod(path, mode)  # an operator lets a monitor connect, also by an ACL
        assert noted(root) == ""


@pytest.mark.parametrize("found", ["nothing", "a file", "a link", "no directory"])
def test_what_is_no_socket_says_nothing(root: Path, found: str) -> None:
    path = root / "pod-resources" / "kubelet.sock"
    if found == "a file":
        path.touch(0o755)
    elif found == "a link":
        listen_as_kubelet(root)
        path.rename(root / "elsewhere")
        path.symlink_to("../elsewhere")
    elif found == "no directory":
        path.parent.rmdir()
    assert noted(root) == ""


def test_note_that_cannot_be_written_is_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "nodevisor").touch()
    listen_as_kubelet(root)
    assert noted(root) == ""
    assert f"cannot write {root}/nodevisor/other-agent.json: " in caplog.text


def test_note_of_another_shape_is_no_agent(root: Path) -> None:
    checkpoint.save(other_agent.path(str(root)), other_agent.VERSION, {"a": 1})
    assert other_agent.noted(str(root)) == ""
