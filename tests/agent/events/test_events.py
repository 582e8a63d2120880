"""Events of pods on containerd, field by field as those of a kubelet, and their display by the CLI.

tests/events/golden.json was written by the kubelet of Kubernetes 1.36.2 on such a machine, without counts and times.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from proto.pods.events import ListEvents
from proto.v1 import to_dict
from supervisor.sockets.client import Client
from tests.agent.agent import SLEEP, Agent, container, is_ready, pod
from tests.agent.api_source import ApiSource
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

GOLDEN = json.loads((Path(__file__).parents[2] / "events" / "golden.json").read_text())
BUSYBOX = "docker.io/library/busybox:latest"
HTTPD = "mkdir -p /w; echo ok > /w/i; exec httpd -f -p 8080 -h /w"
PATIENT = {"timeoutSeconds": 10}
"""A long timeout: slowness of a busy machine is no failure, and no event."""
QUICK = {"periodSeconds": 1, **PATIENT}

PODS: dict[str, dict[str, Any]] = {
    "crashing": pod("crashing", container("c", "exit 3")),
    "deadline": pod("deadline"),
    "done": pod("done", container("c", "exit 0"), restartPolicy="Never"),
    "failed": pod("failed", container("c", "exit 3"), restartPolicy="Never"),
    "inits": pod(
        "inits",
        container("main"),
        initContainers=[container("first", "exit 0"), container("side", restartPolicy="Always")],
    ),
    "nocommand": pod("nocommand", container("c") | {"command": ["/no/such"]}),
    "nomap": pod(
        "nomap",
        container("c", env=[{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "missing", "key": "k"}}}]),
    ),
    "nopull": pod(
        "nopull",
        container("c") | {"image": "example.invalid/none:1"},
        container("never") | {"image": "example.invalid/none:2", "imagePullPolicy": "Never"},
    ),
    "probed": pod(
        "probed",
        container(
            "web", HTTPD, readinessProbe={"httpGet": {"path": "/i", "port": 8080}, **PATIENT, "initialDelaySeconds": 5}
        ),
    ),
    "rootless": pod("rootless", securityContext={"runAsNonRoot": True}),
    "toobig": pod("toobig", container("c", resources={"requests": {"cpu": "64"}})),
    "unready": pod(
        "unready",
        container(
            "c",
            # Alive from its second life on: a further end would be told as a back-off, if all takes long.
            f"test -e /v/lived && touch /alive; touch /v/lived; {SLEEP}",
            volumeMounts=[{"name": "v", "mountPath": "/v"}],
            readinessProbe={"tcpSocket": {"port": 9}, **QUICK},
            livenessProbe={"exec": {"command": ["test", "-e", "/alive"]}, **PATIENT, "periodSeconds": 4},
        ),
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
}


@pytest.fixture(scope="module")
def agent(containerd: ContainerdInstance) -> Iterator[Agent]:
    """An agent whose pods have been through what the golden ones have been through."""
    with closing(Agent(containerd, api=True)) as one:
        one.start("--cluster-dns=10.96.0.10")
        one.write("static", pod("static") | {"metadata": {"name": "static", "namespace": "golden"}})
        wait_for(lambda: is_ready(one.pod("static")), 60, "static is ready")
        one.stop()
        for sandbox in one.sandboxes():
            containerd.cri.stop_pod_sandbox(sandbox).result()
        one.start("--cluster-dns=10.96.0.10")
        with closing(ApiSource(one)) as api:
            for manifest in PODS.values():
                manifest["metadata"]["namespace"] = "golden"
                api.add(manifest)
            wait_for(lambda: is_ready(one.pod("deadline")), 60, "a pod runs that is to end by its deadline")
            api.update("deadline", active_deadline_seconds=1)
            with Client(one.run_dir) as client, contextlib.suppress(AssertionError):  # the first test says what differs
                wait_for(lambda: not EXPECTED - actual(client), 90)
            yield one


def row(pod_name: str, event: dict[str, Any], path: str | None) -> tuple[str, ...]:
    """Return the comparable fields, with variable parts of messages replaced."""
    message = event["message"]
    for pattern, word in (
        (r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID"),
        (r"\d+\.\d+\.\d+\.\d+:", "IP:"),
        (r"(?<=/none/manifests/1\": ).*", "..."),
        (r"used: \d+, capacity: \d+", "used, capacity"),
        # containerd 1.x, which the kubelet of the golden ones had, and 2.x
        (r'failed to resolve (reference "[^"]+"|image):', "failed to resolve:"),
        (r"no such file or directory: unknown$", "no such file or directory"),
    ):
        message = re.sub(pattern, word, message)
    source = json.dumps(event["source"], sort_keys=True)
    reporting = (event["reportingComponent"], event["reportingInstance"])
    return (pod_name, path or "", event["type"], event["reason"], message, source, *reporting)


EXPECTED = {row(one["pod"], one, one["fieldPath"]) for one in GOLDEN}


OWN = {"ContainerRemoved", "SandboxRemoved"}
"""Reasons of this agent alone: each removal of a container is told with its reason, age and bytes."""


def actual(client: Client) -> set[tuple[str, ...]]:
    events = (to_dict(one) for one in client.ask("events", ListEvents()).events)
    pods = (one for one in events if one["involvedObject"]["kind"] == "Pod" and one["reason"] not in OWN)
    return {row(one["involvedObject"]["name"], one, one["involvedObject"].get("fieldPath")) for one in pods}


def differences(rows: set[tuple[str, ...]]) -> str:
    return "\n".join(" | ".join(one) for one in sorted(rows))


def test_pods_have_exactly_the_events_of_a_kubelet(agent: Agent) -> None:
    with Client(agent.run_dir) as client:
        found = actual(client)
    assert (differences(found - EXPECTED), differences(EXPECTED - found)) == ("", "")


def listed(agent: Agent, *options: str) -> list[dict[str, Any]]:
    found = yaml.safe_load(agent.command("events", "-o", "yaml", *options).stdout)
    assert (found["apiVersion"], found["kind"]) == ("v1", "EventList")
    return list(found["items"])


def test_cli_shows_events_of_one_object_type_or_namespace(agent: Agent) -> None:
    done = listed(agent, "--for", "pod/done")
    assert [(one["reason"], one["count"]) for one in done] == [("Pulled", 1), ("Created", 1), ("Started", 1)]
    assert {one["type"] for one in listed(agent, "--types", "Warning")} == {"Warning"}
    assert {one["metadata"]["namespace"] for one in listed(agent, "-n", "golden")} == {"golden"}
    starts = [one for one in listed(agent, "--for", "node/vm") if one["reason"] == "Starting"]
    assert [(one["message"], one["count"]) for one in starts] == [("Starting kubelet.", 2)]  # the agent was twice
    assert listed(agent, "--for", "pod/static") == listed(agent, "--for", "pod/golden/static-vm") != []


def test_the_table_has_kubectls_columns(agent: Agent) -> None:
    header, *lines = agent.command("events", "--for", "pod/done").stdout.splitlines()
    assert header.split("   ")[0] == "NAMESPACE"
    assert [word.strip() for word in header.split("  ") if word] == [
        "NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE",
    ]  # fmt: skip
    assert [line.split()[2:] for line in lines[1:]] == [
        ["Normal", "Created", "pod/done", "Container", "created"],
        ["Normal", "Started", "pod/done", "Container", "started"],
    ]


def test_describing_a_pod_ends_with_its_events(agent: Agent) -> None:
    described = agent.command("describe", "pod", "crashing", "-n", "golden").stdout
    assert "Name:         crashing" in described
    assert "    Last State:     Terminated" in described or "    State:          Terminated" in described
    events = described.partition("Events:\n")[2].splitlines()
    assert events[0].split() == ["Type", "Reason", "Age", "From", "Message"]
    assert {line.split()[1] for line in events[1:]} - OWN == {"Pulled", "Created", "Started", "BackOff"}
    assert all(" kubelet " in line for line in events[1:])


def test_watch_continues_over_a_killed_events_actor(agent: Agent) -> None:
    command = [sys.executable, "-m", "supervisor", "events", "-w", "-o", "json", "--for", "actor/events"]
    with subprocess.Popen([*command, "--run-dir", str(agent.run_dir)], stdout=subprocess.PIPE, text=True) as watch:
        try:
            wait_for(
                lambda: json.loads(agent.command("describe", "events", "-o", "json").stdout)["state"]["watchers"] == 1,
                20,
            )
            os.kill(agent.rows()["events"]["pid"], signal.SIGKILL)
            assert watch.stdout is not None
            event = json.loads(watch.stdout.readline())
        finally:
            watch.kill()
    assert (event["reason"], event["source"]["component"]) == ("Started", "nodevisor")
    assert re.fullmatch(r"#\d+ is in service after #\d+", event["message"])


def test_a_killed_actor_is_an_event_of_its_own(agent: Agent) -> None:
    os.kill(agent.rows()["stats"]["pid"], signal.SIGKILL)
    wait_for(lambda: len(listed(agent, "--for", "actor/stats")) >= 2, 20)
    died, started = listed(agent, "--for", "actor/stats")[-2:]
    assert (died["type"], died["reason"]) == ("Warning", "Died")
    assert died["message"].startswith("killed by SIGKILL")
    assert (started["type"], started["reason"]) == ("Normal", "Started")
