"""A CRI call over a transport's future: its end, its callbacks and what the recorder sees."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._cri import counting
from actors._cri.call import Call, go_name
from actors._cri.errors import CriError, NotFound
from proto.cri import api_pb2 as pb

Seen = list[tuple[Any, CriError | None]]


def call(transport: Future[bytes], seen: Seen, read: Callable[[bytes], Any] = bytes, **more: Any) -> Call[Any]:
    return Call("Status", lambda: transport, read, seen=lambda *answer: seen.append(answer), **more)


def test_answer_is_seen_before_callbacks_and_read_once() -> None:
    transport: Future[bytes] = Future()
    seen: Seen = []
    reads: list[bytes] = []
    one = call(transport, seen, lambda content: reads.append(content) or len(content))  # type: ignore[func-returns-value]
    order: list[int] = []
    one.add_done_callback(lambda _: order.append(len(seen)))
    assert not one.done()
    transport.set(b"abc")
    assert (one.result(0), one.result(0)) == (3, 3)
    assert (reads, seen, order) == ([b"abc"], [(b"abc", None)], [1])


def test_answer_that_cannot_be_read_is_seen_as_the_error_that_callers_get() -> None:
    transport: Future[bytes] = Future()
    seen: Seen = []
    one = call(transport, seen, pb.StatusResponse.FromString)
    transport.set(b"\xff\xff\xff")
    with pytest.raises(CriError, match="cannot read the runtime's answer") as raised:
        one.result(0)
    assert one.failed
    assert [error for _, error in seen] == [raised.value]
    assert raised.value.code == "Internal"


def test_absent_object_is_seen_as_an_error_and_is_none() -> None:
    transport: Future[bytes] = Future()
    seen: Seen = []
    one = call(transport, seen, absent=lambda: "nothing")
    missing = NotFound("NotFound", "no such container")
    transport.set_error(missing)
    assert one.result(0) == "nothing"
    assert not one.failed
    assert seen == [(None, missing)]


def test_failure_of_another_kind_ends_the_call() -> None:
    transport: Future[bytes] = Future()
    one = call(transport, [])
    transport.set_error(KeyError("not of this module"))
    with pytest.raises(KeyError):
        one.result(0)


def test_call_under_way_says_so() -> None:
    with pytest.raises(TimeoutError, match="Status is still under way after 0 s"):
        call(Future(), []).result(0)


def test_names_of_calls_and_codes_compile_no_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    rpcs = ("Version", "ListContainers", "RunPodSandbox", "UpdateContainerResources")
    compiled: list[str] = []
    with monkeypatch.context() as patched:
        of_re = re._compile  # type: ignore[attr-defined]
        patched.setattr(re, "_compile", lambda pattern, flags: compiled.append(pattern) or of_re(pattern, flags))
        operations = [counting.operation.__wrapped__(rpc) for rpc in rpcs]
        codes = [go_name(code) for code in ("NOT_FOUND", "CANCELLED", "UNKNOWN")]
    assert operations == ["version", "list_containers", "run_podsandbox", "update_container"]
    assert codes == ["NotFound", "Canceled", "Unknown"]
    assert compiled == [], "an expression that is compiled in an actor takes up to 0.4 MB there"
