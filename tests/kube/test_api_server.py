"""The client against a real API server: calls, errors, list and watch."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._kube.connection.kubeconfig import load
from actors._kube.connection.session import Session
from actors._kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable
from actors._kube.reflector import Listener
from tests.controlplane import ControlPlane
from tests.kube.caller import following
from tests.ports import free_ports

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Log(Listener):
    """Records the calls of a watch, in order."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[str, Any]] = queue.Queue()

    def replaced(self, items: list[dict[str, Any]]) -> None:
        self.said.put(("replaced", [item["metadata"]["name"] for item in items]))

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        self.said.put((kind, item["metadata"]["name"]))

    def failed(self, error: ApiError) -> None:
        self.said.put(("failed", error))

    def next(self) -> tuple[str, Any]:
        return self.said.get(timeout=30)


@pytest.fixture
def watched(control_plane: ControlPlane) -> Iterator[Log]:
    log = Log()
    with following(Session(load(str(control_plane.admin))), CONFIG_MAPS, log, {"labelSelector": "watched=yes"}):
        yield log


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"watched": "yes"}}, "data": data}


def test_watch_lists_then_reports_each_selected_change(control_plane: ControlPlane, watched: Log) -> None:
    assert watched.next() == ("replaced", [])
    control_plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "not-selected"}})
    stored = control_plane.call("POST", CONFIG_MAPS, config_map("one"))
    control_plane.call("PUT", f"{CONFIG_MAPS}/one", stored | {"data": {"k": "v"}})
    control_plane.call("DELETE", f"{CONFIG_MAPS}/one")
    assert [watched.next() for _ in range(3)] == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]


def test_refusals_for_a_node_user_have_their_error_class(control_plane: ControlPlane) -> None:
    node = Session(load(str(control_plane.kubeconfig("classes"))))

    def call(method: str, path: str, body: bytes | None = None) -> bytes:
        return node.call(method, path, body=body, timeout_s=20)

    own = b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"classes"}}'
    call("POST", "/api/v1/nodes", own)
    with pytest.raises(AlreadyExists):
        call("POST", "/api/v1/nodes", own)
    with pytest.raises(Forbidden):
        call("POST", "/api/v1/nodes", own.replace(b"classes", b"another"))
    with pytest.raises(NotFound):
        call("GET", "/api/v1/nodes/nobody")
    with pytest.raises(Forbidden, match="secrets"):
        call("GET", "/api/v1/namespaces/default/secrets/x")
    stored = control_plane.call("GET", "/api/v1/nodes/classes")
    control_plane.call("PUT", "/api/v1/nodes/classes", stored | {"spec": {"unschedulable": True}})
    with pytest.raises(Conflict):
        control_plane.call("PUT", "/api/v1/nodes/classes", stored)


def test_no_server_bad_certificates_and_silence_are_unreachable(control_plane: ControlPlane, tmp_path: Path) -> None:
    port = free_ports(1)[0]
    path = tmp_path / "config"
    path.write_text(control_plane.admin.read_text().replace(control_plane.server, f"https://127.0.0.1:{port}"))
    with pytest.raises(Unreachable, match="refused"):
        Session(load(str(path))).call("GET", "/api", timeout_s=5)
    path.write_text(control_plane.admin.read_text().replace("certificate-authority-data", "ignored"))
    with pytest.raises(Unreachable, match="certificate verify failed"):
        Session(load(str(path))).call("GET", "/api", timeout_s=20)
    began = time.monotonic()
    with pytest.raises(Unreachable):
        Session(load(str(control_plane.admin))).call("GET", "/api", timeout_s=0.001)
    assert time.monotonic() - began < 5


def test_calls_and_watches_go_on_after_connections_close(control_plane: ControlPlane) -> None:
    session = Session(load(str(control_plane.admin)))
    session.call("GET", "/api", timeout_s=20)
    session.close_connections()
    assert b"v1" in session.call("GET", "/api", timeout_s=20)
