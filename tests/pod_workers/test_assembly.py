"""Checks of the container runtime when pod_workers sees it."""

import logging
from pathlib import Path

import pytest

from actors._cri.errors import CriError, Unimplemented
from actors._metrics import kubelet
from actors.pod_workers import assembly
from actors.pod_workers.assembly import compare_driver, find_host_ips
from proto.agent.settings import Settings


class Runtime:
    def __init__(self, driver: str | CriError) -> None:
        self.driver = driver

    async def cgroup_driver(self) -> str:
        if isinstance(self.driver, CriError):
            raise self.driver
        return self.driver


def test_the_machines_thermal_directories_are_read_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (str(tmp_path / "cpu0/thermal_throttle"),)
    monkeypatch.setattr(assembly, "thermal_throttle_paths", lambda: found)
    assert assembly.read_host_info(Settings(root_dir=str(tmp_path), node_ip="192.0.2.2")).masked_paths == found


@pytest.mark.parametrize(
    ("theirs", "reported"),
    [("systemd", True), ("cgroupfs", False), ("", False), (Unimplemented("Unimplemented", "no such rpc"), False)],
)
def test_runtime_with_another_cgroup_driver_is_reported(
    caplog: pytest.LogCaptureFixture, theirs: str | CriError, reported: bool
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(StopIteration):
        compare_driver(Runtime(theirs), "cgroupfs").send(None)  # type: ignore[arg-type]
    assert ("uses cgroup driver systemd, the agent cgroupfs; restart the agent" in caplog.text) is reported


@pytest.mark.parametrize(
    ("theirs", "shown"),
    [
        (Unimplemented("Unimplemented", "no such rpc"), {("1.37.0",): (1.0,)}),
        ("cgroupfs", {}),
        (CriError("Unavailable", "not yet"), {("1.37.0",): (1.0,)}),
    ],
)
def test_runtime_too_old_for_runtime_config_is_in_the_metrics(
    theirs: str | CriError, shown: dict[tuple[str, ...], tuple[float, ...]]
) -> None:
    gauge = kubelet.LOSING_SUPPORT
    try:
        for driver in (Unimplemented("Unimplemented", "no such rpc"), theirs):
            with pytest.raises(StopIteration):
                compare_driver(Runtime(driver), "cgroupfs").send(None)  # type: ignore[arg-type]
        assert gauge.take() == shown
    finally:
        gauge.replace([])


@pytest.mark.parametrize(
    ("settings", "ips"),
    [
        (Settings(node_ip="198.51.100.7"), ("198.51.100.7",)),
        (Settings(node_ip="198.51.100.7", kubeconfig="k", cloud_provider="external"), ("198.51.100.7",)),
        (Settings(kubeconfig="k", cloud_provider="external"), ()),
    ],
)
def test_no_address_is_guessed_before_the_cloud_provider(settings: Settings, ips: tuple[str, ...]) -> None:
    assert find_host_ips(settings) == ips
