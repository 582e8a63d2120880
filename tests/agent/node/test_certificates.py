"""A node that starts with a bootstrap token: its certificates come, are replaced, and no container notices."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from typing import Any

import pytest
import yaml

from actors._pki import pki
from tests.agent.agent import Agent, pod
from tests.agent.node.test_node import condition
from tests.certificates.test_actor import BACKDATED_S, conclude
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

NAME = "bootstrapped"
NODE = f"/api/v1/nodes/{NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NAME}"


def renewed(control_plane: ControlPlane) -> str:
    lease: Any = control_plane.get(LEASE) or {"spec": {"renewTime": ""}}
    return str(lease["spec"]["renewTime"])


def test_token_leads_to_certificates_that_are_rotated(
    containerd: ContainerdInstance, control_plane: ControlPlane
) -> None:
    with closing(Agent(containerd, NAME)) as agent:
        wanted = {"rotateCertificates": True, "serverTLSBootstrap": True, "nodeLeaseDurationSeconds": 4}
        agent.config.write_text(json.dumps(yaml.safe_load(agent.config.read_text()) | wanted))
        agent.write("pod", pod("runs"))
        certificates = agent.dir / "pki"
        client, server = (certificates / f"kubelet-{which}-current.pem" for which in ("client", "server"))
        control_plane.start_signers(f"{BACKDATED_S + 30}s")
        try:
            agent.start(
                "--kubeconfig", str(agent.dir / "kubelet.conf"), "--cert-dir", str(certificates),
                "--bootstrap-kubeconfig", str(control_plane.bootstrap_kubeconfig()),
            )  # fmt: skip
            wait_for(lambda: condition(control_plane.get(NODE), "Ready") == "True", 40, f"Ready; log: {agent.log}")
            wait_for(lambda: condition(agent.pod("runs"), "Ready") == "True", 40, "the pod runs")
            containers = agent.running()
            assert pki.read(client.read_bytes()).names.common_name == f"system:node:{NAME}"
            first = client.readlink()

            def waits() -> str:
                done = agent.command("describe", "certificates", "-o", "json")
                name: str = json.loads(done.stdout)["state"]["serving certificate"]["waits_for_request"]
                return name

            conclude(control_plane, wait_for(waits, 20, "a request for the serving certificate"), "Approved")
            wait_for(server.exists, 20, "the serving certificate")
            names = pki.read(server.read_bytes()).names
            assert (names.dns_names, names.addresses) == ((NAME,), (agent.node_ip,))

            os.kill(agent.rows()["certificates"]["pid"], signal.SIGKILL)
            wait_for(lambda: client.readlink() != first, 60, "the client certificate is replaced")
            second = pki.read(client.read_bytes())
            assert second.names.common_name == f"system:node:{NAME}"
            before = renewed(control_plane)
            wait_for(lambda: renewed(control_plane) > before, 20, "the Lease is renewed with it")
            assert agent.running() == containers
            assert agent.rows()["node"]["incarnation"] == 1
        finally:
            control_plane.stop("signers")
