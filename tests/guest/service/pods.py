"""Pods for a guest, and how long they may take under emulation."""

from __future__ import annotations

from typing import Any

from tests.containerd.images import BUSYBOX

SWAP = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
READY_S = 600.0
"""Under emulation."""


def pod(name: str, script: str = "", resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", f"{script or ':'}; exec sleep 100000"],
        "resources": resources or {},
    }
    if "volumes" in spec:
        container["volumeMounts"] = [{"name": one["name"], "mountPath": "/data"} for one in spec["volumes"]]
    metadata = {"name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def memory(request: str, limit: str) -> dict[str, Any]:
    return {"requests": {"memory": request}, "limits": {"memory": limit}}
