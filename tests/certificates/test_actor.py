"""The actor against a real API server and the controllers that approve and sign: from a token to certificates."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from actors._kube.connection.kubeconfig import load
from actors._kube.connection.session import Session
from actors._kube.errors import NotFound
from actors._pki import pki
from proto.agent.actor import Describe, GetMetrics
from proto.node.certificates import NodeAddress, SetNodeAddresses
from proto.pods.events import RecordEvent
from tests.controlplane import ControlPlane
from tests.controlplane.certificates import Authority
from tests.harness import ActorProcess, wait_for

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNED_FOR_S = 20
AHEAD = "import time; time.time = lambda real=time.time: real() + 400 * 86400; "
BACKDATED_S = 300
"""By kube-controller-manager."""


@pytest.fixture
def signers(control_plane: ControlPlane) -> Iterator[None]:
    control_plane.bootstrap_kubeconfig()
    control_plane.start_signers(f"{BACKDATED_S + SIGNED_FOR_S}s")
    yield
    control_plane.stop("signers")


@contextmanager
def node(control_plane: ControlPlane, directory: Path, name: str, **settings: Any) -> Iterator[ActorProcess]:
    fields: dict[str, Any] = {
        "node_name": name,
        "kubeconfig": str(directory / "kubelet.conf"),
        "bootstrap_kubeconfig": str(control_plane.bootstrap_kubeconfig()),
        "cert_dir": str(directory / "pki"),
    }
    with ActorProcess("certificates", None, ("events",), **(fields | settings)) as process:
        yield process


def state(process: ActorProcess, what: str = "client certificate") -> dict[str, Any]:
    found: dict[str, Any] = process.ask(Describe()).state[what]
    return found


def tell(process: ActorProcess, name: str, *ips: str) -> None:
    pairs = [("Hostname", name), *(("InternalIP", ip) for ip in ips)]
    addresses = tuple(NodeAddress(type=kind, address=address) for kind, address in pairs)
    process.tell(SetNodeAddresses(addresses=addresses))


def requests_of(control_plane: ControlPlane, node_name: str) -> dict[str, Any]:
    """Requests for a certificate of that node, by name; those of a token by what is in them."""
    return {
        one["metadata"]["name"]: one
        for one in control_plane.call("GET", REQUESTS)["items"]
        if _common_name(one) == f"system:node:{node_name}"
    }


def _common_name(request: dict[str, Any]) -> str:
    wanted = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
    return str(wanted.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def conclude(control_plane: ControlPlane, name: str, kind: str) -> None:
    request = control_plane.call("GET", f"{REQUESTS}/{name}")
    condition = {"type": kind, "status": "True", "reason": "Test", "message": "by a test"}
    request["status"] = {"conditions": [condition]}
    control_plane.call("PUT", f"{REQUESTS}/{name}/approval", request)


def test_token_bootstraps_a_client_certificate_that_is_renewed(
    control_plane: ControlPlane, signers: None, tmp_path: Path
) -> None:
    current = tmp_path / "pki" / "kubelet-client-current.pem"
    with node(control_plane, tmp_path, "boot", rotate_certificates=True) as process:
        wait_for((tmp_path / "kubelet.conf").exists, 30, "the kubeconfig")
        session = Session(load(str(tmp_path / "kubelet.conf")))

        def ask() -> None:
            session.call("GET", f"{REQUESTS}?limit=1", timeout_s=20)

        ask()
        first = pki.read(current.read_bytes())
        assert (first.names.common_name, first.names.organizations) == ("system:node:boot", ("system:nodes",))
        dated = current.readlink()
        for _ in range(2):
            wait_for(lambda dated=dated: current.readlink() != dated, SIGNED_FOR_S + 20, "the next certificate")
            dated = current.readlink()
            ask()
        third = pki.read(current.read_bytes())
        (ttl,) = process.ask(GetMetrics()).samples["kubelet_certificate_manager_client_ttl_seconds"]
        assert 0 < ttl[1][0] < SIGNED_FOR_S + 1
        assert third.not_after > first.not_after + SIGNED_FOR_S / 2
    names = sorted(requests_of(control_plane, "boot"))
    assert [name.partition("csr-")[0] for name in names] == ["", "", "node-"]


def signed_names(control_plane: ControlPlane, root: Path) -> pki.Names:
    """Sign the approved requests, and return the names of the serving certificate that follows."""
    control_plane.start_signers("1h")
    try:
        current = root / "pki" / "kubelet-server-current.pem"
        wait_for(current.exists, 30, "the serving certificate")
    finally:
        control_plane.stop("signers")
    return pki.read(current.read_bytes()).names


def test_kill_while_waiting_repeats_no_request(control_plane: ControlPlane, tmp_path: Path) -> None:
    """No controller is there; the serving certificate's is an administrator anyway."""
    (tmp_path / "kubelet.conf").write_text(control_plane.kubeconfig("waiting").read_text())
    settings = {"bootstrap_kubeconfig": "", "server_tls_bootstrap": True}
    with node(control_plane, tmp_path, "waiting", **settings) as process:
        tell(process, "waiting", "127.0.0.1")
        name = wait_for(lambda: state(process, "serving certificate")["waits_for_request"], 20, "a request")
        process.restart()
        tell(process, "waiting", "127.0.0.1")
        wait_for(lambda: state(process, "serving certificate")["waits_for_request"] == name, 20, "the same request")
        assert list(requests_of(control_plane, "waiting")) == [name]
        conclude(control_plane, name, "Approved")
        names = signed_names(control_plane, tmp_path)
        assert (names.dns_names, names.addresses) == (("waiting",), ("127.0.0.1",))
        wait_for(lambda: (state(process, "serving certificate")["expires_in_s"] or 0) > 3000, 20, "described")


