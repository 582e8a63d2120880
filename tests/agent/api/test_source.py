"""Pods of the API: added, changed under their UID, deleted in grace, forced away, across kills of pod_workers."""

from __future__ import annotations

import time

from tests.agent.agent import SLEEP, container, pod
from tests.agent.api_source import ApiSource
from tests.harness import wait_for

STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
"""Ends by SIGKILL only."""


def kill_pod_workers(api: ApiSource) -> None:
    before = api.agent.rows()["pod_workers"]
    api.agent.command("restart", "pod_workers")
    wait_for(lambda: api.agent.rows()["pod_workers"]["incarnation"] > before["incarnation"], 40, "restarted")
    wait_for(api.agent.all_ready, 40, "in service")


def gone_from_runtime(api: ApiSource, name: str) -> bool:
    return not any(one.startswith(f"{name}/") for one, _ in api.agent.containers().values())


def test_a_pod_from_its_creation_to_its_end(api):
    stored = api.add(pod("web", container("c", SLEEP)))
    api.wait_ready("web")
    shown = api.status("web")
    assert shown.metadata.uid == stored.metadata.uid
    assert shown.status.observed_generation == 1
    running = dict(api.agent.running())
    kill_pod_workers(api)
    assert running.items() <= api.agent.running().items()
    api.update("web", labels={"app": "web", "tier": "front"}, active_deadline_seconds=10_000)
    wait_for(lambda: api.status("web").metadata.labels.get("tier") == "front", 10, "labels are shown")
    wait_for(lambda: api.status("web").status.observed_generation == 2, 10, "and the generation")
    assert running.items() <= api.agent.running().items()
    api.delete("web")
    api.wait_gone("web")
    wait_for(lambda: gone_from_runtime(api, "web"), 10, "nothing is left")


def test_a_deleted_pod_is_shown_as_ended_until_its_object_goes(api):
    # Its shell exits with 2 when the signal arrives while it starts the sleep.
    script = "trap 'exit 0' TERM; sleep 100000 & touch /waits; wait"
    api.add(pod("held", container("c", script, readinessProbe={"exec": {"command": ["test", "-e", "/waits"]}})))
    api.wait_ready("held")
    api.hold.add("held")
    api.delete("held", 10)
    shown = api.wait_phase("held", "Succeeded")
    assert shown.metadata.deletion_grace_period_seconds == 10
    assert shown.status.container_statuses[0].state.terminated.exit_code == 0
    kill_pod_workers(api)
    assert api.wait_phase("held", "Succeeded").status.container_statuses[0].restart_count == 0
    api.hold.discard("held")
    api.wait_gone("held")


def test_later_delete_shortens_the_grace_period_despite_kills(api):
    api.add(pod("stubborn", container("c", STUBBORN)))
    api.wait_ready("stubborn")
    began = time.monotonic()
    api.delete("stubborn", 600)
    time.sleep(0.5)
    kill_pod_workers(api)
    assert not gone_from_runtime(api, "stubborn")
    api.delete("stubborn", 3)
    api.wait_gone("stubborn")
    assert 3 <= time.monotonic() - began < 60


def test_force_deleted_pod_and_a_new_one_of_its_name(api):
    # The second has to run before this one's end, on a machine that may be busy.
    first = api.add(pod("twin", container("c", STUBBORN), terminationGracePeriodSeconds=25))
    api.wait_ready("twin")
    api.remove("twin")
    second = api.add(pod("twin", container("c", SLEEP)))
    cri = api.agent.containerd.cri

    def running() -> set[str]:
        found = cri.list_containers().result()
        return {one.labels["io.kubernetes.pod.uid"] for one in found if one.state == 1}

    wait_for(lambda: running() >= {first.metadata.uid, second.metadata.uid}, 25, "the second waits for nobody")
    wait_for(lambda: running() == {second.metadata.uid}, 60, "the first ends")
    api.delete("twin")
    api.wait_gone("twin")


def test_readiness_gates_hold_a_pod_back_until_others_say_so(api):
    gates = [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]
    api.add(pod("gated", readinessGates=gates))
    wait_for(lambda: api.condition("gated", "ContainersReady") == "True", 30, "its container is ready")
    missing = 'corresponding condition of pod readiness gate "example.com/%s" does not exist.'
    refused = 'the status of pod readiness gate "example.com/b" is not "True", but False'
    said = [
        ({}, f"{missing % 'a'}, {missing % 'b'}"),
        ({"example.com/a": "True"}, missing % "b"),
        ({"example.com/b": "False"}, refused),
    ]
    for given, message in said:
        api.set_conditions("gated", **given)
        expected = ("False", "ReadinessGatesNotReady", message)
        wait_for(lambda expected=expected: ready_condition(api) == expected, 10, f"{expected}: {ready_condition(api)}")
    kill_pod_workers(api)
    assert ready_condition(api) == ("False", "ReadinessGatesNotReady", refused)
    api.set_conditions("gated", **{"example.com/b": "True"})
    api.wait_ready("gated")
    api.delete("gated")
    api.wait_gone("gated")


def ready_condition(api: ApiSource) -> tuple[str, str | None, str | None]:
    shown = api.status("gated")
    found = next(one for one in shown.status.conditions if one.type == "Ready")
    return found.status, found.reason, found.message
