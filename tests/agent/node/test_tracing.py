"""Traces of a whole agent, in a real OTLP collector of the test's own."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest
import yaml

from tests.agent.agent import SLEEP, Agent, container, is_ready, pod
from tests.agent.embedded import embedded_agent
from tests.harness import Stalls, wait_for
from tests.ports import free_ports
from tests.tracing.collector import Collector, Seen, collector

pytestmark = pytest.mark.timeout(300)

STEPS = ("startPod", "syncPod")
"""Spans that only sum up others."""
LONGEST_GAP_NS = 20_000_000
STARTS = 3
"""Starts of a pod until one has no gap: what keeps an actor from its CPU has no span."""


def gaps(trace: list[Seen]) -> list[tuple[int, str]]:
    """Stretches of the pod's start that no span explains: nanoseconds, and the span before."""
    whole = next(span for span in trace if span.name == "startPod")
    parts = sorted((span for span in trace if span.name not in STEPS), key=lambda span: span.began_ns)
    found, until, last = [], whole.began_ns, "the start"
    for part in parts:
        if part.began_ns > until:
            found.append((min(part.began_ns, whole.ended_ns) - until, f"{last} .. {part.name}"))
        if part.ended_ns > until:
            until, last = part.ended_ns, part.name
    return [*found, (whole.ended_ns - until, f"{last} .. ready")]


def long_gaps(trace: list[Seen], stalled_s: float) -> list[tuple[int, str]]:
    """The gaps beyond LONGEST_GAP_NS and the time that the machine stood still."""
    longest_ns = LONGEST_GAP_NS + int(stalled_s * 1e9)
    return [gap for gap in gaps(trace) if gap[0] > longest_ns]


def configured(agent: Agent, tracing: dict[str, Any]) -> None:
    agent.config.write_text(yaml.safe_dump(yaml.safe_load(agent.config.read_text()) | {"tracing": tracing}))


def test_start_of_a_pod_is_one_trace_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    with (
        collector() as seen,
        embedded_agent(
            prepare=lambda agent: configured(
                agent, {"endpoint": f"127.0.0.1:{seen.port}", "samplingRatePerMillion": 1_000_000}
            )
        ) as agent,
    ):
        for number in range(STARTS):
            with Stalls() as stalls:
                trace = trace_of_start(agent, seen, f"traced{number}")
            is_whole(trace, f"traced{number}-vm")
            long = long_gaps(trace, stalls.longest_s)
            if not long:
                return
    assert long == [], table(trace)


def trace_of_start(agent: Agent, seen: Collector, name: str) -> list[Seen]:
    """Start a pod with a volume and a probe, and return the spans of its start."""
    readiness = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    volume = {"name": "v", "mountPath": "/v"}
    manifest = pod(name, container("c", SLEEP, readinessProbe=readiness, volumeMounts=[volume]))
    manifest["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    seen.spans.clear()
    agent.write(name, manifest)
    wait_for(lambda: is_ready(agent.pod(name)), 60, f"the pod is ready; log: {agent.log}")
    trace: list[Seen] = wait_for(lambda: settled(seen, "startPod"), 30, "the whole trace of the start arrives")
    return trace


def is_whole(trace: list[Seen], pod_name: str) -> None:
    """Assert that the spans of the pod's start are one tree."""
    known = {span.identity for span in trace}
    assert {span.parent for span in trace} <= known | {""}
    assert [span.name for span in trace if not span.parent] == ["startPod"]
    root = next(span for span in trace if not span.parent)
    assert (root.attributes["k8s.pod.name"], root.resource["service.name"]) == (pod_name, "kubelet")


SPANS = {
    "startPod", "readPod", "admitPod", "syncPod", "createSandbox", "startContainer", "volume/MountPod",
    "image_pull/EnsureImage", "runtime.v1.RuntimeService/RunPodSandbox",
    "runtime.v1.RuntimeService/CreateContainer", "runtime.v1.RuntimeService/StartContainer",
}  # fmt: skip
OF_ACTORS = {"config", "pod_workers", "volume", "image_pull", "status", "probe"}
"""A start of a pod has all these spans, and some of each of these actors."""


def settled(seen: Collector, name: str) -> list[Seen]:
    """The trace, once it has all SPANS, and no further one has arrived for a while."""
    trace = seen.trace_of(name)
    names, actors = {span.name for span in trace}, {span.actor for span in trace}
    is_whole = names >= SPANS and actors >= OF_ACTORS
    if is_whole and {span.parent for span in trace} <= {span.identity for span in trace} | {""}:
        time.sleep(0.8)  # two batches: an actor's last spans may come after the first one's
        return trace if len(seen.trace_of(name)) == len(trace) else []
    return []


def table(trace: list[Seen]) -> str:
    began = min(span.began_ns for span in trace)
    lines = [
        f"{(span.began_ns - began) / 1e6:9.1f} {(span.ended_ns - began) / 1e6:9.1f} {span.actor:12} {span.name}"
        for span in sorted(trace, key=lambda span: span.began_ns)
    ]
    return json.dumps(lines, indent=0)


def test_request_continues_its_senders_trace_and_others_are_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    (port,) = free_ports(1)
    with (
        collector() as seen,
        embedded_agent(
            "--page-address", f"127.0.0.1:{port}",
            prepare=lambda agent: configured(agent, {"endpoint": f"127.0.0.1:{seen.port}"}),
        ) as agent,
    ):  # fmt: skip
        agent.write("untraced", pod("untraced"))
        wait_for(lambda: is_ready(agent.pod("untraced")), 60, f"the pod is ready; log: {agent.log}")
        headers = {"traceparent": "00-" + "ab" * 16 + "-" + "01" * 8 + "-01"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/stats/summary", headers=headers)
        wait_for(lambda: answered(request), 20, "the server answers")
        names = {"GET /stats/summary", "stats/GetSummary"}
        wait_for(lambda: names <= {span.name for span in list(seen.spans)}, 20, "the request's spans arrive")
        assert {span.trace for span in list(seen.spans)} == {"ab" * 16}
        first = next(span for span in list(seen.spans) if span.name == "GET /stats/summary")
        assert (first.actor, first.parent, first.attributes["http.route"]) == ("server", "01" * 8, "/stats/summary")


def answered(request: urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
