"""Feature gates: the table of 1.36, groups, locked gates, and the kubelet's messages."""

from pathlib import Path

import pytest

from supervisor.config.flags.kinds import KINDS
from supervisor.config.kubeletconfig import gates_page
from supervisor.config.kubeletconfig.feature_gates import Gates, check, in_effect, known, requirement, warnings
from supervisor.config.kubeletconfig.gates.dependencies import NEEDS
from supervisor.config.kubeletconfig.gates.verdicts import verdicts

ROOT = Path(__file__).parents[2]
FACTS = [
    line.split()
    for line in (Path(__file__).parent / "gates-1.36.txt").read_text().splitlines()
    if not line.startswith("#")
]


def not_built(stage: str) -> dict[str, bool]:
    """Entries that switch off the gates of a stage that are off by default and not built."""
    return {
        name: False
        for name, gate in known().items()
        if gate.stage == stage and verdicts()[name].is_missing and not gate.default
    }


def with_needs(name: str, value: bool) -> dict[str, bool]:
    """An entry, with the entries that its gate's dependencies need."""
    needed = {one: True for one in NEEDS.get(name, ()) if value}
    dependent = {one: False for one, names in NEEDS.items() if name in names and not value}
    return {name: value, **needed, **dependent}


OTHER_ALPHA, OTHER_BETA = not_built("ALPHA"), not_built("BETA")


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
        ({}, "QOSReserved", False),
        ({"QOSReserved": True}, "QOSReserved", True),
        ({"SELinuxMount": True}, "SELinuxMount", True),
        ({}, "SELinuxMount", False),
        ({"CSIVolumeHealth": True}, "CSIVolumeHealth", False),
        ({"AllAlpha": True}, "QOSReserved", False),
        ({"AllAlpha": True} | OTHER_ALPHA, "QOSReserved", True),
        ({"AllAlpha": True, "QOSReserved": False} | OTHER_ALPHA, "QOSReserved", False),
        ({"AllAlpha": True}, "GracefulNodeShutdown", True),
        ({"AllBeta": False}, "GracefulNodeShutdown", False),
        ({"AllBeta": False, "GracefulNodeShutdown": True}, "GracefulNodeShutdown", True),
        ({"AllBeta": True} | OTHER_BETA, "ClusterTrustBundleProjection", True),
        ({"AllBeta": False}, "QOSReserved", False),
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
    assert len(list(check({"Xyzzy": True, "NodeSwap": False, "QOSReserved": True, "CSIVolumeHealth": True}))) == 3


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"NodeSwap": True}, "Setting GA feature gate NodeSwap=true. It will be removed in a future release."),
        (
            {"AllowDNSOnlyNodeCSR": False},
            "Setting deprecated feature gate AllowDNSOnlyNodeCSR=false. It will be removed in a future release.",
        ),
        ({"QOSReserved": True}, None),
        ({"NodeSwap": False}, None),
    ],
)
def test_the_kubelets_warnings(entries: dict[str, bool], message: str | None) -> None:
    assert [problem.message for problem in warnings(entries)] == ([message] if message else [])


def test_every_gate_has_one_verdict_with_a_reason() -> None:
    assert set(verdicts()) == set(known())
    assert all(verdict.why for verdict in verdicts().values())


def test_each_built_gate_names_a_test_that_exists() -> None:
    for name, verdict in verdicts().items():
        assert bool(verdict.test) == verdict.kind.startswith("built") or verdict.kind == "graduated", name
        assert not verdict.test or (ROOT / verdict.test).is_file(), f"{name}: {verdict.test}"


def test_graduated_gates_are_those_that_are_locked() -> None:
    for name, verdict in verdicts().items():
        if verdict.kind != "without meaning here":
            assert (verdict.kind == "graduated") == known()[name].locked, name


def test_each_gate_that_the_agent_reads_is_switchable() -> None:
    package = ROOT / "supervisor/config/kubeletconfig"
    source = "".join(file.read_text() for file in package.rglob("*.py") if file.parent.name != "gates")
    read = {name for name in verdicts() if f'enabled("{name}")' in source or f'requirement("{name}")' in source}
    switchable = {name for name, verdict in verdicts().items() if verdict.kind == "built and switchable"}
    assert read <= switchable | {"LoggingAlphaOptions"}
    assert all(f'"{name}"' in source for name in switchable)


def test_the_page_of_gates_is_current() -> None:
    current = gates_page.PATH.read_text(encoding="utf-8")
    assert current == gates_page.markdown(), "run python -m supervisor.config.kubeletconfig.gates_page"


def test_gate_of_another_way_to_a_result_has_no_effect() -> None:
    entries = {"PodAndContainerStatsFromCRI": True}
    assert list(check(entries)) == []
    (warning,) = warnings(entries)
    assert warning.message == "has no effect: figures come from cgroups, not from the runtime; remove it"
    assert ("PodAndContainerStatsFromCRI", "ALPHA", False) in in_effect(entries)
    others = {name: False for name in OTHER_ALPHA if name not in entries}
    assert list(check({"AllAlpha": True} | others)) == []


