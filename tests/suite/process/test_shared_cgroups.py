"""Cgroups that instances of several test processes share go with the last one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.containerd.host import leftovers, shared_cgroups
from tests.containerd.host.shared_cgroups import CONTAINERD, EMBEDDED, SharedCgroup

OTHER = """
import sys
from tests.containerd.host import shared_cgroups
shared_cgroups._PLACES[shared_cgroups.EMBEDDED] = sys.argv[1]
held = shared_cgroups.SharedCgroup(shared_cgroups.EMBEDDED)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of cgroups that were deleted, in the place of the machine's."""
    names: list[str] = []
    (tmp_path / "other").mkdir()
    places = {EMBEDDED: str(tmp_path), CONTAINERD: str(tmp_path / "other")}
    monkeypatch.setattr(shared_cgroups, "_PLACES", places)
    monkeypatch.setattr(leftovers, "delete_empty_cgroups", names.append)
    return names


def test_last_instance_deletes_shared_cgroups(deleted: list[str]) -> None:
    one, two, other = SharedCgroup(EMBEDDED), SharedCgroup(EMBEDDED), SharedCgroup(CONTAINERD)
    one.close()
    assert deleted == []
    two.close()
    assert deleted == [EMBEDDED], "not what another runtime on this machine may use"
    other.close()
    assert deleted == [EMBEDDED, CONTAINERD]


def test_instance_of_another_process_keeps_shared_cgroups(deleted: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", OTHER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        SharedCgroup(EMBEDDED).close()
        assert deleted == []
        other.kill()
    SharedCgroup(EMBEDDED).close()
    assert deleted == [EMBEDDED]
