"""A stand-in for metrics-server, which has no package: answers `kubectl top` from the nodes' metrics.

Like metrics-server it reads each node's /metrics/resource with the right `get nodes/metrics`, at the address and port
of the Node object. A CPU figure is the difference of two samples by the difference of their times. It serves behind the
API server's aggregation layer.
"""

from __future__ import annotations

import ssl
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tests.controlplane.instance import ControlPlane

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
API = f"/apis/{GROUP}/{VERSION}"
SERVICES = "/api/v1/namespaces/kube-system/services"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
RESOLUTION_S = 1.0
_CPU = {"node_cpu_usage_seconds_total", "container_cpu_usage_seconds_total"}
_MEMORY = {"node_memory_working_set_bytes", "container_memory_working_set_bytes"}


class Key(NamedTuple):
    """A node, or a container of it."""

    node: str
    namespace: str = ""
    pod: str = ""
    container: str = ""


class Point(NamedTuple):
    """CPU seconds at a Unix time, and bytes."""

    cpu_s: float
    at_s: float
    memory_bytes: float


def points(node: str, exposed: str, now_s: float) -> dict[Key, Point]:
    """Return a node's metrics in the text format that have both figures."""
    cpu: dict[Key, tuple[float, float]] = {}
    memory: dict[Key, float] = {}
    for family in text_string_to_metric_families(exposed):
        for sample in family.samples:
            key = Key(node, *(sample.labels.get(name, "") for name in ("namespace", "pod", "container")))
            if sample.name in _CPU:
                cpu[key] = (sample.value, float(sample.timestamp or now_s))
            elif sample.name in _MEMORY:
                memory[key] = sample.value
    return {key: Point(*cpu[key], memory[key]) for key in cpu.keys() & memory.keys()}


def usage(before: Point, after: Point) -> dict[str, str]:
    """As ResourceList."""
    cores = (after.cpu_s - before.cpu_s) / (after.at_s - before.at_s)
    return {"cpu": f"{round(cores * 1e9)}n", "memory": f"{round(after.memory_bytes / 1024)}Ki"}


class MetricsServer:
    """Asks every node each second, those of other tests too: they may be down."""

    def __init__(self, plane: ControlPlane, certificate: Path, key: Path) -> None:
        """`certificate` and `key` are its client's for nodes, and its own for the API server."""
        self._failures: dict[str, list[str]] = defaultdict(list)
        self._plane = plane
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE  # --kubelet-insecure-tls
        self._tls.load_cert_chain(certificate, key)
        self._samples: list[dict[Key, Point]] = [{}, {}]
        self._over = threading.Event()
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(certificate, key)
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.socket = serving.wrap_socket(self.http.socket, server_side=True)

    @contextmanager
    def serving(self) -> Iterator[MetricsServer]:
        """Registered with the API server meanwhile."""
        threads = [threading.Thread(target=self.http.serve_forever), threading.Thread(target=self._scrape)]
        for thread in threads:
            thread.start()
        service = {
            "metadata": {"name": "metrics-server"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        name = f"{VERSION}.{GROUP}"
        to = {"name": "metrics-server", "namespace": "kube-system", "port": self.http.server_port}
        order = {"groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": True}
        spec = {"group": GROUP, "version": VERSION, "service": to, **order}
        try:
            self._plane.call("POST", SERVICES, service)
            self._plane.call("POST", API_SERVICES, {"metadata": {"name": name}, "spec": spec})
            yield self
        finally:
            self._plane.call("DELETE", f"{API_SERVICES}/{name}")
            self._plane.call("DELETE", f"{SERVICES}/metrics-server")
            self._over.set()
            self.http.shutdown()
            self.http.server_close()
            for thread in threads:
                thread.join()

    # The nodes

    def _scrape(self) -> None:
        while not self._over.wait(RESOLUTION_S):
            found: dict[Key, Point] = {}
            for node in (self._plane.get("/api/v1/nodes") or {"items": []})["items"]:
                try:
                    found |= self._ask(node)
                except OSError as error:
                    self._failures[node["metadata"]["name"]].append(str(error))
            before, last = self._samples
            moved = {key: point for key, point in found.items() if key not in last or point.at_s > last[key].at_s}
            self._samples = [before | {key: last[key] for key in moved if key in last}, last | moved]

    def _ask(self, node: dict[str, Any]) -> dict[Key, Point]:
        address = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        url = f"https://{address}:{port}/metrics/resource"
        with urllib.request.urlopen(url, context=self._tls, timeout=10) as answer:
            return points(node["metadata"]["name"], answer.read().decode(), time.time())

    def failed(self, node: str) -> list[str]:
        """Why a node did not answer, each time."""
        return self._failures[node]

    # The API

    def figures(self) -> dict[Key, dict[str, str]]:
        """Return the figures of all objects that were seen twice."""
        before, after = self._samples
        return {key: usage(before[key], point) for key, point in after.items() if key in before}

    def answer(self, path: str) -> Any:
        """An object of the API; None for a path that it has not."""
        figures = self.figures()
        found: Any = None
        match path.removeprefix(API).strip("/").split("/"):
            case [""]:
                found = _discovery()
            case ["nodes"]:
                found = _list("NodeMetrics", _nodes(figures))
            case ["nodes", name]:
                found = _found(_nodes(figures), {"name": name})
            case ["namespaces", namespace, "pods", name]:
                found = _found(_pods(figures), {"name": name, "namespace": namespace})
            case ["pods"]:
                found = _list("PodMetrics", _pods(figures))
            case ["namespaces", namespace, "pods"]:
                found = _list(
                    "PodMetrics", [one for one in _pods(figures) if one["metadata"]["namespace"] == namespace]
                )
        return found

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            """One request of the API server's."""

            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                found = answer(self.path.partition("?")[0])
                body = msgspec.json.encode(found if found is not None else _status())
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the test says what went wrong."""

        return Handler


def _pods(figures: dict[Key, dict[str, str]]) -> list[dict[str, Any]]:
    containers: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key, used in figures.items():
        if key.container:
            containers.setdefault((key.namespace, key.pod), []).append({"name": key.container, "usage": used})
    return [
        {**_head("PodMetrics", pod), "metadata": {"name": pod, "namespace": namespace}, "containers": found}
        for (namespace, pod), found in containers.items()
    ]


def _found(objects: list[dict[str, Any]], what: dict[str, str]) -> dict[str, Any] | None:
    return next((one for one in objects if one["metadata"].items() >= what.items()), None)


def _nodes(figures: dict[Key, dict[str, str]]) -> list[dict[str, Any]]:
    return [_head("NodeMetrics", key.node) | {"usage": used} for key, used in figures.items() if not key.pod]


def _head(kind: str, name: str) -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    metadata = {"name": name, "creationTimestamp": now}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "timestamp": now, "window": "1s"}


def _list(kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": f"{kind}List", "metadata": {}, "items": items}


def _discovery() -> dict[str, Any]:
    kinds = (("nodes", False, "NodeMetrics"), ("pods", True, "PodMetrics"))
    resources = [
        {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]}
        for name, namespaced, kind in kinds
    ]
    group = f"{GROUP}/{VERSION}"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}


def _status() -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
