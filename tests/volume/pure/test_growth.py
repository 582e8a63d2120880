"""When a volume is grown on the node, and what its claim is told of a failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.volume.csi import policy
from actors.volume.plugins.base import Claimed, Context
from actors.volume.reconcile.publisher import Publisher
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.csi import Growth
from proto import v1
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim

GI = 1 << 30


def claimed(size: str, status: str, capacity: str = "1Gi") -> Claimed:
    spec = {"capacity": {"storage": size}, "csi": {"driver": "d", "volumeHandle": "h"}}
    claim: dict[str, Any] = {"capacity": {"storage": capacity}}
    claim |= {"allocatedResourceStatuses": {"storage": status}} if status else {}
    return Claimed(
        v1.from_dict(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec}),
        v1.from_dict(PersistentVolumeClaim, {"metadata": {"name": "c"}, "spec": {}, "status": claim}),
        ("csi",),
    )


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ("", 9 * GI),
        ("NodeResizePending", 9 * GI),
        ("NodeResizeInProgress", 9 * GI),
        ("NodeResizeInfeasible", 0),
        ("ControllerResizeInProgress", 0),
        ("ControllerResizeInfeasible", 0),
    ],
)
def test_volume_grows_as_its_claim_says(status: str, wanted: int, known: bool) -> None:
    """`known`: the actor has seen the volume's former size."""
    pod = PodVolumes(pod=SimpleNamespace())  # type: ignore[arg-type]
    if known:
        pod.sizes["v"] = GI
    plugin = SimpleNamespace(claimed=lambda *_: claimed("9Gi", status))
    volume: Any = SimpleNamespace(name="v", volume=None, plugin=plugin)
    assert Publisher.__new__(Publisher).growth_bytes(pod, volume, Context()) == wanted


@pytest.mark.parametrize(
    ("result", "again", "withdrawn", "phase"),
    [
        ("failed", False, False, "NodeResizeError"),
        ("failed", True, False, "NodeResizeError"),
        ("failed", False, True, "NodeResizeError"),
        ("failed", True, True, "NodeResizeInfeasible"),
        ("infeasible", False, False, "NodeResizeInfeasible"),
    ],
)
def test_withdrawn_growth_that_fails_again_is_infeasible(
    result: Growth, again: bool, withdrawn: bool, phase: str
) -> None:
    assert policy.growth_phase(result, again=again, withdrawn=withdrawn) == phase
