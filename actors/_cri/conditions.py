"""The runtime's conditions (rpc Status) that say whether it and its network are ready, in the kubelet's words. Pure.

Source: updateRuntimeUp of pkg/kubelet/kubelet.go.
"""

from __future__ import annotations

from proto.cri import api_pb2 as pb

RUNTIME = ("RuntimeReady", "container runtime not ready")
NETWORK = ("NetworkReady", "container runtime network not ready")


def problem(answer: pb.StatusResponse, condition: tuple[str, str]) -> str:
    """Why RUNTIME or NETWORK is not ready; empty when it is. A runtime that does not name it is not ready."""
    kind, words = condition
    found = next((one for one in answer.status.conditions if one.type == kind), pb.RuntimeCondition())
    if found.status:
        return ""
    return f"{words}: {kind}=false reason:{found.reason} message:{found.message}"


def problems(answer: pb.StatusResponse) -> list[str]:
    """The problems of both."""
    return [text for condition in (RUNTIME, NETWORK) if (text := problem(answer, condition))]
