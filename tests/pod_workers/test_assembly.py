"""Checks of the container runtime when pod_workers sees it."""

from pathlib import Path
from typing import Any

import pytest

from actors._cri.errors import CriError, Unimplemented
from actors._metrics import kubelet
from actors.pod_workers import assembly
from actors.pod_workers.assembly import compare_driver, find_host_ips, throttling_of
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.worker_states import not_begun
from proto.agent.settings import Settings
from proto.node.stats import GetThrottling, Throttling
from proto.v1 import Pod, from_dict
from proto.wire.errors import AskTimeout, Refused


async def answered(driver: str | CriError) -> str:
    if isinstance(driver, CriError):
        raise driver
    return driver


def compared(driver: str | CriError, told: list[str]) -> str:
    """The reason why pods wait for a runtime with this driver, beside an agent with cgroupfs."""
    with pytest.raises(StopIteration) as ended:
        compare_driver(answered(driver), "cgroupfs", told.append).send(None)
    return str(ended.value.value)


def test_the_machines_thermal_directories_are_read_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (str(tmp_path / "cpu0/thermal_throttle"),)
    monkeypatch.setattr(assembly, "thermal_throttle_paths", lambda: found)
    settings = Settings(root_dir=str(tmp_path), run_dir=str(tmp_path / "run"), node_ip="192.0.2.2")
    assert assembly.read_host_info(settings, -1).masked_paths == found


@pytest.mark.parametrize(
    ("theirs", "waits", "told"),
    [
        ("systemd", "its cgroup driver is systemd, the agent's cgroupfs", ["systemd"]),
        ("cgroupfs", "", ["cgroupfs"]),
        ("", "", [""]),
        (Unimplemented("Unimplemented", "no such rpc"), "", [""]),
        (CriError("Unavailable", "not yet"), "it does not tell its cgroup driver: not yet", []),
    ],
)
def test_no_pod_starts_under_another_cgroup_driver_than_the_runtimes(
    theirs: str | CriError, waits: str, told: list[str]
) -> None:
    names: list[str] = []
    found = compared(theirs, names)
    assert (waits in found, bool(found), names) == (True, bool(waits), told)


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
            compared(driver, [])
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


def test_pod_that_waits_for_the_runtime_is_listed_with_what_the_runtime_lacks() -> None:
    desired = Desired(())
    desired.pods["u"] = from_dict(Pod, {"metadata": {"uid": "u", "namespace": "a", "name": "web"}})
    waits = compared("systemd", [])
    why = not_begun(desired, {}, {}, lambda _: True, waits, {})["a/web"]
    assert why == f"it waits for the container runtime: {waits}"
    assert "runtime" not in not_begun(desired, {}, {}, lambda _: True, "", {})["a/web"]


class Stats:
    """Stands in for the peer stats."""

    def __init__(self, answer: Throttling | Exception) -> None:
        self.answer = answer
        self.asked: list[GetThrottling] = []

    async def ask(self, request: GetThrottling, _: float) -> Throttling:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            Throttling(limit_milli=20, periods=10, throttled_periods=9, throttled_ms=870, of_pod=True),
            "throttled in 9 of its 10 CPU periods since its start, 0.87 s in all, by the pod's limit of 20m: "
            "raise limits.cpu or timeoutSeconds",
        ),
        (Throttling(), ""),
        (AskTimeout("stats"), ""),
        (Refused("Unavailable", "cannot measure"), ""),
    ],
)
def test_cpu_limit_is_told_or_nothing_is(answer: Throttling | Exception, said: str) -> None:
    stats: Any = Stats(answer)
    with pytest.raises(StopIteration) as ended:
        throttling_of(stats)("u", "c").__await__().send(None)
    assert ended.value.value == said
    assert stats.asked == [GetThrottling(pod_uid="u", container_id="c")]
