import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._net.probing.outcome import MAX_BODY_BYTES, Outcome
from actors.probe.policy import (
    INITIAL,
    KINDS,
    MAX_EVENT,
    Kind,
    Standing,
    Timing,
    event,
    first_due,
    initial,
    is_active,
    message,
    next_due,
    not_running,
    settle,
    timing,
)
from proto.v1 import Probe

OUTCOMES = {
    "S": Outcome("success"),
    "W": Outcome("warning", "w"),
    "F": Outcome("failure", "no"),
    "E": Outcome("errored"),
}


def results(kind: Kind, outcomes: str, success: int = 1, failure: int = 3) -> str:
    """The standing result after each outcome, by its first letter."""
    standing, seen = initial(kind), ""
    for letter in outcomes:
        if not standing.on_hold:
            standing = settle(
                kind, standing, Timing(success_threshold=success, failure_threshold=failure), OUTCOMES[letter]
            )
        seen += standing.result[0]
    return seen


@pytest.mark.parametrize(
    ("kind", "outcomes", "success", "failure", "expected"),
    [
        ("readiness", "S", 1, 3, "s"),
        ("readiness", "SFFF", 1, 3, "sssf"),
        ("readiness", "SFFSFFF", 1, 3, "ssssssf"),
        ("readiness", "SSS", 3, 1, "ffs"),
        ("readiness", "SSFSSS", 3, 1, "fffffs"),
        ("readiness", "SFEFEF", 1, 3, "sssssf"),
        ("readiness", "W", 1, 1, "s"),
        ("readiness", "SFSF", 1, 1, "sfsf"),
        ("readiness", "EEEE", 1, 1, "ffff"),
        ("liveness", "FF", 1, 3, "ss"),
        ("liveness", "FFFS", 1, 3, "ssff"),
        ("liveness", "FFSFFF", 1, 3, "sssssf"),
        ("liveness", "EEEE", 1, 1, "ssss"),
        ("startup", "FFS", 1, 3, "uus"),
        ("startup", "FFFS", 1, 3, "uuff"),
    ],
)
def test_result_changes_at_thresholds(kind: Kind, outcomes: str, success: int, failure: int, expected: str) -> None:
    assert results(kind, outcomes, success, failure) == expected


def naive(kind: Kind, outcomes: str, success: int, failure: int) -> str:
    """A naive model over the whole history: the result changes where the last N outcomes are the same."""
    seen, counted, held = [], "", False
    current = INITIAL[kind][0]
    for letter in outcomes:
        if not held and letter != "E":
            counted += "f" if letter == "F" else "s"
            if counted.endswith("f" * failure):
                current, held = "f", kind != "readiness"
            elif counted.endswith("s" * success):
                current = "s"
        seen.append(current)
    return "".join(seen)


@given(st.sampled_from(KINDS), st.text("SWFE", max_size=40), st.integers(1, 5), st.integers(1, 5))
def test_thresholds_agree_with_a_naive_model(kind: Kind, outcomes: str, success: int, failure: int) -> None:
    assert results(kind, outcomes, success, failure) == naive(kind, outcomes, success, failure)


@given(st.sampled_from(KINDS), st.text("SWFE", min_size=10, max_size=40))
def test_standing_result_is_written_once(kind: Kind, outcomes: str) -> None:
    standing = initial(kind)
    for letter in outcomes * 2:
        after = settle(kind, standing, Timing(success_threshold=2, failure_threshold=2), OUTCOMES[letter])
        assert after.run <= 2
        standing = after


def test_unset_or_zero_number_is_the_api_default() -> None:
    assert timing(Probe()) == Timing(0, 1, 10, 1, 3)
    assert timing(Probe(period_seconds=0, timeout_seconds=0, success_threshold=0, failure_threshold=0)) == Timing()
    full = Probe(initial_delay_seconds=5, timeout_seconds=2, period_seconds=3, success_threshold=4, failure_threshold=6)
    assert timing(full) == Timing(5, 2, 3, 4, 6)


