"""Ten static pods of every kind the lifecycle has to deal with, and what each comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.agent.agent import Agent, container, is_ready, pod, state

Manifest = Callable[[int], dict[str, Any]]

HTTPD = "mkdir -p /w; echo ok > /w/i; exec httpd -f -p 8080 -h /w"
QUICK = {"periodSeconds": 1, "timeoutSeconds": 10}


def probed(name: str, kind: str, handler: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A web server with a readiness and a liveness probe of one kind."""
    probe = {kind: handler, **QUICK}
    return pod(name, container("web", HTTPD, readinessProbe=probe, livenessProbe=probe), **spec)


TEN_PODS: dict[str, Manifest] = {
    "plain": lambda _: pod("plain"),
    "inits": lambda _: pod(
        "inits",
        container("main"),
        initContainers=[container("first", "exit 0"), container("second", "exit 0")],
    ),
    "three": lambda _: pod("three", container("a"), container("b"), container("c")),
    "shared": lambda _: pod(
        "shared",
        container("writer", "echo hello > /data/f; " + "trap exit TERM; sleep 100000 & wait",
                  volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        container("reader", "until cat /in/f; do sleep 0.1; done; trap exit TERM; sleep 100000 & wait",
                  volumeMounts=[{"name": "data", "mountPath": "/in", "readOnly": True}]),
        volumes=[{"name": "data", "emptyDir": {}}],
    ),
    "crashing": lambda _: pod("crashing", container("c", "echo going down; exit 3")),
    "done": lambda _: pod("done", container("c", "exit 0"), restartPolicy="Never"),
    "exec": lambda _: probed("exec", "exec", {"command": ["cat", "/w/i"]}),
    "http": lambda _: probed("http", "httpGet", {"path": "/i", "port": 8080}),
    "tcp": lambda _: probed("tcp", "tcpSocket", {"port": 8080}),
    "grpc": lambda port: pod(
        "grpc", container("c", readinessProbe={"grpc": {"port": port}, **QUICK}), hostNetwork=True
    ),
}  # fmt: skip


def settled(name: str, item: dict[str, Any]) -> bool:
    """Return True when a pod shows its final state."""
    match name:
        case "crashing":
            return state(item, "c").get("waiting", {}).get("reason") == "CrashLoopBackOff"
        case "done":
            return bool(item["status"].get("phase") == "Succeeded")
        case _:
            return is_ready(item)


def settled_pods(agent: Agent) -> dict[str, Any]:
    """Return all ten pods once each is in its state. The crashing pod leaves its state at times."""
    shown = agent.pods()
    return shown if all(name in shown and settled(name, shown[name]) for name in TEN_PODS) else {}


def all_settled(agent: Agent) -> bool:
    return bool(settled_pods(agent))
