"""The tracing actor as a process, with a real collector and with none."""

from __future__ import annotations

import re
import time

import pytest

from proto.agent.actor import Describe, Ping, Stop
from proto.agent.tracing import EndedSpan, RecordSpans
from tests.floors import cpu_waits_s, longest_wait_s
from tests.harness import ActorProcess, wait_for
from tests.ports import free_ports
from tests.tracing.collector import collector

FIRST = "00-" + "ab" * 16 + "-" + "01" * 8 + "-01"
SECOND = "00-" + "ab" * 16 + "-" + "02" * 8 + "-01"


PATIENT = "from actors.tracing import export; export.CLOSE_S = 20.0\n"
"""At its end it has that time to send: a collector in this process may answer late."""


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")


def spans(count: int = 1) -> RecordSpans:
    one = EndedSpan(
        name="step", kind="client", context=SECOND, parent=FIRST, began_ns=10, ended_ns=20,
        attributes={"rpc.method": "RunPodSandbox"}, error="no network",
    )  # fmt: skip
    return RecordSpans(actor="pod_workers", spans=(one,) * count)


def test_span_arrives_with_its_actor_parent_times_and_error() -> None:
    with collector() as seen, ActorProcess("tracing", tracing_endpoint=f"127.0.0.1:{seen.port}") as actor:
        actor.tell(spans())
        (span,) = wait_for(lambda: list(seen.spans), 30)
    assert (span.name, span.actor, span.trace, span.identity) == ("step", "pod_workers", "ab" * 16, "02" * 8)
    assert (span.parent, span.began_ns, span.ended_ns, span.error) == ("01" * 8, 10, 20, "no network")
    assert span.attributes == {"rpc.method": "RunPodSandbox", "nodevisor.actor": "pod_workers"}
    assert (span.resource["service.name"], span.resource["host.name"]) == ("kubelet", "node")


def test_spans_that_wait_are_sent_when_the_actor_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with (
        collector() as seen,
        ActorProcess("tracing", prelude=PATIENT, tracing_endpoint=f"127.0.0.1:{seen.port}") as actor,
    ):
        actor.tell(spans())
        wait_for(lambda: actor.ask(Describe()).state["spans"] == 1)
        actor.tell(Stop())
        wait_for(lambda: seen.spans, 30)


def test_unreachable_collector_delays_nothing_and_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")  # a late answer would be another outage, with its own line
    (port,) = free_ports(1)
    with ActorProcess("tracing", tracing_endpoint=f"127.0.0.1:{port}") as actor:
        waits, began = cpu_waits_s(actor.pid), time.monotonic()
        for _ in range(6):  # more than its queue holds
            actor.tell(spans(512))
        actor.ask(Ping(), 60)
        took_s = time.monotonic() - began
        assert took_s - longest_wait_s(waits, cpu_waits_s(actor.pid)) < 5
        wait_for(lambda: actor.ask(Describe()).state["failed_batches"] >= 2, 40)
        with collector(port) as seen:

            def answers() -> bool:
                actor.tell(spans())  # again: what is sent before it answers is dropped
                return bool(seen.spans) and not actor.ask(Describe()).state["failed_batches"]

            wait_for(answers, 40)
            said = ""

            def is_told() -> bool:
                nonlocal said
                said += capfd.readouterr().err
                return "takes traces again" in said

            wait_for(is_told, 30, "the line, which comes after the count is 0")
    lines = [line for line in said.splitlines() if "traces" in line]
    assert len(lines) == 2, lines
    assert re.search(r"cannot send traces to 127.0.0.1:\d+: they are dropped until it answers", lines[0])
    assert "takes traces again" in lines[1]
