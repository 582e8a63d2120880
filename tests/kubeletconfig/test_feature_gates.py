"""Feature gates: the table of 1.36, groups, locked gates, and the kubelet's messages."""

from pathlib import Path

import pytest

from supervisor.config.flags.kinds import KINDS
from supervisor.config.kubeletconfig.feature_gates import Gates, check, known, warnings

FACTS = [
    line.split()
    for line in (Path(__file__).parent / "gates-1.36.txt").read_text().splitlines()
    if not line.startswith("#")
]


def test_the_gates_are_those_of_kubernetes() -> None:
    for name, stage, default, locked in FACTS:
        gate = known()[name]
        assert (gate.stage or "-", gate.default, gate.locked) == (stage, default == "true", locked == "true")
    assert set(known()) - {row[0] for row in FACTS} == {
        "ContextualLogging",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A=true", {"A": True}),
        ("A=true,B=false", {"A": True, "B": False}),
        (" A = T , B = 0 ,", {"A": True, "B": False}),
        ("A=true,A=false", {"A": False}),
    ],
)
def test_the_flag_is_read(text: str, expected: dict[str, bool]) -> None:
    assert KINDS["mapStringBool"].read(text, None) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A", "expected KEY=VALUE, not 'A'"),
        ("A=yes", "expected A=true or A=false, not A=yes"),
        ("A=", "expected A=true or A=false, not A="),
    ],
)
def test_the_flag_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KINDS["mapStringBool"].read(text, None)


@pytest.mark.parametrize(
    ("entries", "name", "enabled"),
    [
        ({}, "MemoryQoS", False),
        ({"MemoryQoS": True}, "MemoryQoS", True),
        ({"AllAlpha": True}, "MemoryQoS", True),
        ({"AllAlpha": True, "MemoryQoS": False}, "MemoryQoS", False),
        ({"AllAlpha": True}, "GracefulNodeShutdown", True),
        ({"AllBeta": False}, "GracefulNodeShutdown", False),
        ({"AllBeta": False, "GracefulNodeShutdown": True}, "GracefulNodeShutdown", True),
        ({"AllBeta": False}, "MemoryQoS", False),
        ({"AllBeta": False}, "NodeSwap", True),
        ({"NodeSwap": False}, "NodeSwap", True),
        ({"AllAlpha": True}, "AllBeta", False),
    ],
)
def test_gate_state_follows_from_entries(entries: dict[str, bool], name: str, enabled: bool) -> None:
    assert Gates(entries).enabled(name) is enabled


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"MemoryQos": True}, "featureGates.MemoryQos: unrecognized feature gate: MemoryQos, did you mean MemoryQoS?"),
        ({"Xyzzy": True}, "featureGates.Xyzzy: unrecognized feature gate: Xyzzy"),
        (
            {"NodeSwap": False},
            "featureGates.NodeSwap: cannot set feature gate NodeSwap to false, feature is locked to true; remove it",
        ),
    ],
)
def test_unknown_and_locked_gates_are_refused(entries: dict[str, bool], message: str) -> None:
    assert [str(problem) for problem in check(entries)] == [message]


def test_several_faults_are_reported_together() -> None:
    assert len(list(check({"Xyzzy": True, "NodeSwap": False, "MemoryQoS": True}))) == 2


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"NodeSwap": True}, "Setting GA feature gate NodeSwap=true. It will be removed in a future release."),
        (
            {"AllowDNSOnlyNodeCSR": False},
            "Setting deprecated feature gate AllowDNSOnlyNodeCSR=false. It will be removed in a future release.",
        ),
        ({"MemoryQoS": True}, None),
        ({"NodeSwap": False}, None),
    ],
)
def test_the_kubelets_warnings(entries: dict[str, bool], message: str | None) -> None:
    assert [problem.message for problem in warnings(entries)] == ([message] if message else [])
