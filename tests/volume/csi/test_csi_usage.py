"""Usage of volumes while CSI drivers do not answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from actors._host.files.mounts import mounts_under
from actors.volume.csi import operations
from actors.volume.csi.policy import is_unresponsive
from actors.volume.steps.csi import CsiMeasure
from actors.volume.steps.errors import VolumeError
from proto.pods.objects import GetObjects
from proto.pods.volume import GetVolumeUsages, MountPod, UnmountPod
from tests.harness import PATIENCE, ActorProcess, Stalls, wait_for
from tests.volume.csi.csi_driver import ALL, Driver, Fault
from tests.volume.csi.test_csi_actor import (
    UID,
    claim,
    in_default,
    inline,
    new_driver,
    objects,
    registered,
    retry_forbidden,
)
from tests.volume.csi.test_csi_operations import VOLUME, mount, nothing, plugin, root, unmount
from tests.volume.test_actor import empty

__all__ = ["plugin", "root"]  # fixtures

PRELUDE = (
    "import grpc; from proto.plugins import csi_pb2; from actors.volume.csi import operations; "
    "from actors.volume.reconcile import publisher; publisher.REPUBLISH_S = 3600.0\n"
)
"""With the real deadlines: the helper that measures is niced and waits for seconds on a busy machine."""


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    peers = ("pod_workers", "objects", "events")
    with ActorProcess(
        "volume", None, peers, prelude=PRELUDE, objects_dir="/objects", volume_stats_agg_period_s=0.0
    ) as process:
        process.peers["objects"].answers[GetObjects] = objects
        yield process
        assert mounts_under(process.dir) == []


def found(actor: ActorProcess) -> dict[str, set[str]]:
    pods = actor.ask(GetVolumeUsages(), 25 * PATIENCE).pods
    return {one.pod_uid: {volume.name for volume in one.volumes} for one in pods}


@pytest.mark.needs("mounts")
def test_hung_driver_keeps_no_figures_from_others(actor: ActorProcess) -> None:
    hung = new_driver(actor, capabilities=ALL).start()
    well = new_driver(actor, "csi.again", capabilities=ALL).start()
    try:
        for one in (hung, well):
            registered(actor, one)
        retry_forbidden(actor, MountPod(pod=in_default(claim(), empty("e"))))
        retry_forbidden(actor, MountPod(pod=in_default(claim("again"), uid="again")))
        assert found(actor) == {UID: {"e", "v"}, "again": {"v"}}
        for rpc in ("NodeGetCapabilities", "NodeGetVolumeStats"):
            hung.faults[rpc] = Fault(hang=True)
            assert found(actor) == {UID: {"e"}, "again": {"v"}}
            hung.faults.clear()
        assert found(actor) == {UID: {"e", "v"}, "again": {"v"}}
    finally:
        hung.release.set()
        for uid in (UID, "again"):
            retry_forbidden(actor, UnmountPod(pod_uid=uid))
        hung.close()
        well.close()


@pytest.mark.needs("mounts")
def test_volume_of_an_unavailable_backend_hides_no_other(actor: ActorProcess) -> None:
    """Also in the round in which it comes first: the others have new figures, not the last ones."""
    driver = new_driver(actor, capabilities=ALL).start()
    try:
        registered(actor, driver)
        retry_forbidden(actor, MountPod(pod=in_default(claim())))
        (mounted,) = driver.of("NodePublishVolume")
        retry_forbidden(actor, MountPod(pod=in_default(inline(), uid="second")))
        driver.faults[f"NodeGetVolumeStats {mounted.volume_id}"] = Fault("UNAVAILABLE", "the backend is down")
        for _ in range(3):
            driver.calls.clear()
            assert found(actor) == {UID: set(), "second": {"i"}}
            assert len(driver.of("NodeGetVolumeStats")) == 2
        driver.faults.clear()
        assert found(actor) == {UID: {"v"}, "second": {"i"}}
    finally:
        for uid in (UID, "second"):
            retry_forbidden(actor, UnmountPod(pod_uid=uid))
        driver.close()


@pytest.mark.needs("mounts")
def test_only_a_driver_that_answers_nothing_is_unresponsive(root: str, plugin: Driver) -> None:
    """Its other volumes are not asked about in the same round."""
    plugin.capabilities = ALL
    mount(root, plugin)

    def error() -> str:
        with pytest.raises(VolumeError) as caught:
            operations.measure(root, CsiMeasure(VOLUME, "v", plugin.socket), nothing)
        return str(caught.value)

    for code, name in (("UNAVAILABLE", "Unavailable"), ("DEADLINE_EXCEEDED", "DeadlineExceeded")):
        plugin.faults = {"NodeGetVolumeStats": Fault(code)}
        assert f"code = {name}" in error()
        assert not is_unresponsive(error())
        plugin.faults = {"NodeGetCapabilities": Fault(code)}
        assert is_unresponsive(error())
    plugin.faults.clear()
    unmount(root, plugin)
    plugin.stop()
    assert is_unresponsive(error()), "it has no socket"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(plugin.socket)
        assert is_unresponsive(error()), "nothing listens"


@pytest.mark.needs("mounts")
def test_drivers_are_asked_without_a_request() -> None:
    peers = ("pod_workers", "objects", "events")
    with ActorProcess(
        "volume", None, peers, prelude=PRELUDE, objects_dir="/objects", volume_stats_agg_period_s=0.5
    ) as actor:
        actor.peers["objects"].answers[GetObjects] = objects
        driver = new_driver(actor, capabilities=ALL).start()
        try:
            registered(actor, driver)
            retry_forbidden(actor, MountPod(pod=in_default(claim(), empty("e"))))
            asked = lambda: len(driver.of("NodeGetVolumeStats"))  # noqa: E731
            wait_for(lambda: asked() > 1, 20, "it is asked again and again")
            (pod,) = actor.ask(GetVolumeUsages(), 25 * PATIENCE).pods
            assert sorted(one.name for one in pod.volumes) == ["e", "v"], "each volume has its figures once"
        finally:
            retry_forbidden(actor, UnmountPod(pod_uid=UID))
            driver.close()


@pytest.mark.needs("mounts")
@pytest.mark.parametrize(
    ("rpc", "text"),
    [
        ("NodeGetCapabilities", "^rpc error: code = DeadlineExceeded"),
        ("NodeGetVolumeStats", "^NodeGetVolumeStats failed: rpc error: code = DeadlineExceeded"),
    ],
)
def test_both_calls_of_a_measurement_share_a_deadline(
    root: str, plugin: Driver, monkeypatch: pytest.MonkeyPatch, rpc: str, text: str
) -> None:
    plugin.capabilities = ALL
    mount(root, plugin)
    monkeypatch.setattr(operations, "MEASURE_S", 0.5)
    plugin.faults[rpc] = Fault(hang=True)
    began = time.monotonic()
    with Stalls() as machine, pytest.raises(VolumeError, match=text):
        operations.measure(root, CsiMeasure(VOLUME, "v", plugin.socket), nothing)
    assert time.monotonic() - began < 2 * PATIENCE + machine.longest_s
    plugin.release.set()
    plugin.faults.clear()
    unmount(root, plugin)
