"""The way back to the kubelet, as the README tells it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.controlplane import ControlPlane
from tests.node.node_actor import OWN

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PATCH = re.compile(r"kubectl patch node NODE --subresource=status -p '([^']*)'")


def test_patch_of_the_readme_removes_our_conditions_only(control_plane: ControlPlane) -> None:
    (patch,) = map(json.loads, PATCH.findall(README))
    path = "/api/v1/nodes/goes-back"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "goes-back"}}
    control_plane.call("POST", "/api/v1/nodes", node)
    try:
        kinds = [*OWN, "MemoryPressure", "Ready"]
        conditions = [{"type": kind, "status": "True", "reason": "Known", "message": ""} for kind in kinds]
        merge, strategic = "application/merge-patch+json", "application/strategic-merge-patch+json"
        control_plane.call("PATCH", f"{path}/status", {"status": {"conditions": conditions}}, merge)
        control_plane.call("PATCH", f"{path}/status", patch, strategic)
        left = control_plane.get(path)["status"]["conditions"]
        assert [one["type"] for one in left] == ["MemoryPressure", "Ready"]
    finally:
        control_plane.call("DELETE", path)
