"""The state of the runtime's network: asked through pleg, else of the runtime itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors._base import Future
from actors._cri.client import CriCalls
from actors._cri.errors import CriError, RuntimeDown
from actors.pod_workers.shared import network
from actors.pod_workers.shared.network import BAD_S, GOOD_S, RuntimeNetwork
from proto.cri import api_pb2 as pb

READY = pb.StatusResponse(status=pb.RuntimeStatus(conditions=[pb.RuntimeCondition(type="NetworkReady", status=True)]))
NOT_READY = pb.StatusResponse(
    status=pb.RuntimeStatus(conditions=[pb.RuntimeCondition(type="NetworkReady", status=False, message="no CNI")])
)
LOST = CriError.of("Unavailable", "pleg is dead", "Status")


class Calls(CriCalls):
    """Calls that stay open until a test answers them."""

    def __init__(self) -> None:
        self._request_seconds = 1.0
        self.open: list[Future[Any]] = []

    def _start(self, rpc: str, request: bytes, deadline: float) -> Any:  # noqa: ARG002 - the transport's signature
        self.open.append(Future())
        return self.open[-1]

    def answer(self, answer: pb.StatusResponse | CriError) -> None:
        call = self.open.pop()
        call.set_error(answer) if isinstance(answer, CriError) else call.set(answer.SerializeToString())


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(network.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def direct() -> Calls:
    return Calls()


@pytest.fixture
def relayed() -> Calls:
    return Calls()


@pytest.fixture
def ask(direct: Calls, relayed: Calls) -> Callable[[], Future[str]]:
    return RuntimeNetwork(direct, relayed)._latest


def test_good_answer_of_pleg_counts_for_seconds(
    ask: Callable[[], Future[str]], direct: Calls, relayed: Calls, now: list[float]
) -> None:
    first, second = ask(), ask()
    assert len(relayed.open) == 1
    relayed.answer(READY)
    assert (first.result(0), second.result(0), direct.open) == ("", "", [])
    now[0] += GOOD_S - 0.1
    assert ask().result(0) == ""
    now[0] += 0.1
    assert not ask().done()


def test_bad_answer_is_asked_for_again_soon(ask: Callable[[], Future[str]], relayed: Calls, now: list[float]) -> None:
    first = ask()
    relayed.answer(NOT_READY)
    assert "no CNI" in first.result(0)
    now[0] += BAD_S + 0.1
    second = ask()
    relayed.answer(READY)
    assert second.result(0) == ""


def test_runtime_is_asked_where_pleg_does_not_answer(
    ask: Callable[[], Future[str]], direct: Calls, relayed: Calls
) -> None:
    first = ask()
    relayed.answer(LOST)
    assert not first.done()
    direct.answer(NOT_READY)
    assert "no CNI" in first.result(0)


def test_runtime_that_does_not_answer_either_is_an_error_and_asked_again(
    ask: Callable[[], Future[str]], direct: Calls, relayed: Calls
) -> None:
    first = ask()
    relayed.answer(LOST)
    direct.answer(RuntimeDown("Unavailable", "nobody listens", "Status"))
    with pytest.raises(RuntimeDown, match="nobody listens"):
        first.result(0)
    second = ask()
    relayed.answer(READY)
    assert second.result(0) == ""


def test_late_answer_does_not_prolong_the_one_that_came_meanwhile(
    direct: Calls, relayed: Calls, now: list[float]
) -> None:
    runtime = RuntimeNetwork(direct, relayed)
    runtime._latest()
    runtime.seen(NOT_READY)
    relayed.answer(READY)
    assert "no CNI" in runtime._latest().result(0)
    now[0] += BAD_S
    assert not runtime._latest().done()
