"""The actor when its process for certificates is killed, and when kubeadm has deleted the bootstrap kubeconfig."""

from __future__ import annotations

import json
import shutil
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from actors._kube.connection.kubeconfig import load
from actors.certificates.store import Store, joined
from proto.agent.actor import Describe
from tests.controlplane.certificates import Authority, new_key, unsigned
from tests.harness import ActorProcess, wait_for
from tests.kube.faulty_server import Call, FaultyServer, Reply, failure

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


class Approvers:
    """An API server that never approves a request, and refuses the node's certificate from some time on."""

    def __init__(self) -> None:
        self.refuses = False

    def __call__(self, call: Call) -> Reply:
        if self.refuses and "authorization" not in {name.lower() for name in call.headers}:
            return failure(401, "Unauthorized")
        if call.method == "POST":
            return Reply(201, call.body)
        if call.query.get("watch"):
            return failure(410, "Expired")  # so it lists again, soon
        return Reply(200, {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "pending"}}]})


def test_certificate_that_ends_while_its_successor_is_not_approved(tmp_path: Path, server: FaultyServer) -> None:
    """The bootstrap kubeconfig is there again, and counts; no restart is needed."""
    server.behind = approvers = Approvers()
    with node(tmp_path, server, -1) as process:
        wait_for(lambda: state(process)["waits_for_request"], 20, "the request waits")
        bootstrap = json.loads((tmp_path / "kubelet.conf").read_text())
        bootstrap["users"][0]["user"] = {"token": "joins"}
        (tmp_path / "deleted").write_text(json.dumps(bootstrap))
        approvers.refuses = True
        posts = lambda: [call.headers.get("Authorization") for call in server.of("POST")]  # noqa: E731
        wait_for(lambda: posts()[-1] == "Bearer joins", 60, "a request with the bootstrap token")
        assert posts()[0] is None


@pytest.mark.parametrize("named", [True, False])
def test_kubeconfig_without_a_usable_certificate_is_bootstrapped(
    tmp_path: Path, server: FaultyServer, named: bool
) -> None:
    """It names a file that is missing, or embeds no base64."""
    server.behind = Approvers()
    with node(tmp_path, server, 1) as process:
        process.kill()
        config = json.loads((tmp_path / "kubelet.conf").read_text())
        (tmp_path / "deleted").write_text(json.dumps(with_user(config, {"token": "joins"})))
        current = str(tmp_path / "pki" / "kubelet-client-current.pem")
        Path(current).unlink()
        suffix, value = ("", current) if named else ("-data", "?")
        user = {f"client-{what}{suffix}": value for what in ("certificate", "key")}
        (tmp_path / "kubelet.conf").write_text(json.dumps(with_user(config, user)))
        process.start()
        wait_for(lambda: state(process)["waits_for_request"], 20, "a request")
    assert [call.headers.get("Authorization") for call in server.of("POST")] == ["Bearer joins"]


@pytest.mark.parametrize("data", ["?", b64encode(b"no certificate").decode(), None], ids=["data", "PEM", "kubeconfig"])
def test_unusable_certificate_is_told_once(
    tmp_path: Path, server: FaultyServer, capfd: pytest.CaptureFixture[str], data: str | None
) -> None:
    """It is no base64, or no certificate, or the kubeconfig is half written."""
    server.behind = lambda _: failure(503, "ServiceUnavailable")
    with node(tmp_path, server, 1) as process:
        process.kill()
        shutil.rmtree(tmp_path / "pki")
        config = json.loads(server.kubeconfig(tmp_path / "kubelet.conf").read_text())
        (tmp_path / "deleted").write_text(json.dumps(with_user(config, {"token": "joins"})))
        text = json.dumps(with_user(config, {f"client-{what}-data": data or "" for what in ("certificate", "key")}))
        (tmp_path / "kubelet.conf").write_text(text if data else text[:40])
        process.start()
        wait_for(lambda: len(server.of("POST")) > 1, 40, "another request")
    told = [line for line in capfd.readouterr().err.splitlines() if "cannot use" in line or "cannot read" in line]
    assert len(told) == 1, told


class Signer:
    """An API server that signs each request at once. The certificate is over by the clock of this machine."""

    def __init__(self) -> None:
        self._key = new_key()

    def __call__(self, call: Call) -> Reply:
        if call.method != "POST":
            return failure(404, "NotFound")
        request = x509.load_pem_x509_csr(b64decode(call.body["spec"]["request"]))
        made = unsigned(request.subject, request.subject, request, -1)  # type: ignore[arg-type]  # its public key
        pem = made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return Reply(201, call.body | {"status": {"certificate": b64encode(pem).decode()}})


