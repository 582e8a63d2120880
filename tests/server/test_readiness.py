"""The readiness history of pods: changes, bounds, and pods that are gone."""

from __future__ import annotations

import json

import pytest

from actors.server import readiness
from actors.server.readiness import ReadinessHistory
from proto.node.server import ServedPod


def served(uid: str, ready: str, since: str = "2026-01-01T00:00:00Z") -> ServedPod:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": since}]
    document = json.dumps({"metadata": {"name": uid}, "status": {"conditions": conditions}}).encode()
    return ServedPod(uid=uid, namespace="default", name=uid, document=document)


START = 1767225600.0
"""2026-01-01T00:00:00Z"""


def test_changes_are_kept_with_their_times() -> None:
    history = ReadinessHistory()
    for ready, at in (("False", 10.0), ("False", 20.0), ("True", 30.0), ("True", 40.0)):
        history.take(served("a", ready), START + at)
    assert history.shown(START + 50) == [
        {"name": "default/a", "changes": [[START, False], [START + 30, True]], "gone": None}
    ]


def test_gone_pod_is_shown_for_an_hour() -> None:
    history = ReadinessHistory()
    history.take(served("a", "True"), START)
    history.remove("a", START + 1)
    history.remove("unknown", START + 1)
    assert history.shown(START + 100)[0]["gone"] == START + 1
    assert history.shown(START + 2 + readiness.KEPT_S) == []


def test_pods_and_changes_are_bounded() -> None:
    history = ReadinessHistory()
    for number in range(readiness.MOST_PODS + 10):
        history.take(served(f"p{number}", "True"), START)
    for number in range(readiness.MOST_CHANGES * 2):
        history.take(served("last", str(bool(number % 2))), START + number)
    shown = history.shown(START + 1000)
    assert len(shown) <= readiness.MOST_PODS
    assert max(len(one["changes"]) for one in shown) == readiness.MOST_CHANGES


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b'{"status":{}}', b'{"status":{"conditions":[{"type":5}]}}'])
def test_strange_document_is_left_out(document: bytes) -> None:
    history = ReadinessHistory()
    history.take(ServedPod(uid="a", namespace="d", name="a", document=document), START)
    assert history.shown(START) == []