def test_serving_certificate_follows_the_nodes_addresses(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "kubelet.conf").write_text(control_plane.kubeconfig("moving").read_text())

    def serving() -> dict[str, Any]:
        return state(process, "serving certificate")

    with node(control_plane, tmp_path, "moving", bootstrap_kubeconfig="", server_tls_bootstrap=True) as process:
        wait_for(lambda: serving()["waits_for_addresses"], 20, "node has told none")
        tell(process, "moving")
        assert serving()["waits_for_addresses"], "a cloud provider sets them later"
        assert requests_of(control_plane, "moving") == {}
        tell(process, "moving", "192.0.2.1")
        first = wait_for(lambda: serving()["waits_for_request"], 20, "a request")
        tell(process, "moving", "192.0.2.1", "203.0.113.9")
        second = wait_for(lambda: serving()["waits_for_request"] not in ("", first) and serving(), 20, "another one")
        conclude(control_plane, second["waits_for_request"], "Approved")
        names = signed_names(control_plane, tmp_path)
        assert (names.dns_names, names.addresses) == (("moving",), ("192.0.2.1", "203.0.113.9"))
        process.restart()
        wait_for(lambda: serving()["expires_in_s"], 20, "it is looked at")
        assert not serving()["waits_for_addresses"], "the present one does"
        tell(process, "moving", "203.0.113.9")
        assert not serving()["waits_for_request"]


def test_denied_request_is_an_event_and_requested_again(control_plane: ControlPlane, tmp_path: Path) -> None:
    with node(control_plane, tmp_path, "refused") as process:
        name = wait_for(lambda: state(process)["waits_for_request"], 20, "a request")
        conclude(control_plane, name, "Denied")
        said = wait_for(lambda: process.peers["events"].of(RecordEvent), 20, "an event")[0]
        assert (said.reason, said.message) == (
            "CertificateRequestFailed",
            f"cannot get the client certificate: request {name}: denied: Test: by a test",
        )
        again = wait_for(lambda: state(process)["waits_for_request"] not in ("", name), 20, "another request")
        assert again
        assert process.ask(GetMetrics()).samples["kubelet_certificate_manager_client_expiration_renew_errors"][0][
            1
        ] == (1,)
        assert not (tmp_path / "kubelet.conf").exists()


def test_expired_certificate_gives_advice_and_is_replaced(
    control_plane: ControlPlane, signers: None, tmp_path: Path
) -> None:
    config = tmp_path / "kubelet.conf"
    config.write_text(control_plane.expired_kubeconfig("late").read_text())
    with node(control_plane, tmp_path, "late", bootstrap_kubeconfig="", rotate_certificates=True) as process:
        said = wait_for(lambda: process.peers["events"].of(RecordEvent), 20, "an event")[0]
        assert "Unauthorized" in said.message
        current = tmp_path / "pki" / "kubelet-client-current.pem"
        assert f"the client certificate of {current} expired at " in said.message
        assert "check this machine's clock; if it is right, get a new certificate" in said.message
        assert state(process)["expires_in_s"] < -80_000
        config.write_text(control_plane.kubeconfig("late").read_text())  # as an operator would
        wait_for(lambda: (state(process)["expires_in_s"] or 0) > 0 and not state(process)["problem"], 60, "it is used")
    config.write_text(control_plane.expired_kubeconfig("late").read_text())
    shutil.rmtree(tmp_path / "pki", ignore_errors=True)
    with node(control_plane, tmp_path, "late", rotate_certificates=True) as process:
        wait_for(lambda: "kubelet-client-current" in config.read_text(), 60, "by bootstrapping")
        assert_is_let_in(config, "late")


