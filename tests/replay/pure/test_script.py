"""Matches recorded answers to calls, and chooses the recording to play."""

from __future__ import annotations

import pytest

from actors._replay.script import Calls, ScriptError, choose, crash_of, steps
from proto.agent.recording import Frame, Kind, Recording

KEY = ("ask", "status", "ListPods")


def recording(actor: str, incarnation: int, *kinds: Kind) -> Recording:
    payload = ["builtins.KeyError", "'x'", "a.py", "f"]
    frames = tuple(Frame(number, number, kind, payload) for number, kind in enumerate(kinds, 1))
    return Recording(actor, incarnation, 1, 0, 0.0, frames, 0)


def test_answer_goes_to_the_call_with_its_digest() -> None:
    calls, ended = Calls(), []
    for digest in (1, 2, 3):
        calls.made(KEY, digest, lambda outcome, digest=digest: ended.append((digest, outcome)))
    calls.ended(KEY, 2, "b")
    calls.ended(KEY, 9, "a request that differs here")
    calls.ended(KEY, 3, "c")
    assert ended == [(2, "b"), (1, "a request that differs here"), (3, "c")]


def test_answer_before_its_call_waits_for_it() -> None:
    calls, ended = Calls(), []
    calls.ended(KEY, 1, "early")
    assert calls.unused == {"ask status ListPods": 1}
    calls.made(KEY, 2, ended.append)
    calls.made(KEY, 1, ended.append)
    assert ended == []
    calls.due.popleft()()
    assert ended == ["early"]
    assert not calls.unused


def test_calls_of_another_kind_get_no_answer() -> None:
    calls, ended = Calls(), []
    calls.made(("cri", "Version"), 1, ended.append)
    calls.ended(KEY, 1, "x")
    assert ended == []


@pytest.mark.parametrize(
    ("incarnation", "chosen"),
    [(None, 2), (1, 1), (3, 3)],
)
def test_last_crash_is_chosen_unless_an_incarnation_is_named(incarnation: int | None, chosen: int) -> None:
    found = [
        recording("pleg", 1, Kind.START, Kind.CRASH),
        recording("pleg", 2, Kind.START, Kind.CRASH),
        recording("pleg", 3, Kind.START, Kind.PEER),
        recording("probe", 4, Kind.START, Kind.CRASH),
    ]
    assert choose(found, "pleg", incarnation).incarnation == chosen


@pytest.mark.parametrize("kinds", [(), (Kind.PEER, Kind.CRASH)])
def test_recording_without_a_start_is_not_played(kinds: tuple[Kind, ...]) -> None:
    with pytest.raises(ScriptError):
        choose([recording("pleg", 1, *kinds)], "pleg", None)


def test_steps_leave_the_start_out_and_end_with_the_crash() -> None:
    one = recording("pleg", 1, Kind.START, Kind.CHECKPOINT, Kind.PEER, Kind.CRASH)
    assert [frame.kind for frame in steps(one)] == [Kind.PEER, Kind.CRASH]
    assert str(crash_of(one)) == "KeyError: 'x' in f (a.py)"
