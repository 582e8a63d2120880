"""The actor when its process for certificates is killed, and when kubeadm has deleted the bootstrap kubeconfig."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.certificates.store import Store, joined
from proto.agent.actor import Describe
from tests.controlplane.certificates import Authority
from tests.harness import ActorProcess, wait_for
from tests.kube.faulty_server import FaultyServer

KILLED = """
import os
from actors._pki import pki
made = pki.command
pki.command = lambda module: ["sh", "-c", "kill -9 $$"] if os.path.exists({path!r}) else made(module)
"""
"""Kills the processes for certificates while a file is there."""


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as one:
        yield one


def node(directory: Path, server: FaultyServer, days: int, prelude: str = "") -> ActorProcess:
    """A node after joining: its certificate is stored, and the bootstrap kubeconfig deleted."""
    certificate, key = Authority(directory / "ca").issue("node", "system:node:n", "system:nodes", days=days)
    stored = joined(certificate.read_bytes(), key.read_bytes())
    Store(str(directory / "pki"), "kubelet-client").keep(stored, time.time())
    return ActorProcess(
        "certificates", None, ("events",), prelude=prelude, node_name="n", rotate_certificates=True,
        cert_dir=str(directory / "pki"), kubeconfig=str(server.kubeconfig(directory / "kubelet.conf")),
        bootstrap_kubeconfig=str(directory / "deleted"),
    )  # fmt: skip


def state(process: ActorProcess) -> dict[str, Any]:
    found: dict[str, Any] = process.ask(Describe()).state["client certificate"]
    return found


def test_certificate_is_read_again_after_its_reader_was_killed(tmp_path: Path, server: FaultyServer) -> None:
    killer = tmp_path / "killer"
    killer.touch()
    with node(tmp_path, server, 1, KILLED.format(path=str(killer))) as process:
        wait_for(lambda: "was ended by signal 9" in state(process)["problem"], 20, "it is reported")
        killer.unlink()
        wait_for(lambda: (state(process)["expires_in_s"] or 0) > 0 and not state(process)["problem"], 40, "it is read")
    assert server.of("POST") == [], "no other certificate is requested"


def test_deleted_bootstrap_kubeconfig_leaves_the_present_one(tmp_path: Path, server: FaultyServer) -> None:
    with node(tmp_path, server, -1) as process:
        wait_for(lambda: server.of("POST"), 20, "a request by the kubeconfig")
        said = wait_for(lambda: state(process)["problem"], 20, "the server refuses it")
        assert str(tmp_path / "deleted") not in said