def assert_is_let_in(config: Path, name: str) -> None:
    with pytest.raises(NotFound):  # there is no such Node
        Session(load(str(config))).call("GET", f"/api/v1/nodes/{name}", timeout_s=10)


FULL_DISK = """
import os
from actors.certificates.store import Store
kept = Store.replace
def replace(self, *args):
    if os.path.exists({path!r}):
        raise OSError(28, "no space")
    return kept(self, *args)
Store.replace = replace
"""
"""No certificate can be stored while a file is there."""


@pytest.mark.parametrize("rotate", [True, False])
def test_bootstrap_token_of_another_cluster_changes_the_server(
    control_plane: ControlPlane, signers: None, tmp_path: Path, rotate: bool
) -> None:
    """The server is in the file before the certificate is stored: after a kill in between it bootstraps again."""
    config, current, full = tmp_path / "kubelet.conf", tmp_path / "pki/kubelet-client-current.pem", tmp_path / "full"
    name = f"moved-{rotate}".lower()
    old = json.loads(control_plane.expired_kubeconfig(name).read_text())
    old["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    config.write_text(json.dumps(old))
    full.touch()
    settings = {"rotate_certificates": rotate, "prelude": FULL_DISK.format(path=str(full))}
    with node(control_plane, tmp_path, name, **settings) as process:
        wait_for(lambda: "no space" in state(process)["problem"], 60, "it is reported")
        assert load(str(config)).cluster == load(str(control_plane.bootstrap_kubeconfig())).cluster
        process.restart()
        full.unlink()
        wait_for(lambda: (state(process)["expires_in_s"] or 0) > 0, 60, "another certificate")
        assert current.exists()
        assert_is_let_in(config, name)
    assert len(requests_of(control_plane, name)) == 1, "both incarnations have one request"


def test_refused_token_keeps_the_present_certificate(
    control_plane: ControlPlane, signers: None, tmp_path: Path
) -> None:
    """As with a clock that is ahead: to the server the certificate is good, and the token of another day is not."""
    config, bootstrap = tmp_path / "kubelet.conf", tmp_path / "bootstrap"
    config.write_text(control_plane.kubeconfig("ahead").read_text())
    old = json.loads(control_plane.bootstrap_kubeconfig().read_text())
    old["users"][0]["user"]["token"] = "abcdef.thisonehasexpire"
    bootstrap.write_text(json.dumps(old))
    with node(
        control_plane, tmp_path, "ahead", bootstrap_kubeconfig=str(bootstrap), rotate_certificates=True, prelude=AHEAD
    ) as process:
        wait_for((tmp_path / "pki/kubelet-client-current.pem").exists, 60, "a new one")
        wait_for(lambda: (state(process)["replaced_in_s"] or 0) > 5, 10, "though it is over by this clock")


def test_valid_certificate_needs_no_bootstrap_and_no_server(control_plane: ControlPlane, tmp_path: Path) -> None:
    config = tmp_path / "kubelet.conf"
    config.write_text(control_plane.kubeconfig("good").read_text())
    before = config.read_text()
    with node(control_plane, tmp_path, "good") as process:
        wait_for(lambda: state(process)["expires_in_s"], 20, "it is looked at")
        assert config.read_text() == before
        assert not (tmp_path / "pki").exists()
    bootstrap = tmp_path / "bootstrap"
    cluster = json.loads(control_plane.bootstrap_kubeconfig().read_text())
    cluster["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    bootstrap.write_text(json.dumps(cluster))
    config.unlink()
    with node(control_plane, tmp_path, "good", bootstrap_kubeconfig=str(bootstrap)) as process:
        wait_for(lambda: "Connection refused" in state(process)["problem"], 20, "told")
        began = time.monotonic()
        bootstrap.write_text(control_plane.bootstrap_kubeconfig().read_text())
        wait_for(lambda: state(process)["waits_for_request"], 40, "asked of the server that is there")
        assert time.monotonic() - began < 40


def waiting_request(process: ActorProcess) -> str:
    name: str = wait_for(lambda: state(process)["waits_for_request"], 20, "a request")
    return name


def test_embedded_certificate_is_stored_and_replaced_at_once(control_plane: ControlPlane, tmp_path: Path) -> None:
    """kubeadm init waits for the file. The API server signs for the request later, and in another incarnation."""
    config, current = tmp_path / "kubelet.conf", tmp_path / "pki" / "kubelet-client-current.pem"
    config.write_text(control_plane.kubeconfig("embedded").read_text())
    user = load(str(config)).user
    with node(control_plane, tmp_path, "embedded", bootstrap_kubeconfig="", rotate_certificates=True) as process:
        name = waiting_request(process)
        stored = current.read_bytes()
        for part in (user.client_certificate_data, user.client_key_data):
            assert base64.b64decode(part) in stored
        process.restart()
        assert waiting_request(process) == name
        assert list(requests_of(control_plane, "embedded")) == [name]
        conclude(control_plane, name, "Approved")
        control_plane.start_signers("1h")
        try:
            wait_for(lambda: current.read_bytes() != stored, 30, "another certificate")
        finally:
            control_plane.stop("signers")
        wait_for(lambda: (state(process)["replaced_in_s"] or 0) > 600, 20, "it stays")


def test_certificate_in_a_file_is_kept_until_it_is_due(control_plane: ControlPlane, tmp_path: Path) -> None:
    config = json.loads(control_plane.kubeconfig("filed").read_text())
    user = config["users"][0]["user"]
    for what in ("certificate", "key"):
        (tmp_path / what).write_bytes(base64.b64decode(user.pop(f"client-{what}-data")))
        user[f"client-{what}"] = what
    (tmp_path / "kubelet.conf").write_text(json.dumps(config))
    with node(control_plane, tmp_path, "filed", bootstrap_kubeconfig="", rotate_certificates=True) as process:
        wait_for(lambda: (state(process)["replaced_in_s"] or 0) > 600, 20, "it is looked at")
        assert not (tmp_path / "pki").exists()
    assert requests_of(control_plane, "filed") == {}


@contextmanager
def mounted_alone(path: Path) -> Iterator[None]:
    """As a file of a container's host: it can neither be replaced nor written."""
    subprocess.run(["mount", "--bind", path, path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def overwrite(file: Path, text: str) -> None:
    """Give a file that cannot be replaced another content at once, so that a reader finds it empty at no time."""
    with file.open("r+b", buffering=0) as opened:
        opened.write(text.ljust(file.stat().st_size, "\n").encode())


@pytest.mark.needs("mounts")
def test_kubeconfig_that_cannot_be_written_keeps_no_old_certificate(
    control_plane: ControlPlane, signers: None, tmp_path: Path
) -> None:
    config, current = tmp_path / "kubelet.conf", tmp_path / "pki" / "kubelet-client-current.pem"
    config.write_text(control_plane.kubeconfig("fixed").read_text())
    (tmp_path / "same").hardlink_to(config)
    with (
        mounted_alone(config),
        node(control_plane, tmp_path, "fixed", bootstrap_kubeconfig="", rotate_certificates=True) as process,
    ):
        wait_for(lambda: len(list(current.parent.glob("*-20*.pem"))) == 2, 60, "another certificate beside the first")
        over = control_plane.expired_kubeconfig("fixed").read_text()
        overwrite(tmp_path / "same", over)
        for _ in range(2):
            before = current.readlink()
            wait_for(lambda before=before: current.readlink() != before, SIGNED_FOR_S + 20, "another, by the last one")
        assert not state(process)["problem"]
        assert not process.peers["events"].of(RecordEvent)
        assert config.read_text().rstrip() == over.rstrip(), "but for what fills it up to its former length"
        left = {"kubelet.conf", "pki", "same"}
        wait_for(lambda: {path.name for path in tmp_path.iterdir()} == left, 10, "nothing is left of what it tried")


def test_configured_serving_certificate_is_the_first_one(control_plane: ControlPlane, tmp_path: Path) -> None:
    """As in the kubelet it is used until the cluster has signed one, which is requested if that has other names."""
    (tmp_path / "kubelet.conf").write_text(control_plane.kubeconfig("own").read_text())
    crt, key = Authority(tmp_path / "ca").issue("own", "own.example")
    files = {"tls_cert_file": str(crt), "tls_private_key_file": str(key)}
    with node(control_plane, tmp_path, "own", bootstrap_kubeconfig="", server_tls_bootstrap=True, **files) as process:
        wait_for(lambda: state(process, "serving certificate")["expires_in_s"], 20, "it is looked at")
        assert not state(process, "serving certificate")["waits_for_addresses"], "it serves meanwhile"
        tell(process, "own", "192.0.2.1")
        wait_for(lambda: state(process, "serving certificate")["waits_for_request"], 20, "a request")
