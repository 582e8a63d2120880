"""Makes the messages of resize events (pkg/kubelet/events/resize_event_messages.go). Pure.

A message is a phrase and a JSON object with the containers' resources, the pod's generation and the error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from proto.v1 import Container, Pod, to_dict


def started(pod: Pod) -> str:
    """Of ResizeStarted."""
    return _message("Pod resize started", pod, "")


def completed(pod: Pod, generation: int | None) -> str:
    """Of ResizeCompleted; `generation` of the spec that was carried out."""
    return _message("Pod resize completed", pod, "", generation)


def failed(pod: Pod, error: str) -> str:
    """Of ResizeError."""
    return _message("Pod resize error", pod, error)


def pending(pod: Pod, reason: str, error: str) -> str:
    """Of ResizeDeferred and ResizeInfeasible."""
    return _message(f"Pod resize {reason}", pod, error)


def _message(words: str, pod: Pod, error: str, generation: int | None = None) -> str:
    summary: dict[str, Any] = {}
    if pod.spec.init_containers:
        summary["initContainers"] = _resources(pod.spec.init_containers)
    if pod.spec.containers:
        summary["containers"] = _resources(pod.spec.containers)
    summary["generation"] = generation or pod.metadata.generation or 0
    if error:
        summary["error"] = error
    return f"{words}: {json.dumps(summary, separators=(',', ':'))}"


def _resources(containers: Iterable[Container]) -> list[dict[str, Any]]:
    return [{"name": one.name, "resources": to_dict(one.resources)} for one in containers]