@pytest.mark.parametrize(
    ("kind", "running", "terminating", "started", "on_hold", "expected"),
    [
        ("startup", True, False, False, False, True),
        ("startup", True, False, True, False, False),
        ("startup", True, True, False, False, False),
        ("startup", True, False, False, True, False),
        ("liveness", True, False, True, False, True),
        ("liveness", True, False, False, False, False),
        ("liveness", True, True, True, False, False),
        ("liveness", True, False, True, True, False),
        ("liveness", False, False, True, False, False),
        ("readiness", True, False, True, False, True),
        ("readiness", True, True, True, False, True),
        ("readiness", True, False, False, False, False),
        ("readiness", False, False, True, False, False),
    ],
)
def test_active_probes_by_state_of_the_container(
    kind: Kind, running: bool, terminating: bool, started: bool, on_hold: bool, expected: bool
) -> None:
    standing = Standing(result="failure", on_hold=on_hold)
    assert is_active(kind, standing, running=running, terminating=terminating, started=started) is expected


@pytest.mark.parametrize(
    ("age_s", "delay_s", "period_s", "due_in_s"),
    [
        (0, 0, 10, 0),
        (3, 0, 10, 0),
        (13, 0, 10, 7),
        (20, 0, 10, 10),
        (1, 5, 10, 4),
        (5, 5, 10, 0),
        (16, 5, 10, 9),
        (-1000, 5, 10, 5),
        (-1000, 0, 10, 0),
    ],
)
def test_probes_keep_to_start_plus_delay_plus_periods(
    age_s: float, delay_s: float, period_s: float, due_in_s: float
) -> None:
    assert first_due(Timing(initial_delay_s=delay_s, period_s=period_s), age_s) == due_in_s


def test_next_probe_follows_a_slow_one_at_once_else_at_period() -> None:
    numbers = Timing(period_s=10)
    assert next_due(numbers, 100, 100.2) == 110
    assert next_due(numbers, 100, 112) == 112


def test_stopped_container_is_not_ready_and_keeps_the_rest() -> None:
    held = Standing(result="failure", message="Liveness probe failed: no", last="failure", run=3, on_hold=True)
    assert not_running("liveness", held) is held
    assert not_running("startup", Standing(result="success")).result == "success"
    assert not_running("readiness", Standing(result="success", last="success", run=1)) == initial("readiness")


def test_messages_are_the_kubelets() -> None:
    failed = Outcome("failure", "HTTP probe failed with statuscode: 500")
    assert message("liveness", failed) == "Liveness probe failed: HTTP probe failed with statuscode: 500"
    assert message("readiness", Outcome("warning", "moved")) == "Readiness probe warning: moved"
    assert message("startup", Outcome("success", "out")) == ""
    assert len(message("startup", Outcome("failure", "x" * 5000))) == 1024


def test_event_has_all_output_and_the_checkpoint_less() -> None:
    told = "x" * MAX_BODY_BYTES
    assert event("readiness", Outcome("failure", told)) == ("Unhealthy", f"Readiness probe failed: {told}")
    longer = event("readiness", Outcome("errored", told * 2))
    assert longer is not None
    assert len(longer[1]) == MAX_EVENT
    assert (
        len(settle("readiness", initial("readiness"), Timing(failure_threshold=1), Outcome("failure", told)).message)
        == 1024
    )


@pytest.mark.parametrize(
    ("kind", "outcome", "expected"),
    [
        ("readiness", Outcome("success"), None),
        ("readiness", Outcome("failure", "no"), ("Unhealthy", "Readiness probe failed: no")),
        ("liveness", Outcome("failure", ""), ("Unhealthy", "Liveness probe failed: ")),
        ("startup", Outcome("warning", "moved"), ("ProbeWarning", "Startup probe warning: moved")),
        (
            "readiness",
            Outcome("errored", "boom"),
            ("Unhealthy", "Readiness probe errored and resulted in unknown state: boom"),
        ),
    ],
)
def test_outcome_gives_its_event(kind: Kind, outcome: Outcome, expected: tuple[str, str] | None) -> None:
    assert event(kind, outcome) == expected
