"""The other endpoints: pods, health, summary, checkpoints, flags, statusz, verbosity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors._base.messaging.futures import Future
from actors.server.routes.zpages import version_of
from actors.server.table import read_only_table, secure_table
from proto.agent.actor import Ping, Pong, SetVerbosity
from proto.node.stats import Document, GetSummary
from proto.pods.status import Pods
from proto.resources.resources import CheckDevicePlugins
from proto.wire.errors import AskTimeout, Refused
from tests.server.routes.here import Here, pod
from tests.server.site import client, read_all, say, site, until


def test_pods_and_running_pods(here: Here) -> None:
    found = json.loads(here.say("GET", "/pods")[1])
    assert (found["kind"], [one["metadata"]["name"] for one in found["items"]]) == ("PodList", ["one", "two"])
    (running,) = json.loads(here.say("GET", "/runningpods/")[1])["items"]
    assert running["metadata"]["name"] == "one"
    assert running["spec"]["containers"] == [{"name": "c", "image": "sha256:1", "resources": {}}]


def test_concurrent_requests_for_pods_share_a_fresh_answer(here: Here) -> None:
    asked: list[Future[Any]] = []

    def ask(*_: Any) -> Future[Any]:
        asked.append(Future())
        return asked[-1]

    here.context._ask = ask
    clients = [client(here.site.plain) for _ in range(10)]
    clients[0].sendall(b"GET /pods HTTP/1.0\r\n\r\n")
    until(lambda: asked)
    for one in clients[1:]:
        one.sendall(b"GET /pods HTTP/1.0\r\n\r\n")
    until(lambda: len(here.site.seen) == 10)
    asked[0].set(Pods(pods=(pod("early"),)))
    assert b"early" in read_all(clients[0])
    until(lambda: len(asked) == 2)
    asked[1].set(Pods(pods=(pod("late"),)))
    assert all(b"late" in read_all(one) for one in clients[1:])
    assert len(asked) == 2
    for one in clients:
        one.close()


def test_excluded_health_checks_are_named(here: Here) -> None:
    assert here.say("GET", "/healthz?verbose&exclude=log&exclude=nosuch")[1].decode().splitlines() == [
        "[+]ping ok",
        "[+]log excluded: ok",
        "[+]syncloop ok",
        "[+]device-plugin ok",
        'warn: some health checks cannot be excluded: no matches for "nosuch"',
        "healthz check passed",
    ]


def test_health_check_results_are_counted_until_a_reset(here: Here) -> None:
    here.say("DELETE", "/metrics/slis")
    assert here.say("GET", "/metrics/slis") == (200, b"")
    here.say("GET", "/healthz")
    here.answers[Ping] = lambda _: AskTimeout("pod_workers did not answer")
    here.say("GET", "/healthz?verbose")
    here.say("GET", "/healthz?exclude=ping&exclude=log")
    here.say("GET", "/healthz/ping")
    samples = {
        (one.name, *(one.labels[name] for name in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(here.say("GET", "/metrics/slis")[1].decode())
        for one in family.samples
    }
    assert samples == {
        ("kubernetes_healthcheck", "device-plugin", "healthz"): 1,
        ("kubernetes_healthchecks_total", "device-plugin", "success", "healthz"): 3,
        ("kubernetes_healthcheck", "log", "healthz"): 1,
        ("kubernetes_healthcheck", "ping", "healthz"): 1,
        ("kubernetes_healthcheck", "syncloop", "healthz"): 0,
        ("kubernetes_healthchecks_total", "log", "success", "healthz"): 2,
        ("kubernetes_healthchecks_total", "ping", "success", "healthz"): 2,
        ("kubernetes_healthchecks_total", "syncloop", "success", "healthz"): 1,
        ("kubernetes_healthchecks_total", "syncloop", "error", "healthz"): 2,
    }
    assert here.say("DELETE", "/metrics/slis") == (200, b"metrics reset\n")
    assert here.say("GET", "/metrics/slis") == (200, b"")
    assert here.say("POST", "/metrics/slis")[0] == 405


@pytest.mark.parametrize(
    ("query", "only"),
    [
        ("?only_cpu_and_memory=true", True),
        ("", False),
        ("?only_cpu_and_memory=", False),
        ("?only_cpu_and_memory=1", False),
        ("?only_cpu_and_memory=t", False),
        ("?only_cpu_and_memory=True", False),
        ("?only_cpu_and_memory=TRUE", False),
        ("?only_cpu_and_memory=false", False),
        ("?only_cpu_and_memory=true&only_cpu_and_memory=true", False),
    ],
)
def test_summary_is_short_for_exactly_one_true(here: Here, query: str, only: bool) -> None:
    here.answers[GetSummary] = lambda _: Document(data=b"{}")
    for method in ("GET", "POST"):
        assert here.say(method, f"/stats/summary{query}") == (200, b"{}")
    assert here.asked == [("stats", GetSummary(only_cpu_and_memory=only))] * 2


def test_a_checkpoint_that_the_runtime_cannot_make(here: Here) -> None:
    status, body = here.say("POST", "/checkpoint/ns/one/c?timeout=5")
    assert status == 500
    assert body.startswith(b"checkpointing of ns/one/c failed (rpc error: code = Unimplemented")
    assert here.runtime.calls == [("checkpoint", "id-one", "checkpoint-one_ns-c-", 5)]
    assert here.say("POST", "/checkpoint/ns/one/c?timeout=x")[0] == 404


def test_configz_flagz_and_statusz(here: Here, tmp_path: Path) -> None:
    assert here.say("GET", "/configz")[0] == 503
    assert here.say("GET", "/flagz")[0] == 503
    in_force: dict[str, Any] = {
        "configuration": {"port": 1},
        "sources": {},
        "flags": {"port": "1", "address": "0.0.0.0"},
    }
    (tmp_path / "configuration.json").write_bytes(msgspec.json.encode(in_force))
    assert here.say("GET", "/configz") == (200, b'{"kubeletconfig":{"port":1}}')
    header = {"staticPodURLHeader": {"X": ["<masked>"]}}
    in_force |= {"configuration": header | {"port": 1}, "secrets": {"staticPodURLHeader": {"X": ["s3cret"]}}}
    (tmp_path / "configuration.json").write_bytes(msgspec.json.encode(in_force))
    assert json.loads(here.say("GET", "/configz")[1])["kubeletconfig"] == in_force["secrets"] | {"port": 1}
    assert here.say("GET", "/flagz")[1].endswith(b"\n\naddress=0.0.0.0\nport=1\n")
    assert b"Paths: /pods\n" in here.say("GET", "/statusz")[1]
    assert here.say("GET", "/debug/pprof/profile?actor=pleg&seconds=1") == (200, b"a;b 3\n")
    assert b"actors: pleg status" in here.say("GET", "/debug/pprof/")[1]


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("", ""),
        ("*/*", ""),
        ("text/html, text/plain;charset=utf-8", ""),
        ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "v1beta1"),
        ("application/json; v=v1alpha1; g=config.k8s.io; as=Statusz, text/plain", "v1alpha1"),
        ("application/json;v=v1alpha1;g=config.k8s.io;as=Flagz", None),
        ("application/json;v=v9;g=config.k8s.io;as=Statusz", None),
        ("application/json;g=config.k8s.io;as=Statusz", None),
        ("application/json", None),
        ("text/plain;charset=latin-1", None),
        ("application/xml", None),
        (";;=,", None),
    ],
)
def test_accept_header_chooses_text_or_a_version(accept: str, version: str | None) -> None:
    assert version_of(accept, "Statusz") == version


def test_statusz_and_flagz_are_objects_where_accept_asks_for_them(here: Here, tmp_path: Path) -> None:
    (tmp_path / "configuration.json").write_bytes(msgspec.json.encode({"flags": {"port": "1"}}))

    def get(kind: str, version: str) -> tuple[bytes, dict[str, Any]]:
        accept = f"application/json;v={version};g=config.k8s.io;as={kind}"
        request = f"GET /{kind.lower()} HTTP/1.0\r\nAccept: {accept}\r\n\r\n"
        head, _, body = say(here.site.plain, request.encode()).partition(b"\r\n\r\n")
        return head, json.loads(body)

    head, flagz = get("Flagz", "v1alpha1")
    names = {"kind": "Flagz", "apiVersion": "config.k8s.io/v1alpha1", "metadata": {"name": "kubelet"}}
    assert flagz == {**names, "flags": {"port": "1"}}
    assert b'Warning: 299 - "config.k8s.io/v1alpha1 is deprecated' in head
    head, statusz = get("Statusz", "v1beta1")
    assert b"Warning" not in head
    assert (statusz["apiVersion"], statusz["emulationVersion"]) == ("config.k8s.io/v1beta1", "1.36")
    assert (statusz["paths"], statusz["uptimeSeconds"] >= 0) == (["/pods"], True)
    assert here.say("GET", "/flagz", "Accept: application/json\r\n")[0] == 406


@pytest.mark.parametrize("body", [b"11", b"9" * 40, b"-1", b"x"])
def test_invalid_verbosity_is_refused_before_any_actor_is_asked(here: Here, body: bytes) -> None:
    assert here.say("PUT", "/debug/flags/v", body=body)[0] == 400
    assert not [ask for _, ask in here.asked if isinstance(ask, SetVerbosity)]


def test_verbosity_is_set_everywhere(here: Here) -> None:
    assert here.say("PUT", "/debug/flags/v", body=b"5")[0] == 200
    assert [name for name, ask in here.asked if ask == SetVerbosity(v=5)] == ["supervisor", "pleg", "status"]
    assert here.say("PUT", "/debug/flags/v", body=b"loud")[0] == 400


def test_health_says_which_check_fails(here: Here) -> None:
    assert here.say("GET", "/healthz") == (200, b"ok")
    assert here.say("GET", "/healthz?verbose")[1].splitlines()[-1] == b"healthz check passed"
    here.answers[Ping] = lambda _: AskTimeout("pod_workers did not answer")
    assert here.say("GET", "/healthz/ping") == (200, b"ok")
    assert here.say("GET", "/healthz/syncloop")[0] == 500
    status, body = here.say("GET", "/healthz")
    assert (status, body.splitlines()[0]) == (500, b"[+]ping ok")
    assert here.say("GET", "/healthz?exclude=syncloop") == (200, b"ok")
    here.answers[Ping] = lambda _: Pong(mailbox=0)
    here.answers[CheckDevicePlugins] = lambda _: Refused("NotServing", "no device plugins can register")
    assert here.say("GET", "/healthz/device-plugin")[0] == 500
    failed = b"[+]ping ok\n[+]log ok\n[+]syncloop ok\n[-]device-plugin failed: no device plugins can register\n"
    assert here.say("GET", "/healthz") == (500, failed + b"healthz check failed\n")
    here.asked.clear()
    assert here.say("GET", "/healthz?exclude=device-plugin") == (200, b"ok")
    assert [name for name, _ in here.asked] == ["pod_workers"], "an excluded check asks nobody"
    assert here.say("GET", "/healthz/nope")[0] == 404


@pytest.mark.parametrize(
    ("off", "targets", "words"),
    [
        (
            {"enable_debugging_handlers": False},
            ["/run/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/containerLogs/a/b/c", "/runningpods/",
             "/debug/pprof/", "/logs/"],
            b"Debug endpoints are disabled.\n",
        ),
        ({"enable_profiling_handler": False}, ["/debug/pprof/profile"], b"profiling endpoint is disabled.\n"),
        ({"enable_debug_flags_handler": False}, ["/debug/flags/v"], b"flags endpoint is disabled.\n"),
        ({"enable_system_log_handler": False}, ["/logs/x"], b"logs endpoint is disabled.\n"),
    ],
)  # fmt: skip
def test_disabled_endpoints_answer_405_with_the_reason(
    tmp_path: Path, off: dict[str, bool], targets: list[str], words: bytes
) -> None:
    with site() as started:
        made = Here(started, tmp_path)
        made.use(secure_table(msgspec.structs.replace(made.settings, **off)))
        for target in targets:
            assert made.say("GET", target) == (405, words)
        assert made.say("GET", "/healthz") == (200, b"ok")


def test_read_only_port_has_no_writing_or_debug_routes() -> None:
    patterns = {route.pattern for route in read_only_table().routes}
    inside = ("/exec", "/run", "/attach", "/port", "/container", "/logs", "/debug", "/configz", "/flagz", "/checkpoint")
    assert not [one for one in patterns if one.startswith(inside)]
    assert "/pods" in patterns