@pytest.mark.parametrize("rotate", [True, False])
def test_clock_that_is_ahead_causes_one_request(tmp_path: Path, server: FaultyServer, rotate: bool) -> None:
    server.behind = Signer()
    bootstrap = server.kubeconfig(tmp_path / "bootstrap")
    bootstrap.write_text(json.dumps(with_user(json.loads(bootstrap.read_text()), {"token": "joins"})))
    with ActorProcess(
        "certificates", None, ("events", "node"), node_name="n", rotate_certificates=rotate,
        cert_dir=str(tmp_path / "pki"), kubeconfig=str(tmp_path / "kubelet.conf"), bootstrap_kubeconfig=str(bootstrap),
    ) as process:  # fmt: skip
        wait_for((tmp_path / "kubelet.conf").exists, 20, "the kubeconfig")
        wait_for(lambda: (state(process)["replaced_in_s"] or 0) > 0, 20, "it is not replaced soon")
    assert len(server.of("POST")) == 1


BEHIND = "import time; time.time = lambda real=time.time: real() - 400 * 86400\n"


@pytest.mark.parametrize(("embedded", "clock"), [(False, ""), (True, BEHIND)], ids=["files", "clock behind"])
def test_kubeconfig_with_a_good_certificate_is_not_bootstrapped(
    tmp_path: Path, server: FaultyServer, embedded: bool, clock: str
) -> None:
    """The stored certificate has expired. As in the kubelet, the kubeconfig's own one counts by its end alone."""
    server.behind = Approvers()
    with node(tmp_path, server, -1, clock) as process:
        process.kill()
        config = operators_kubeconfig(tmp_path, server, embedded=embedded)
        (tmp_path / "deleted").write_text(json.dumps(with_user(config, {"token": "joins"})))
        process.start()
        wait_for(lambda: server.of("POST"), 20, "a request")
    assert [call.headers.get("Authorization") for call in server.of("POST")] == [None]


LOOKED = """
from actors.certificates import actor
kept = actor._ClientCertificate._write_kubeconfig
def write(self):
    kept(self)
    open({path!r}, "w").close()
actor._ClientCertificate._write_kubeconfig = write
"""
"""Makes a file once the kubeconfig is written, or left as it is."""


def test_certificate_files_of_an_operator_stay_in_the_kubeconfig(tmp_path: Path, server: FaultyServer) -> None:
    """The stored certificate may be that of a cluster which the machine has left."""
    looked = tmp_path / "looked"
    with node(tmp_path, server, 1, LOOKED.format(path=str(looked))) as process:
        process.kill()
        looked.unlink(missing_ok=True)
        config = operators_kubeconfig(tmp_path, server, embedded=False)
        process.start()
        wait_for(looked.exists, 20, "a look at the kubeconfig")
    assert json.loads((tmp_path / "kubelet.conf").read_text()) == config


@pytest.mark.parametrize("there", [True, False])
def test_kubeconfig_that_is_a_link_stays_one(tmp_path: Path, server: FaultyServer, there: bool) -> None:
    """As with the kubelet. Its target may outlive /etc, as in an image-based system."""
    link, target = tmp_path / "kubelet.conf", tmp_path / "kept"
    looked, current = tmp_path / "looked", tmp_path / "pki" / "kubelet-client-current.pem"
    with node(tmp_path, server, 1, LOOKED.format(path=str(looked))) as process:
        process.kill()
        server.kubeconfig(link).rename(target if there else tmp_path / "deleted")
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        looked.unlink(missing_ok=True)
        process.start()
        wait_for(looked.exists, 20, "a look at the kubeconfig")
    assert link.is_symlink()
    assert load(str(target)).user.client_certificate == str(current)
    assert target.stat().st_mode & 0o777 == 0o600


def operators_kubeconfig(directory: Path, server: FaultyServer, *, embedded: bool) -> dict[str, Any]:
    """Write a kubeconfig with a certificate of its own, in files or as data."""
    files = Authority(directory / "operators").issue("own", "system:node:n", "system:nodes")
    pair = dict(zip(("client-certificate", "client-key"), files, strict=True))
    user = {name: str(path) for name, path in pair.items()}
    if embedded:
        user = {f"{name}-data": b64encode(path.read_bytes()).decode() for name, path in pair.items()}
    path = server.kubeconfig(directory / "kubelet.conf")
    config = with_user(json.loads(path.read_text()), user)
    path.write_text(json.dumps(config))
    return config


def with_user(config: dict[str, Any], user: dict[str, str]) -> dict[str, Any]:
    return config | {"users": [config["users"][0] | {"user": user}]}
