"""The requests of an httpGet hook."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future
from actors._net.probing.outcome import Outcome
from actors._net.probing.target import Url
from actors.pod_workers.model.view import PodView
from actors.pod_workers.steps.hooks import NOT_TLS, HookFailedError, Hooks
from proto.v1 import HTTPHeader, Pod
from proto.v1.codec import from_dict

CREDENTIAL = {"name": "auTHorization", "value": "Bearer secret"}
OTHER = {"name": "X-Hook", "value": "yes"}


class Plain:
    """A server without TLS, or a port that refuses connections, and the requests that it got."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.asked: list[tuple[str, list[str]]] = []

    def get(self, url: Url, headers: Sequence[HTTPHeader], _: float) -> Future[Outcome]:
        self.asked.append((url.scheme, [header.name for header in headers]))
        answer: Future[Outcome] = Future()
        answer.set(Outcome("failure", self.problem) if url.scheme == "https" else Outcome("success"))
        return answer


def run(server: Plain, scheme: str) -> list[str]:
    """Run a hook with a credential; return the reasons of its events."""
    action = {"scheme": scheme, "host": "192.0.2.1", "port": 8443, "path": "/x", "httpHeaders": [CREDENTIAL, OTHER]}
    container = {"name": "c", "image": "i", "lifecycle": {"preStop": {"httpGet": action}}}
    pod = from_dict(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    told: list[str] = []
    events = SimpleNamespace(pod=lambda _, __, reason, ___: told.append(reason))
    scope: Any = SimpleNamespace(context=SimpleNamespace(http_hooks=server, events=events, host_ips=()), sleep=None)
    (subject,) = pod.spec.containers
    assert subject.lifecycle is not None
    assert subject.lifecycle.pre_stop is not None
    running = Hooks(scope).run(pod, subject, "id", subject.lifecycle.pre_stop, PodView())
    try:
        while True:
            running.send(None)  # every awaited future is complete
    except StopIteration:
        return told


def test_fallback_to_plain_http_leaves_out_the_credential() -> None:
    server = Plain(f'Get "https://192.0.2.1:8443/x": http: {NOT_TLS}')
    assert run(server, "HTTPS") == ["LifecycleHTTPFallback"]
    assert server.asked == [("https", ["auTHorization", "X-Hook"]), ("http", ["X-Hook"])]


def test_a_hook_of_plain_http_sends_its_credential() -> None:
    server = Plain("")
    assert run(server, "HTTP") == []
    assert server.asked == [("http", ["auTHorization", "X-Hook"])]


def test_another_failure_of_https_has_no_fallback() -> None:
    server = Plain("connection refused")
    with pytest.raises(HookFailedError, match="connection refused"):
        run(server, "HTTPS")
    assert [scheme for scheme, _ in server.asked] == ["https"]
