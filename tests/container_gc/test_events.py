"""Each removal is an event, and so is a difference of a pass from its plan."""

import pytest

from proto.node.container_gc import CollectGarbage, PlanCollection
from tests.container_gc.node import Node, container, recorded, sandbox
from tests.image_gc.runtime import ListRuntime


@pytest.mark.needs("cgroups")
def test_each_removal_is_an_event_with_rule_age_and_bytes(node: Node, runtime: ListRuntime) -> None:
    node.worker("a")
    runtime.containers = {one.id: one for one in (container("a", attempt) for attempt in range(3))}
    runtime.layers["a-main-1"] = 4096
    log = node.logs / "ns_p-a_a/main/1.log"
    log.parent.mkdir(parents=True)
    log.write_text("12345")
    log.with_name("1.log.20260101-000000.gz").write_text("123")
    node.actor.ask(CollectGarbage())
    found = recorded(node, "ContainerRemoved", 2)
    assert {(one.involved.kind, one.involved.name, one.involved.uid, one.type) for one in found} == {
        ("Pod", "p-a", "a", "Normal")
    }
    first, second = sorted(one.message.partition(", created ")[0] for one in found)
    assert first == (
        "Removed dead container main (a-main-0) of an unknown number of bytes and 0 bytes of logs: over the limits"
    )
    assert second == "Removed dead container main (a-main-1) of 4096 bytes and 8 bytes of logs: over the limits"


@pytest.mark.needs("cgroups")
def test_each_sandbox_that_goes_is_an_event(node: Node, runtime: ListRuntime) -> None:
    node.leave("ghost")
    one = sandbox("ghost", ready=False)
    one.labels.update({"io.kubernetes.pod.name": "p-ghost", "io.kubernetes.pod.namespace": "ns"})
    runtime.sandboxes[one.id] = one
    node.actor.ask(CollectGarbage())
    (told,) = recorded(node, "SandboxRemoved")
    assert (told.involved.namespace, told.involved.name, told.involved.uid) == ("ns", "p-ghost", "ghost")
    assert told.message.startswith("Removed sandbox sandbox-ghos (attempt 0): its pod is gone, created ")


@pytest.mark.needs("cgroups")
def test_a_pass_tells_how_it_differs_from_the_plan(node: Node, runtime: ListRuntime) -> None:
    node.worker("a")
    runtime.containers = {one.id: one for one in (container("a", attempt) for attempt in range(3))}
    assert [one.id for one in node.actor.ask(PlanCollection()).victims] == ["a-main-0", "a-main-1"]
    runtime.stuck.add("a-main-0")
    del runtime.containers["a-main-1"]
    node.actor.ask(CollectGarbage())
    (told,) = recorded(node, "PlanChanged")
    assert "container a/main: was over the limits, is gone" in told.message