@pytest.mark.parametrize("name", [name for name, verdict in verdicts().items() if verdict.is_missing])
def test_gate_that_is_not_built_is_refused_or_warned_of(name: str) -> None:
    refused, warned = [[problem.message for problem in told({name: True})] for told in (check, warnings)]
    if known()[name].default or verdicts()[name].kind == "not needed":
        assert refused == []
        assert warned == [f"has no effect: {verdicts()[name].why}; remove it"]
    else:
        assert len(refused) == 1
        assert refused[0].endswith("; remove it")
        assert warned == []
        assert not Gates({name: True}).enabled(name)


@pytest.mark.parametrize(
    "name", [name for name, gate in known().items() if verdicts()[name].is_missing and not gate.locked]
)
def test_gate_that_is_not_built_may_be_switched_off(name: str) -> None:
    assert list(check({name: False})) == []
    assert [problem.message for problem in warnings({name: False}) if "no effect" in problem.message] == []


@pytest.mark.parametrize("name", [name for name, verdict in verdicts().items() if verdict.kind == "built and on"])
def test_gate_that_is_always_on_is_warned_of_when_off(name: str) -> None:
    (warning,) = warnings({name: False})
    assert warning.message == f"has no effect: {name} cannot be switched off here; remove it"
    assert list(check(with_needs(name, value=False))) == []
    assert warnings({name: True}) == list(check({name: True})) == []


@pytest.mark.parametrize(
    "name", [name for name, verdict in verdicts().items() if verdict.kind == "built and switchable"]
)
def test_switchable_gate_is_switched_without_a_warning(name: str) -> None:
    for value in (True, False) if not name.startswith("All") else ():
        assert list(check(with_needs(name, value))) == []
        assert [problem.message for problem in warnings({name: value}) if "no effect" in problem.message] == []
        assert Gates({name: value}).enabled(name) is value


def test_gate_of_another_program_is_accepted_silently() -> None:
    entries = {"StorageVersionAPI": True, "ClusterTrustBundle": True, "WatchList": False, "HPAScaleToZero": True}
    assert list(check(entries)) == warnings(entries) == []


def test_group_that_switches_on_what_is_not_built_is_refused() -> None:
    (refusal,) = check({"AllBeta": True})
    assert refusal.message == (
        "cannot set feature gate AllBeta to true: it switches on LocalStorageCapacityIsolationFSQuotaMonitoring, "
        "which are not built here; set the gates that you need one by one"
    )
    assert list(check({"AllBeta": True} | OTHER_BETA)) == []
    assert " more, which are not built" in next(check({"AllAlpha": True})).message


def test_group_that_is_off_names_the_gates_that_stay_on() -> None:
    (warning,) = warnings({"AllBeta": False})
    assert warning.message.startswith("does not switch off ComponentFlagz, ComponentStatusz, ")
    assert warning.message.endswith("more; these are always on here")


def test_no_entry_is_no_warning() -> None:
    assert warnings({}) == list(check({})) == []


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            {"ClusterTrustBundleProjection": True},
            "featureGates.ClusterTrustBundleProjection: ClusterTrustBundleProjection is enabled, but depends on "
            "features that are disabled: [ClusterTrustBundle]; enable these too, or disable "
            "ClusterTrustBundleProjection",
        ),
        (
            {"ResourceHealthStatus": False},
            "featureGates.ResourceHealthStatus: ResourceHealthStatusMessage is enabled, but depends on features that "
            "are disabled: [ResourceHealthStatus]; enable these too, or disable ResourceHealthStatusMessage",
        ),
        (
            {"AllBeta": False, "RestartAllContainersOnContainerExits": True},
            "featureGates.RestartAllContainersOnContainerExits: RestartAllContainersOnContainerExits is enabled, but "
            "depends on features that are disabled: [ContainerRestartRules NodeDeclaredFeatures]; enable these too, or "
            "disable RestartAllContainersOnContainerExits",
        ),
        ({"AllBeta": False, "WorkloadWithJob": True}, "[GenericWorkload]"),
        ({"AllAlpha": True, "GenericWorkload": False} | OTHER_ALPHA, "featureGates.GenericWorkload: GangSch"),
        ({"AllBeta": False, "PodLevelResourceManagers": True}, "[PodLevelResources]"),
    ],
)
def test_gate_that_needs_a_disabled_one_is_refused(entries: dict[str, bool], expected: str) -> None:
    assert any(expected in str(problem) for problem in check(entries)), list(check(entries))


@pytest.mark.parametrize(
    "entries",
    [
        {"AllBeta": False},
        {"AllBeta": False, "GracefulNodeShutdown": True},
        {"ClusterTrustBundleProjection": True, "ClusterTrustBundle": True},
        {"AllBeta": True, **OTHER_BETA},
        {"ResourceHealthStatus": False, "ResourceHealthStatusMessage": False},
    ],
)
def test_gates_with_their_needs_are_accepted(entries: dict[str, bool]) -> None:
    assert list(check(entries)) == []


def test_refused_entry_is_reported_without_its_dependencies() -> None:
    assert len(list(check({"ResourceHealthStatus": False, "Xyzzy": True}))) == 1


def test_needed_gates_are_known_and_not_locked() -> None:
    assert all(not known()[one].locked for needed in NEEDS.values() for one in needed)
    assert set(NEEDS) <= set(known())


def test_requirement_says_whether_the_gate_can_be_enabled() -> None:
    assert "enable it in featureGates" in requirement("QOSReserved")
    assert "not built here; remove the field" in requirement("CSIVolumeHealth")
