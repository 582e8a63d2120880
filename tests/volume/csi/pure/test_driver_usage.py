"""The figures of a CSI driver, and the order in which a slow one is asked about its volumes."""

from __future__ import annotations

import itertools
import math
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future
from actors.volume import metrics as module
from actors.volume.csi import operations
from actors.volume.helper.pool import HelperGone, HelperHung
from actors.volume.metrics import DRIVER_S, Metrics
from actors.volume.steps.csi import CsiMeasure, Volume
from actors.volume.steps.errors import VolumeError
from proto.plugins import csi_pb2
from proto.pods.volume import PodVolumeUsage, VolumeUsage
from tests.volume.csi.pure.test_unstaging import Node

FAILS = "rpc error: code = Internal desc = it fails, too: code = Unavailable"
UNRESPONSIVE = (
    "rpc error: code = DeadlineExceeded desc = Deadline Exceeded",
    "rpc error: code = Unavailable desc = failed to connect",
    HelperHung(0, "v0", 0.0, 7),
    HelperGone("the helper died"),
)


class Pool:
    """Each volume takes some seconds of the clock. Those in `failing` fail with `error`."""

    def __init__(self, took_s: float) -> None:
        self.now, self.took_s = 1000.0, took_s
        self.asked: list[str] = []
        self.failing: set[str] = set()
        self.error: str | Exception = FAILS

    async def run(self, step: Any, *, niced: bool) -> tuple[Any, ...]:
        assert niced
        self.now += self.took_s
        self.asked.append(step.name)
        error = self.error if step.name in self.failing else ""
        if isinstance(error, Exception):
            raise error
        return (SimpleNamespace(error=error, usages=()),)


def made(
    pool: Pool, count: int, monkeypatch: pytest.MonkeyPatch, period_s: float = 0.0
) -> tuple[Metrics, list[Any], list[str]]:
    monkeypatch.setattr(module.time, "monotonic", lambda: pool.now)
    volumes = [("u", f"v{number}", SimpleNamespace(driver="d")) for number in range(count)]
    pods: Any = {"u": SimpleNamespace(driver_calls={})}
    registry: Any = SimpleNamespace(endpoint=lambda _: "unix:///d.sock")
    subject = Metrics(None, pool, registry, pods, period_s)  # type: ignore[arg-type]
    shown: list[str] = []
    return subject, volumes, shown


def measure(subject: Metrics, volumes: list[Any], shown: list[str]) -> None:
    deadline = module.time.monotonic() + DRIVER_S
    with pytest.raises(StopIteration):
        subject._measure_driver(volumes, lambda _, name, __: shown.append(name), deadline).send(None)


def test_every_volume_of_a_slow_driver_is_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(took_s=DRIVER_S / 3 + 0.1)
    subject, volumes, shown = made(pool, 9, monkeypatch)
    for _ in range(3):
        shown.clear()
        measure(subject, volumes, shown)
    assert sorted(pool.asked) == sorted(f"v{number}" for number in range(9))
    assert sorted(shown) == sorted(f"v{number}" for number in range(9)), "the others keep their last figures"


def test_volumes_that_fail_hide_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(took_s=0.1)
    subject, volumes, shown = made(pool, 5, monkeypatch)
    pool.failing = {"v0", "v3"}
    measure(subject, volumes, shown)
    assert (pool.asked, shown) == (["v0", "v1", "v2", "v3", "v4"], ["v1", "v2", "v4"])


def test_volumes_that_fail_slowly_take_the_drivers_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(took_s=DRIVER_S / 3 + 0.1)
    subject, volumes, shown = made(pool, 9, monkeypatch)
    pool.failing = {f"v{number}" for number in range(8)}
    for _ in range(3):
        measure(subject, volumes, shown)
    assert (len(pool.asked), shown) == (9, ["v8"])


@pytest.mark.parametrize("error", UNRESPONSIVE, ids=str)
def test_unresponsive_driver_is_asked_once_and_hides_none_for_good(
    monkeypatch: pytest.MonkeyPatch, error: str | Exception
) -> None:
    pool = Pool(took_s=0.1)
    subject, volumes, shown = made(pool, 4, monkeypatch)
    pool.failing, pool.error = {"v0"}, error
    measure(subject, volumes, shown)
    assert pool.asked == ["v0"]
    for number in itertools.count():
        shown.clear()
        measure(subject, volumes, shown)
        if len(shown) == 3:
            break
        assert number < 3
    assert sorted(shown) == ["v1", "v2", "v3"]


