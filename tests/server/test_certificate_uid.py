"""The UID that a client certificate names, on the real server (feature gate AllowParsingUserUIDFromCertAuth)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from actors.server.auth.reviews import ACCESS_REVIEWS
from proto.agent.actor import Describe
from tests.controlplane.certificates import Authority, Key, new_key, unsigned
from tests.harness import ActorProcess, wait_for
from tests.kube.faulty_server import Call, FaultyServer, Reply
from tests.ports import free_port

UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki") / "pki")


def answer(call: Call) -> Reply:
    if call.path == ACCESS_REVIEWS:
        return Reply(201, {"status": {"allowed": True}})
    token = call.body["spec"]["token"]
    return Reply(201, {"status": {"authenticated": token == "good", "user": {"username": "robot", "uid": "7"}}})


class Served:
    """The server actor, and what it asked the API server."""

    def __init__(self, api: FaultyServer, port: int) -> None:
        self._api, self._port = api, port

    def get(self, pair: tuple[Path, Path], token: str = "") -> tuple[int, dict[str, Any] | None]:
        """The answer's status, and the user in the access review that it caused."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        trusting.load_cert_chain(*pair)
        before = len(self._api.of("POST", ACCESS_REVIEWS))
        with closing(HTTPSConnection("127.0.0.1", self._port, timeout=60, context=trusting)) as connection:
            connection.request("GET", "/healthz/ping", headers={"Authorization": f"Bearer {token}"} if token else {})
            status = connection.getresponse().status
        asked = self._api.of("POST", ACCESS_REVIEWS)[before:]
        return status, asked[0].body["spec"] if asked else None


@contextmanager
def serving(directory: Path, authority: Authority, *, gate: bool) -> Iterator[Served]:
    port = free_port()
    with (
        FaultyServer(answer) as api,
        ActorProcess(
            "server", server_address="127.0.0.1", server_port=port, webhook_authentication=True, anonymous_auth=True,
            kubeconfig=str(api.kubeconfig(directory / "kubeconfig")), cert_dir=str(directory / "certificates"),
            client_ca_file=str(authority.path), user_uid_of_certificate=gate,
        ) as process,
    ):  # fmt: skip
        wait_for(lambda: process.ask(Describe()).state["ports"] == [port], 30, "the port")
        yield Served(api, port)


@pytest.fixture
def served(tmp_path: Path, authority: Authority) -> Iterator[Served]:
    with serving(tmp_path, authority, gate=True) as made:
        yield made


Issue = Callable[..., tuple[Path, Path]]


@pytest.fixture
def issue(authority: Authority, request: pytest.FixtureRequest) -> Issue:
    def issued(*uids: str) -> tuple[Path, Path]:
        name = f"{request.node.originalname}-{'-'.join(uids)}"
        return authority.sign(name, subject(*uids), new_key())

    return issued


def subject(*uids: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, "me"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "o")]
    return x509.Name([*parts, *(x509.NameAttribute(UID, uid, _validate=False) for uid in uids)])


def test_uid_of_the_certificate_is_in_the_access_review(served: Served, issue: Issue) -> None:
    status, spec = served.get(issue("5e1f-uid"))
    assert status == 200
    assert spec is not None
    assert (spec["user"], spec["uid"], spec["groups"]) == ("me", "5e1f-uid", ["o", "system:authenticated"])


def test_certificate_without_a_uid_has_a_user_without_one(served: Served, issue: Issue) -> None:
    status, spec = served.get(issue())
    assert (status, "uid" in (spec or {}), (spec or {})["user"]) == (200, False, "me")


def test_two_users_of_one_name_are_asked_for_each(served: Served, issue: Issue) -> None:
    """The cache of verdicts knows the UID: one user's access is not another's."""
    found = [served.get(issue(uid))[1] for uid in ("first", "second", "first")]
    assert [spec and spec["uid"] for spec in found] == ["first", "second", None]


@pytest.mark.parametrize("uids", [("a", "b"), ("a", "a"), ("",)])
def test_several_uids_or_an_empty_one_authenticate_no_user(served: Served, issue: Issue, uids: tuple[str, ...]) -> None:
    """Not even the anonymous one. A token beside the certificate counts, as with the kubelet."""
    assert served.get(issue(*uids)) == (401, None)
    status, spec = served.get(issue(*uids), "good")
    assert (status, (spec or {})["user"], (spec or {})["uid"]) == (200, "robot", "7")


def test_uid_that_is_no_string_authenticates_no_user(served: Served, authority: Authority) -> None:
    assert served.get(with_bits(authority)) == (401, None)


@pytest.mark.parametrize("uids", [("a",), ("a", "b"), ("",)])
def test_without_the_gate_no_user_has_a_uid(
    tmp_path: Path, authority: Authority, issue: Issue, uids: tuple[str, ...]
) -> None:
    with serving(tmp_path, authority, gate=False) as served:
        status, spec = served.get(issue(*uids))
    assert (status, (spec or {})["user"], "uid" in (spec or {})) == (200, "me", False)


def with_bits(authority: Authority) -> tuple[Path, Path]:
    """A certificate whose UID is a BIT STRING. The library makes none, so this one is signed by hand."""
    key, signer = new_key(), authority._key
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    made = unsigned(subject("u1"), authority._name, key, 1).sign(signer, hashes.SHA256())
    content = made.tbs_certificate_bytes.replace(b"\x0c\x02u1", b"\x03\x02\x001")
    assert content != made.tbs_certificate_bytes
    ecdsa_with_sha256 = bytes.fromhex("300a06082a8648ce3d040302")
    signature = b"\0" + signer.sign(content, ec.ECDSA(hashes.SHA256()))
    der = _tagged(0x30, content + ecdsa_with_sha256 + _tagged(0x03, signature))
    return _written(authority.directory, der, key)


def _tagged(tag: int, content: bytes) -> bytes:
    """DER with a length in the short form, or in the long one with two bytes."""
    size = len(content)
    return bytes([tag, size] if size < 128 else [tag, 0x82, size >> 8, size & 255]) + content


def _written(directory: Path, der: bytes, key: Key) -> tuple[Path, Path]:
    crt, private = directory / "bits.crt", directory / "bits.key"
    crt.write_text(ssl.DER_cert_to_PEM_cert(der))
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return crt, private
