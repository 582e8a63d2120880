"""Scopes of containers of the helper, against a fake systemd on a real bus."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cgroup.systemd import units
from actors.runtime.helper import cgroups
from actors.runtime.oci import scopes
from tests.cgroup.process.fake_systemd import FakeSystemd

UNIT = "nodevisor-c.scope"
CGROUP = f"/kubepods.slice/kubepods-podx.slice/{UNIT}"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSystemd]:
    with FakeSystemd(tmp_path) as one:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", one.address)
        yield one


@pytest.mark.needs("dbus-daemon")
def test_scope_is_delegated_and_held_until_the_container_is_there(systemd: FakeSystemd) -> None:
    with scopes.starting(CGROUP, {"memory": {"limit": 64 << 20}}):
        properties = systemd.units[UNIT]
        (pid,) = properties["PIDs"]
        assert Path(f"/proc/{pid}/stat").read_text().split()[3] == str(os.getpid())
    assert not Path(f"/proc/{pid}").exists()
    assert (properties["Slice"], properties["Delegate"]) == ("kubepods-podx.slice", True)
    assert 64 << 20 in (properties.get("MemoryMax"), properties.get("MemoryLimit"))


@pytest.mark.needs("dbus-daemon")
def test_changed_limits_are_told_to_systemd(systemd: FakeSystemd) -> None:
    systemd.units[UNIT] = {}
    scopes.limit(CGROUP, {"cpu": {"shares": 1024, "quota": 20_000, "period": 100_000}})
    assert systemd.units[UNIT]["CPUQuotaPerSecUSec"] == 200_000
    calls = len(systemd.calls)
    scopes.limit(CGROUP, {})
    assert len(systemd.calls) == calls


@pytest.mark.needs("dbus-daemon")
def test_scope_that_cannot_start_is_no_cgroup(systemd: FakeSystemd) -> None:
    systemd.job_result = "failed"
    refusal = pytest.raises(units.SystemdError, match=f"cannot start {UNIT}: its job ended as 'failed'")
    with refusal, scopes.starting(CGROUP, {}):
        pytest.fail("it starts the container")
    assert not Path(f"/proc/{systemd.units[UNIT]['PIDs'][0]}").exists()


def test_helper_makes_no_scope_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: {str(tmp_path): [""]})
    with pytest.raises(FileNotFoundError, match=UNIT):
        cgroups.create("kubepods-podx.slice:nodevisor:c", {})
    assert not any(tmp_path.iterdir())
