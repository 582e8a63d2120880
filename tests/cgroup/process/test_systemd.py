"""The systemd driver against a fake systemd on a real bus, and a directory that stands in for cgroup v2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._cgroup import fs, tiers
from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.kill import kill_processes
from actors._cgroup.quantities.resources import PodLimits
from actors._cgroup.systemd import units
from actors._cgroup.systemd.properties import UNLIMITED
from proto.agent.settings import Settings
from proto.v1 import Pod
from supervisor.cli.run import session
from tests.cgroup.process.fake_systemd import FakeSystemd
from tests.cgroups import make_files

pytestmark = pytest.mark.needs("dbus-daemon")

SETTINGS = Settings(cgroup_driver="systemd", pod_pids_limit=200)
UNIT = "kubepods-burstable-podu_1.slice"
NAME = f"/kubepods.slice/kubepods-burstable.slice/{UNIT}"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSystemd]:
    with FakeSystemd(tmp_path) as one:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", one.address)
        monkeypatch.setattr(fs, "huge_page_sizes", lambda: ())
        monkeypatch.setattr(tiers, "huge_page_sizes", lambda: ())
        yield one


@pytest.fixture
def tree(systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch) -> Hierarchy:
    monkeypatch.setattr(fs, "_delegate", lambda _: None)  # directories have no controllers
    return Hierarchy(unified=True, mounts={"": str(systemd.root)})


def pod(cpu: str = "500m", memory: str = "96Mi") -> Pod:
    resources: dict[str, Any] = {
        "requests": {"cpu": "75m", "memory": "48Mi"}, "limits": {"cpu": cpu, "memory": memory},
    }  # fmt: skip
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return msgspec.convert({"metadata": {"uid": "u-1", "name": "p"}, "spec": spec}, Pod)


def test_pods_slice_is_started_with_all_its_limits(systemd: FakeSystemd, tree: Hierarchy) -> None:
    fs.create_pod_cgroup(pod(), SETTINGS, tree)
    assert systemd.properties(UNIT) == {
        "CPUWeight": 3, "MemoryMax": 96 << 20, "TasksMax": 200,
        "CPUQuotaPeriodUSec": 100_000, "CPUQuotaPerSecUSec": 500_000,
    }  # fmt: skip
    assert systemd.units[UNIT]["Wants"] == ["kubepods-burstable.slice"]
    assert ("SetUnitProperties", UNIT) not in systemd.calls
    assert (systemd.root / NAME[1:] / "cpu.max").read_text() == "50000 100000"
    assert systemd.units["kubepods.slice"]["Wants"] == ["-.slice"]
    assert systemd.units["kubepods.slice"]["DefaultDependencies"] is False


def test_slice_of_an_earlier_run_gets_its_limits_again(systemd: FakeSystemd, tree: Hierarchy) -> None:
    """Also of a kubelet, and of this agent when it was killed in between."""
    systemd.units |= {"kubepods.slice": {}, "kubepods-burstable.slice": {}, UNIT: {"TasksMax": 7}}
    fs.create_pod_cgroup(pod(), SETTINGS, tree)
    assert systemd.properties(UNIT)["TasksMax"] == 200
    assert systemd.properties(UNIT)["MemoryMax"] == 96 << 20
    assert systemd.calls[-1] == ("StartUnit", UNIT)  # it may have been on its way down
    assert systemd.units["kubepods.slice"] == {}


def test_resize_sets_properties_and_keeps_the_others(systemd: FakeSystemd, tree: Hierarchy) -> None:
    fs.create_pod_cgroup(pod(), SETTINGS, tree)
    (systemd.root / NAME[1:] / "memory.max").unlink()  # what is shorter does not shorten a plain file
    fs.ensure(NAME, PodLimits(memory_bytes=64 << 20), "systemd", tree)
    fs.ensure(NAME, PodLimits(cpu_quota_us=-1, cpu_period_us=100_000), "systemd", tree)
    limits = systemd.properties(UNIT)
    assert limits["MemoryMax"] == 64 << 20
    assert limits["CPUQuotaPerSecUSec"] == UNLIMITED
    assert (limits["CPUWeight"], limits["TasksMax"]) == (3, 200)
    assert (systemd.root / NAME[1:] / "memory.max").read_text() == str(64 << 20)


def test_removed_pods_slice_is_stopped_and_forgotten(systemd: FakeSystemd, tree: Hierarchy) -> None:
    fs.create_pod_cgroup(pod(), SETTINGS, tree)
    for file in (systemd.root / NAME[1:]).iterdir():
        file.unlink()  # real cgroups go with their files
    for _ in range(2):
        assert fs.remove_pod_cgroup(NAME, SETTINGS, tree)
    assert UNIT not in systemd.units
    assert not (systemd.root / NAME[1:]).exists()
    assert "kubepods-burstable.slice" in systemd.units


def test_slice_with_a_process_is_not_stopped(systemd: FakeSystemd, tree: Hierarchy) -> None:
    fs.create_pod_cgroup(pod(), SETTINGS, tree)
    below = systemd.root / NAME[1:] / "cri-containerd-c.scope"
    below.mkdir()
    (below / "cgroup.procs").write_text("1\n")
    assert not fs.remove_pod_cgroup(NAME, SETTINGS, tree)
    assert UNIT in systemd.units


@pytest.mark.parametrize("name", ["/kubepods.slice", "/system.slice", "/kubepods.slice/kubepods-burstable.slice"])
def test_only_slices_of_pods_are_stopped(systemd: FakeSystemd, tree: Hierarchy, name: str) -> None:
    systemd.units[name.rpartition("/")[2]] = {}
    with pytest.raises(ValueError, match="not the cgroup of a pod"):
        fs.remove_pod_cgroup(name, SETTINGS, tree)
    with pytest.raises(ValueError, match="not the cgroup of a pod"):
        kill_processes(name, tree)
    assert systemd.calls == []


def test_cgroups_above_pods_are_limited_as_slices(systemd: FakeSystemd, tree: Hierarchy) -> None:
    tiers.apply("/kubepods.slice", PodLimits(1638, memory_bytes=1 << 30, pids=9, cpus="0-1"), "systemd", tree)
    assert systemd.properties("kubepods.slice") == {
        "CPUWeight": 63, "MemoryMax": 1 << 30, "TasksMax": 9, "AllowedCPUs": b"\3",
    }  # fmt: skip
    systemd.units["system.slice"] = {}
    (systemd.root / "system.slice").mkdir()
    tiers.apply_existing("/system.slice", PodLimits(512), "systemd", tree)
    assert systemd.properties("system.slice") == {"CPUWeight": 20}
    (systemd.root / "ssh.service").mkdir()
    with pytest.raises(OSError, match="not a slice"):
        tiers.apply_existing("/ssh.service", PodLimits(512), "systemd", tree)


@pytest.mark.parametrize(("there", "properties"), [("7", {"MemoryLow": 0}), ("0", {})])
def test_slice_has_a_protection_of_zero_only_to_undo_one(
    systemd: FakeSystemd, tree: Hierarchy, there: str, properties: dict[str, int]
) -> None:
    """Without Memory QoS. systemd would set an old MemoryLow again with each later change of the slice."""
    unit = "kubepods-burstable.slice"
    systemd.units |= {"kubepods.slice": {}, unit: {}}
    make_files(systemd.path(unit), "memory.low")
    (systemd.path(unit) / "memory.low").write_text(there)
    tiers.apply(f"/kubepods.slice/{unit}", PodLimits(2, memory_min_bytes=0, memory_low_bytes=0), "systemd", tree)
    assert systemd.properties(unit) == {"CPUWeight": 1, **properties}
    assert (systemd.path(unit) / "memory.low").read_text() == "0"


def test_restarted_bus_is_found_by_the_next_call(systemd: FakeSystemd, tree: Hierarchy) -> None:
    fs.create_pod_cgroup(pod(), SETTINGS, tree)
    systemd.disconnect()
    with pytest.raises(units.SystemdError, match=r"cannot limit kubepods.*: the system bus: .*; check dbus"):
        fs.create_pod_cgroup(pod(), SETTINGS, tree)
    systemd.connect()
    fs.create_pod_cgroup(pod(memory="128Mi"), SETTINGS, tree)
    assert systemd.properties(UNIT)["MemoryMax"] == 128 << 20


def test_systemd_that_hangs_ends_the_call_at_its_deadline(
    systemd: FakeSystemd, tree: Hierarchy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "DEADLINE_S", 0.5)
    systemd.deaf = True
    with pytest.raises(units.SystemdError, match=rf"cannot limit {UNIT}: no answer from systemd within 0.5 s"):
        fs.create_pod_cgroup(pod(), SETTINGS, tree)


def test_failed_job_and_refusal_are_told(systemd: FakeSystemd, tree: Hierarchy) -> None:
    systemd.job_result = "dependency"
    with pytest.raises(units.SystemdError, match=rf"cannot limit {UNIT}: its job ended as 'dependency'"):
        fs.create_pod_cgroup(pod(), SETTINGS, tree)


@pytest.mark.parametrize("limits", [PodLimits(memory_bytes=-1), PodLimits(memory_bytes=1 << 64)])
def test_number_beyond_64_bits_is_an_error_of_its_unit(
    systemd: FakeSystemd, tree: Hierarchy, limits: PodLimits
) -> None:
    with pytest.raises(units.SystemdError, match=r"cannot limit kubepods.slice: a limit is beyond 64 bits: "):
        tiers.apply("/kubepods.slice", limits, "systemd", tree)
    tiers.apply("/kubepods.slice", PodLimits(memory_bytes=1 << 30), "systemd", tree)
    assert systemd.properties("kubepods.slice") == {"MemoryMax": 1 << 30}


def test_slices_of_a_session_are_stopped_at_its_end(
    systemd: FakeSystemd, tree: Hierarchy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors._cgroup.hierarchy.hierarchy", lambda: tree)
    root = "nodevisor_abcdefgh"
    name = f"/{root}.slice/{root}-kubepods.slice"
    units.ensure(f"{root}-kubepods.slice", [f"{root}.slice"], [])
    assert systemd.path(f"{root}-kubepods.slice") == systemd.root / name[1:]
    assert session.remove_cgroups("/nodevisor-abcdefgh")
    assert f"{root}.slice" not in systemd.units
    assert not (systemd.root / f"{root}.slice").exists()
