"""Order of calls, affinities and errors of the scopes, with providers that record."""

from collections.abc import Collection
from typing import Any

import pytest

from actors._metrics.kubelet import ALIGNED, ALIGNMENT_FAILURES
from actors.resources.model.counting import Counted
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.provider import AllocationError, NotYetError
from actors.resources.topology.policy import Policy, Scope, Settings
from actors.resources.topology.scope import admit, count_aligned, series
from proto import v1
from proto.resources.grants import Grant
from proto.v1 import Container, Pod
from tests.resources.hints import finish, hint, provider


class Recorder:
    """A provider that gives fixed hints per container, writes down its calls, and fails on one container."""

    def __init__(self, name: str, log: list[str], given: dict[str, Hints], errors: dict[str, Exception]) -> None:
        self.name, self.log, self.given, self.errors = name, log, given, errors

    def container_hints(self, pod: Pod, container: Container) -> Hints:  # noqa: ARG002
        self.log.append(f"{self.name} hints {container.name}")
        return self.given.get(container.name, {})

    def pod_hints(self, pod: Pod) -> Hints:  # noqa: ARG002
        self.log.append(f"{self.name} pod hints")
        return self.given.get("pod", {})

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> None:  # noqa: ARG002
        nodes = "*" if affinity.nodes is None else "".join(map(str, sorted(affinity.nodes)))
        self.log.append(f"{self.name} {container.name} {nodes}{'+' if affinity.preferred else '-'}")
        if container.name in self.errors:
            raise self.errors[container.name]

    def release(self, pod_uid: str) -> None:  # noqa: ARG002
        self.log.append("release")

    def retain(self, pod_uids: Collection[str]) -> None:  # noqa: ARG002
        self.log.append("retain")

    def grant(self, pod: Pod, container: Container) -> Grant:  # noqa: ARG002
        return Grant()


def pod(*names: str, init: tuple[str, ...] = (), own: bool = False) -> Pod:
    """`own`: with resources at the level of the pod."""
    spec: dict[str, Any] = {
        **({"resources": {"requests": {"cpu": "2"}}} if own else {}),
        "containers": [{"name": name} for name in names],
        "initContainers": [{"name": name} for name in init],
    }
    return v1.from_dict(Pod, {"metadata": {"name": "p", "uid": "u"}, "spec": spec})


def run(
    subject: Pod,
    policy: Policy,
    scope: Scope = "container",
    cpu: dict[str, Hints] | None = None,
    memory: dict[str, Hints] | None = None,
    errors: dict[str, Exception] | None = None,
    *,
    pod_level: bool = False,
) -> list[str]:
    log: list[str] = []
    providers = [Recorder("cpu", log, cpu or {}, errors or {}), Recorder("memory", log, memory or {}, {})]
    finish(admit(subject, providers, Settings(policy, scope, {}, frozenset({0, 1}), pod_level=pod_level)))
    return log


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_policy_none_asks_for_no_hints(scope: Scope) -> None:
    log = run(pod("a", init=("i",)), "none", scope, cpu={"a": provider(cpu="0+")})
    assert log == ["cpu i *-", "memory i *-", "cpu a *-", "memory a *-"]


def test_container_scope_merges_for_each_container() -> None:
    log = run(
        pod("a", init=("i",)),
        "best-effort",
        cpu={"i": provider(cpu="1+ 01-"), "a": provider(cpu="0+ 1+")},
        memory={"a": provider(memory="1+ 01-")},
    )
    assert log == [
        "cpu hints i",
        "memory hints i",
        "cpu i 1+",
        "memory i 1+",
        "cpu hints a",
        "memory hints a",
        "cpu a 1+",
        "memory a 1+",
    ]


def test_pod_scope_merges_once_and_allocates_each_container() -> None:
    log = run(pod("a", "b", init=("i",)), "restricted", "pod", cpu={"pod": provider(cpu="0+ 1+")})
    assert log[:2] == ["cpu pod hints", "memory pod hints"]
    assert log[2:] == ["cpu i 0+", "memory i 0+", "cpu a 0+", "memory a 0+", "cpu b 0+", "memory b 0+"]


def test_pod_without_containers_allocates_nothing() -> None:
    assert run(pod(), "single-numa-node") == []