def test_volume_that_was_asked_about_lately_keeps_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(took_s=0.1)
    subject, volumes, shown = made(pool, 3, monkeypatch, period_s=60.0)
    measure(subject, volumes[:2], shown)
    shown.clear()
    measure(subject, volumes, shown)
    assert (pool.asked, sorted(shown)) == (["v0", "v1", "v2"], ["v0", "v1", "v2"])
    pool.now += 60.0
    measure(subject, volumes, shown)
    assert pool.asked[3:] == ["v0", "v1", "v2"]


def test_error_that_stays_the_same_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = Pool(took_s=0.1)
    subject, volumes, shown = made(pool, 3, monkeypatch)
    pool.failing = {"v0", "v1", "v2"}
    for _ in range(6):
        measure(subject, volumes, shown)
    assert (len(pool.asked), len(caplog.messages)) == (6 * 3, 1)
    pool.failing = {"v2"}
    for _ in range(3):
        measure(subject, volumes, shown)
    assert len(caplog.messages) == 1
    pool.failing = set()
    measure(subject, volumes, shown)
    pool.failing = {"v2"}
    measure(subject, volumes, shown)
    assert len(caplog.messages) == 2, "it had answered meanwhile"


def test_answer_does_not_wait_for_a_periodic_question() -> None:
    node: Any = Node()
    asked: list[str] = []
    pool: Any = SimpleNamespace(run=lambda step, **_: asked.append(step.name) or Future())  # it never answers
    volume = SimpleNamespace(driver="d")
    pods: Any = {"u": SimpleNamespace(published={"v": volume}, driver_calls={}, on_disk=True, actual={})}
    registry: Any = SimpleNamespace(endpoint=lambda _: "/d.sock")
    subject = Metrics(node, pool, registry, pods, 60.0)
    subject._latest["u"] = one = PodVolumeUsage(pod_uid="u", time=time.time(), volumes=())
    node.spawn(subject._ask_drivers(), "periodic")
    node.work()
    assert asked == ["v"]
    answer = node.spawn(subject.usages(), "answer")
    node.work()
    assert answer.result(0).pods == (one,)


def test_mounts_of_ended_pods_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a path of its own. One that keeps a helper in the kernel is forgotten with the helper's end."""
    pool = Pool(took_s=0.0)
    subject, _, _ = made(pool, 0, monkeypatch)
    subject._not_before = {"/a": pool.now + module.SILENT_S, "/stuck": math.inf}
    subject._forget_gone()
    assert subject._not_before.keys() == {"/a", "/stuck"}
    pool.now += module.SILENT_S
    subject._forget_gone()
    assert subject._not_before.keys() == {"/stuck"}


# Reports of a driver


def reported(monkeypatch: pytest.MonkeyPatch, *usage: csi_pb2.VolumeUsage) -> Any:
    """The figures of a driver that answers with this usage."""
    answer = csi_pb2.NodeGetVolumeStatsResponse(usage=usage)
    driver = SimpleNamespace(capabilities=lambda *_: {"GET_VOLUME_STATS"}, node=lambda *_: answer)
    monkeypatch.setattr(operations, "connected", lambda *_: nullcontext(driver))
    step = CsiMeasure(Volume("u", "pv", "d", "h"), "v", "/d.sock")
    return operations.measure("/root", step, lambda *_: None)


def test_driver_that_reports_no_usage_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VolumeError, match=r"^failed to get usage from response\. usage is nil$"):
        reported(monkeypatch)


def test_driver_that_reports_inodes_only_has_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    inodes = csi_pb2.VolumeUsage(unit=csi_pb2.VolumeUsage.INODES, total=100, used=60, available=40)
    found = reported(monkeypatch, inodes)
    assert (found.capacity_bytes, found.used_bytes, found.available_bytes, found.local) == (0, 0, 0, False)
    assert (found.inodes, found.inodes_used, found.inodes_free) == (100, 60, 40)


def test_negative_figures_of_a_driver_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of /stats/summary in Go fail with the whole document at a negative number."""
    units = csi_pb2.VolumeUsage.BYTES, csi_pb2.VolumeUsage.INODES
    found = reported(monkeypatch, *(csi_pb2.VolumeUsage(unit=one, total=-1, used=-2, available=-3) for one in units))
    assert found == VolumeUsage(name="v", used_bytes=0, inodes_used=0, local=False)


def test_each_call_is_timed_under_its_drivers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[tuple[float, str]] = []
    monkeypatch.setattr(module, "VOLUME_METRIC_SECONDS", SimpleNamespace(observe=lambda *one: timed.append(one)))
    pool = Pool(took_s=0.5)
    subject, volumes, shown = made(pool, 2, monkeypatch)
    pool.failing = {"v0"}
    measure(subject, volumes, shown)
    assert timed == [(0.5, "d"), (0.5, "d")]
