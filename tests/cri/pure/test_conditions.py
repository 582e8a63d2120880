"""The runtime's conditions in the kubelet's words."""

from actors._cri.conditions import problems
from proto.cri import api_pb2 as pb


def answer(*conditions: pb.RuntimeCondition) -> pb.StatusResponse:
    return pb.StatusResponse(status=pb.RuntimeStatus(conditions=conditions))


def test_runtime_problems_are_in_the_kubelets_words() -> None:
    good = pb.RuntimeCondition(type="RuntimeReady", status=True)
    bad = pb.RuntimeCondition(type="NetworkReady", reason="NetworkPluginNotReady", message="no config")
    words = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no config"
    assert problems(answer(good, bad)) == [words]


def test_runtime_that_names_no_condition_is_not_ready() -> None:
    assert problems(answer()) == [
        "container runtime not ready: RuntimeReady=false reason: message:",
        "container runtime network not ready: NetworkReady=false reason: message:",
    ]