NO_LOCALITY = "Resources cannot be allocated with Topology locality"
BEGIN = "Pod Scope pod with pod-level resources failed admission"


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
@pytest.mark.parametrize(
    ("scope", "own", "pod_level", "message"),
    [
        ("container", False, True, NO_LOCALITY),
        ("container", True, False, NO_LOCALITY),
        ("container", True, True, f"{BEGIN} with a container-level topology manager"),
        ("pod", False, True, NO_LOCALITY),
        ("pod", True, False, NO_LOCALITY),
        ("pod", True, True, f"{BEGIN} under pod-scope topology manager"),
    ],
)
def test_unaligned_pod_is_rejected_in_upstreams_words(
    policy: Policy, scope: Scope, own: bool, pod_level: bool, message: str
) -> None:
    given = {"a": provider(cpu="0+"), "pod": provider(cpu="0+")}
    other = {"a": provider(memory="1+"), "pod": provider(memory="1+")}
    with pytest.raises(AllocationError) as caught:
        run(pod("a", own=own), policy, scope, given, other, pod_level=pod_level)
    assert caught.value.reason == "TopologyAffinityError"
    assert caught.value.message == message
    counts = ((ALIGNMENT_FAILURES, (scope, "numa_node")),)
    assert caught.value.counts == (counts if policy == "single-numa-node" else ())


@pytest.mark.parametrize(
    ("policy", "scope", "shown", "counted"),
    [
        ("none", "container", 0, {}),
        ("best-effort", "pod", 4, {}),
        ("restricted", "pod", 4, {}),
        ("single-numa-node", "pod", 4, {("pod", "numa_node"): (1.0,)}),
        ("single-numa-node", "container", 4, {("container", "numa_node"): (3.0,)}),
    ],
)
def test_only_one_policy_counts_aligned_pods(
    policy: Policy, scope: Scope, shown: int, counted: dict[tuple[str, str], tuple[float]]
) -> None:
    settings = Settings(policy, scope, {}, frozenset({0, 1}))
    assert len(set(series(settings))) == shown
    ALIGNED.replace(())
    seen = Counted()
    for _ in range(2):
        count_aligned(pod("a", "b", init=("i",)), settings, seen)
    assert ALIGNED.take() == counted


@pytest.mark.parametrize(
    ("scope", "failed", "expected"),
    [
        ("container", "i", {}),
        ("container", "a", {("container", "numa_node"): (1.0,)}),
        ("container", "b", {("container", "numa_node"): (2.0,)}),
        ("pod", "b", {}),
    ],
)
def test_containers_before_the_failing_one_count(
    scope: Scope, failed: str, expected: dict[tuple[str, str], tuple[float]]
) -> None:
    with pytest.raises(AllocationError) as caught:
        run(
            pod("a", "b", init=("i",)), "single-numa-node", scope, errors={failed: AllocationError("Reason", "message")}
        )
    ALIGNED.replace(())
    settings = Settings("single-numa-node", scope, {}, frozenset({0, 1}))
    count_aligned(pod("a", "b", init=("i",)), settings, Counted(), caught.value)
    assert ALIGNED.take() == expected


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_best_effort_admits_an_unaligned_pod(scope: Scope) -> None:
    given = {"a": provider(cpu="0+"), "pod": provider(cpu="0+")}
    other = {"a": provider(memory="1+"), "pod": provider(memory="1+")}
    assert run(pod("a"), "best-effort", scope, given, other)[-2:] == ["cpu a 01-", "memory a 01-"]


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("error", [AllocationError("SMTAlignmentError", "no"), NotYetError("wait")])
def test_providers_error_passes_through(policy: Policy, scope: Scope, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run(pod("a", "b"), policy, scope, errors={"a": error})
    assert caught.value is error


def test_rejected_second_container_is_not_allocated() -> None:
    log: list[str] = []
    cpu = Recorder("cpu", log, {"a": provider(cpu="0+"), "b": provider(cpu="")}, {})
    with pytest.raises(AllocationError):
        finish(admit(pod("a", "b"), [cpu], Settings("restricted", "container", {}, frozenset({0, 1}))))
    assert log == ["cpu hints a", "cpu a 0+", "cpu hints b"]


def test_notation_of_the_tables() -> None:
    assert hint("01-") == Hint(frozenset({0, 1}), preferred=False)
