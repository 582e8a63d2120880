"""CRI calls that pleg relays: its answers and its errors."""

from __future__ import annotations

from typing import Any

import pytest

from actors._base import Future
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from proto.cri import api_pb2 as pb
from proto.pods.pleg import CallRuntime, RuntimeAnswer


class Pleg:
    """Answers each ask with the same bytes."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self.timeouts: list[float] = []
        self.requests: list[bytes] = []

    def ask(self, call: CallRuntime, timeout_s: float) -> Future[RuntimeAnswer]:
        self.timeouts.append(timeout_s)
        self.requests.append(call.request)
        answer: Future[RuntimeAnswer] = Future()
        answer.set(RuntimeAnswer(response=self._response))
        return answer


def test_answer_of_the_runtime_that_cannot_be_read_is_an_error_of_the_call() -> None:
    pleg: Any = Pleg(b"\xff\xff\xff")
    ended: list[bool] = []
    call = RelayedCri(pleg).status()
    call.add_done_callback(lambda over: ended.append(over.failed))
    assert ended == [True]
    with pytest.raises(CriError, match="cannot read the runtime's answer"):
        call.result(0)


def test_ask_waits_longer_than_the_call() -> None:
    pleg: Any = Pleg(b"")
    RelayedCri(pleg).status(timeout=2.0)
    RelayedCri(pleg, on_the_way_s=1.0).status(timeout=2.0)
    assert pleg.timeouts == [7.0, 3.0]


def test_equal_requests_have_equal_bytes_in_every_process() -> None:
    pleg: Any = Pleg(b"")
    annotations = {f"name-{number:02}": "value" for number in range(20)}
    RelayedCri(pleg).image_status(pb.ImageSpec(image="i", annotations=annotations))
    (request,) = pleg.requests
    places = [request.index(name.encode()) for name in annotations]
    assert places == sorted(places)
