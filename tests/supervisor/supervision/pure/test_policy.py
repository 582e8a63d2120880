"""Restarts by restart type and cause, and after repeated ends. Time is a parameter."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.supervision.policy import Cause, History, Run, cause_of, decide, describe_status, is_restarted
from supervisor.supervision.specs import ChildSpec, Restart

SPEC = ChildSpec(
    name="a",
    jitter_factor=0.0,
    backoff_initial_s=1.0,
    backoff_factor=2.0,
    backoff_cap_s=10.0,
    reset_after_s=5.0,
    max_restarts=6,
    intensity_period_s=60.0,
)

GRID = {
    # cause: permanent, transient, temporary
    Cause.NORMAL: (True, False, False),
    Cause.SHUTDOWN: (False, False, False),
    Cause.CRASH: (True, True, False),
    Cause.KILLED: (True, True, False),
    Cause.HUNG: (True, True, False),
    Cause.MEMORY: (True, True, False),
}


@pytest.mark.parametrize(("cause", "restart"), list(itertools.product(Cause, Restart)), ids=lambda value: value.value)
def test_restart_types_and_causes(cause: Cause, restart: Restart) -> None:
    expected = GRID[cause][list(Restart).index(restart)]
    spec = ChildSpec(name="a", restart=restart)
    assert is_restarted(restart, cause) is expected
    decision = decide(spec, History(), Run(0.0, 0.1, 0.2), cause, lambda: 0.0)
    assert (decision.start_at is not None) is expected


@pytest.mark.parametrize(
    ("status", "asked", "hung", "cause"),
    [
        (0, False, False, Cause.NORMAL),
        (0, True, False, Cause.SHUTDOWN),
        (70 << 8, False, False, Cause.CRASH),
        (70 << 8, True, False, Cause.SHUTDOWN),
        (9, False, False, Cause.KILLED),
        (9, False, True, Cause.HUNG),
        (9, True, True, Cause.HUNG),
        (139, False, False, Cause.KILLED),  # SIGSEGV with a core dump
        (None, False, False, Cause.KILLED),
    ],
)
def test_cause_of_a_wait_status(status: int | None, asked: bool, hung: bool, cause: Cause) -> None:
    assert cause_of(status, asked=asked, hung=hung) is cause


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "exit 0"),
        (70 << 8, "exit 70"),
        (9, "killed by SIGKILL"),
        (139, "killed by SIGSEGV"),
        (127, "killed by signal 127"),
        (None, "gone, exit status unknown"),
    ],
)
def test_wait_status_in_words(status: int | None, text: str) -> None:
    assert describe_status(status) == text


def ends(spec: ChildSpec, in_service: list[float | None]) -> list[tuple[float, bool]]:
    """Delay and degraded after each end, for incarnations in service that long (None: never ready, 0.1 s)."""
    history, now, found = History(), 0.0, []
    for lasted_s in in_service:
        started = now
        now += 0.1 if lasted_s is None else lasted_s
        run = Run(started, None if lasted_s is None else started, now)
        decision = decide(spec, history, run, Cause.CRASH, lambda: 0.0)
        assert decision.start_at is not None
        found.append((round(decision.start_at - now, 6), decision.history.degraded))
        history, now = decision.history, decision.start_at
    return found


@pytest.mark.parametrize(
    ("in_service", "expected"),
    [
        ([None], [(0, False)]),
        ([0.0], [(0, False)]),
        ([None] * 6, [(0, False), (1, False), (2, False), (4, False), (8, False), (10, False)]),
        # the seventh within a minute: degraded, and from then on at the cap, for as long as it takes
        ([None] * 10, [(0, False), (1, False), (2, False), (4, False), (8, False), (10, False), *[(10, True)] * 4]),
        # stable in between: at once again
        ([None, None, 5.0, None], [(0, False), (1, False), (0, False), (1, False)]),
        ([None, None, 4.9, None], [(0, False), (1, False), (2, False), (4, False)]),
        # stable each time, but seven times in a minute
        ([6.0] * 8, [(0, False)] * 6 + [(10, True)] * 2),
        # degraded ends with the intensity period in service, not sooner
        ([6.0] * 7 + [59.0, 60.0], [(0, False)] * 6 + [(10, True), (10, True), (0, False)]),
        # every 11 s for ever is within the limit
        ([11.0] * 30, [(0, False)] * 30),
    ],
)
def test_repeated_ends(in_service: list[float | None], expected: list[tuple[float, bool]]) -> None:
    assert ends(SPEC, in_service) == expected


def test_period_is_kept_between_starts() -> None:
    spec = ChildSpec(name="a", period_s=3.0, jitter_factor=0.0)
    early = decide(spec, History(), Run(100.0, 100.1, 101.0), Cause.CRASH, lambda: 0.0)
    late = decide(spec, History(), Run(100.0, 100.1, 104.0), Cause.CRASH, lambda: 0.0)
    assert (early.start_at, late.start_at) == (103.0, 104.0)


def test_no_restarts_allowed_means_degraded_from_the_first() -> None:
    spec = ChildSpec(name="a", max_restarts=0, jitter_factor=0.0)
    decision = decide(spec, History(), Run(0.0, 1.0, 2.0), Cause.CRASH, lambda: 0.0)
    assert decision.history.degraded
    assert decision.start_at == 2.0 + spec.backoff_cap_s


@given(
    st.lists(st.one_of(st.none(), st.floats(min_value=0.0, max_value=200.0)), max_size=60),
    st.floats(min_value=0.0, max_value=1.0, exclude_max=True),
)
def test_permanent_child_always_restarts_within_the_cap(in_service: list[float | None], rolled: float) -> None:
    spec = ChildSpec(name="a")
    history, now = History(), 0.0
    for lasted_s in in_service:
        run = Run(now, None if lasted_s is None else now, now + (lasted_s or 0.01))
        decision = decide(spec, history, run, Cause.KILLED, lambda: rolled)
        assert decision.start_at is not None
        assert 0 <= decision.start_at - run.ended <= spec.backoff_cap_s * (1 + spec.jitter_factor) + 1e-6
        assert len(decision.history.restarts) <= spec.max_restarts + 1
        history, now = decision.history, decision.start_at
