"""When a volume is grown on the node, and what its claim is told of a failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.volume.csi import growth, requests
from actors.volume.plugins.base import Claimed, Context
from actors.volume.reconcile.publisher import Publisher
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.csi import CsiMount, FsGroup, Growth, Volume
from proto import v1
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim
from tests.volume.csi.csi_driver import ALL

GI = 1 << 30
RWX = ("ReadWriteOnce", "ReadWriteMany")
NO_NODE = {growth.NOT_REQUIRED: "true"}


def claimed(
    size: str,
    status: str,
    capacity: str = "1Gi",
    allocated: str = "",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    annotations: dict[str, str] | None = None,
) -> Claimed:
    """A volume of `size`, whose claim has the other values."""
    spec = {"capacity": {"storage": size}, "csi": {"driver": "d", "volumeHandle": "h"}}
    claim: dict[str, Any] = {"capacity": {"storage": capacity}}
    claim |= {"allocatedResourceStatuses": {"storage": status}} if status else {}
    claim |= {"allocatedResources": {"storage": allocated}} if allocated else {}
    meta = {"name": "c", "annotations": annotations or {}}
    return Claimed(
        v1.from_dict(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec}),
        v1.from_dict(PersistentVolumeClaim, {"metadata": meta, "spec": {"accessModes": modes}, "status": claim}),
        ("csi",),
    )


def growth_bytes(pod: PodVolumes, one: Claimed) -> int:
    plugin = SimpleNamespace(claimed=lambda *_: one)
    volume: Any = SimpleNamespace(name="v", volume=None, plugin=plugin)
    return Publisher.__new__(Publisher).growth_bytes(pod, volume, Context())


def new_pod(known: bool) -> PodVolumes:
    """`known`: the actor has seen the volume's former size, 1 GiB."""
    pod = PodVolumes(pod=SimpleNamespace())  # type: ignore[arg-type]
    if known:
        pod.sizes["v"] = GI
    return pod


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("allocated", ["", "9Gi"])
@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ("NodeResizePending", 9 * GI),
        ("NodeResizeInProgress", 9 * GI),
        ("NodeResizeInfeasible", 0),
        ("ControllerResizeInProgress", 0),
        ("ControllerResizeInfeasible", 0),
    ],
)
def test_volume_grows_as_its_claim_says(status: str, wanted: int, allocated: str, known: bool) -> None:
    assert growth_bytes(new_pod(known), claimed("9Gi", status, allocated=allocated)) == wanted


@pytest.mark.parametrize(
    ("known", "capacity", "wanted"), [(True, "1Gi", 9), (False, "1Gi", 9), (True, "9Gi", 9), (False, "9Gi", 0)]
)
def test_controllers_without_states_leave_growth_to_the_sizes(known: bool, capacity: str, wanted: int) -> None:
    assert growth_bytes(new_pod(known), claimed("9Gi", "", capacity)) == wanted * GI


@pytest.mark.parametrize(
    ("known", "capacity", "modes", "annotations", "wanted", "made_for"),
    [
        (True, "9Gi", ("ReadWriteOnce",), {}, 0, 9),
        (False, "9Gi", ("ReadWriteOnce",), {}, 0, 9),
        (True, "9Gi", RWX, {}, 9, 1),
        (False, "9Gi", RWX, {}, 0, 9),
        (True, "9Gi", RWX, NO_NODE, 0, 9),
        (True, "1Gi", RWX, {}, 0, 1),
        (True, "1Gi", ("ReadWriteOnce",), {}, 0, 1),
    ],
)
def test_volume_that_its_controllers_have_grown(
    known: bool, capacity: str, modes: tuple[str, ...], annotations: dict[str, str], wanted: int, made_for: int
) -> None:
    """`made_for`: GiB of the file system afterwards, as far as is known."""
    pod, one = new_pod(known), claimed("9Gi", "", capacity, "9Gi", modes, annotations)
    assert growth_bytes(pod, one) == wanted * GI
    assert pod.sizes == {"v": made_for * GI}
    assert growth.new_capacity(one.volume, one.claim) == "", "another node has told the claim"


@pytest.mark.parametrize(
    ("status", "capacity", "allocated", "wanted", "told"),
    [
        ("NodeResizePending", "1G", "1500M", 1_500_000_000, "1500M"),
        ("NodeResizePending", "1G", "", 2_000_000_000, "2G"),
        ("", "1500M", "1500M", 0, ""),
        ("", "1G", "", 2_000_000_000, "2G"),
    ],
)
def test_volume_of_a_driver_that_rounds_up_grows_to_its_claim(
    status: str, capacity: str, allocated: str, wanted: int, told: str
) -> None:
    one = claimed("2G", status, capacity, allocated)
    assert growth_bytes(new_pod(known=False), one) == wanted
    assert growth.new_capacity(one.volume, one.claim) == told


def test_refused_growth_is_tried_again_after_the_unmount_only() -> None:
    pod, one = new_pod(known=True), claimed("9Gi", "NodeResizeInProgress", allocated="9Gi")
    pod.refused_growth.add("v")
    assert growth_bytes(pod, one) == 0
    pod.forget_published()
    assert growth_bytes(pod, one) == 9 * GI


@pytest.mark.parametrize(
    ("result", "again", "withdrawn", "phase"),
    [
        ("failed", False, False, "NodeResizeError"),
        ("failed", True, False, "NodeResizeError"),
        ("failed", False, True, "NodeResizeError"),
        ("failed", True, True, "NodeResizeInfeasible"),
        ("refused", False, False, "NodeResizeError"),
        ("infeasible", False, False, "NodeResizeInfeasible"),
        ("uncertain", True, True, None),
        ("done", True, True, None),
        ("", True, True, None),
    ],
)
def test_withdrawn_growth_that_fails_again_is_infeasible(
    result: Growth, again: bool, withdrawn: bool, phase: str | None
) -> None:
    assert growth.failure_phase(result, again=again, withdrawn=withdrawn) == phase


@pytest.mark.parametrize(
    ("code", "result", "message"),
    [
        ("Internal", "failed", "Expander.NodeExpand failed to expand the volume : why"),
        ("FailedPrecondition", "refused", "Expander.NodeExpand failed to expand the volume : why"),
        ("DeadlineExceeded", "uncertain", "Expander.NodeExpand failed to expand the volume : why"),
        ("OutOfRange", "infeasible", "Expander.NodeExpand failed to expand the volume why"),
        ("NotFound", "infeasible", "Expander.NodeExpand failed to expand the volume why"),
    ],
)
def test_message_of_a_failed_growth_is_the_kubelets(code: str, result: Growth, message: str) -> None:
    assert growth.failure_result(code) == result
    assert growth.failure_message(result, "why") == message


def test_growth_has_the_file_system_and_options_without_group() -> None:
    step = CsiMount(
        Volume("u", "pv", "d", "h"),
        "v",
        "/d.sock",
        "n",
        fs_type="ext4",
        mount_options=("noatime",),
        fs_group=FsGroup(7),
        expand_bytes=GI,
    )
    sent: list[Any] = []
    driver: Any = SimpleNamespace(node=lambda _, request: sent.append(request))
    assert requests.grow(driver, step, "/staged", "/target", frozenset(ALL)).result == "done"
    wanted = sent[0].volume_capability.mount
    assert (wanted.fs_type, list(wanted.mount_flags), wanted.volume_mount_group) == ("ext4", ["noatime"], "")
    assert requests.capability(step, ALL).mount.volume_mount_group == "7", "the other calls have it"
