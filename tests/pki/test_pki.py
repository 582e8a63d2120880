"""Keys and certificates, each made in its own process and checked by openssl."""

from __future__ import annotations

import ssl
import subprocess
import time
from pathlib import Path

import pytest

from actors._pki import pki
from actors._pki.pki import Names, PkiError, PkiUnavailable
from actors._pki.trust import client_context
from tests.pki.test_trust import handshake

NODE = Names(
    common_name="system:node:n",
    organizations=("system:nodes",),
    dns_names=("n",),
    addresses=("192.0.2.1", "2001:db8::1"),
)


def openssl(*arguments: str, stdin: str) -> str:
    done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


@pytest.mark.needs("openssl")
def test_request_has_its_names_and_may_reuse_its_key() -> None:
    first = pki.request(NODE)
    text = openssl("req", "-noout", "-text", "-verify", stdin=first.request)
    assert "O = system:nodes, CN = system:node:n" in text
    assert "DNS:n, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1" in text
    assert "prime256v1" in text
    assert first.key.startswith("-----BEGIN EC PRIVATE KEY-----")
    again = pki.request(NODE, first.key)
    assert (again.key, again.public_key) == (first.key, first.public_key)
    assert pki.request(NODE).public_key != first.public_key


def test_a_self_signed_certificate_serves_and_is_read_back(tmp_path: Path) -> None:
    made = pki.self_signed(NODE)
    facts = pki.read((made.certificate + made.key).encode())
    assert facts.names == NODE
    assert facts.not_before <= time.time() < facts.not_after
    (tmp_path / "pair.pem").write_text(made.certificate + made.key)
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(tmp_path / "pair.pem")


def test_unusable_key_or_certificate_is_named_in_the_error(tmp_path: Path) -> None:
    one, other = pki.self_signed(NODE), pki.self_signed(NODE)
    with pytest.raises(PkiError, match="not the certificate's"):
        pki.read((one.certificate + other.key).encode())
    with pytest.raises(PkiError, match="no certificate"):
        pki.read(b"rubbish")
    with pytest.raises(PkiError, match="its key cannot be used"):
        pki.read(one.certificate.encode())
    with pytest.raises(PkiError, match="its key cannot be used"):
        pki.request(NODE, "rubbish")


@pytest.mark.needs("openssl")
def test_longest_node_name_gets_its_certificates(tmp_path: Path) -> None:
    """RFC 5280 allows a common name of 64 characters. Go, Python's ssl and openssl take longer ones."""
    name = ".".join(["n" * 62] * 4) + "n"
    assert len(name) == 252
    user = Names(common_name=f"system:node:{name}", organizations=("system:nodes",))
    made = pki.request(user)
    assert f"CN = {user.common_name}" in openssl("req", "-noout", "-text", "-verify", stdin=made.request)
    served = pki.self_signed(Names(common_name=name, dns_names=(name,)))
    assert f"CN = {name}" in openssl("x509", "-noout", "-subject", stdin=served.certificate)
    assert pki.read((served.certificate + served.key).encode()).names.common_name == name
    for file, content in (("tls.crt", served.certificate), ("tls.key", served.key)):
        (tmp_path / file).write_text(content)
    handshake(client_context(served.certificate), tmp_path / "tls.crt", tmp_path / "tls.key", name)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sh", "-c", "kill -9 $$"], "was ended by signal 9"),
        (["sleep", "30"], "TimeoutExpired"),
        (["/nonexistent/python"], "No such file or directory"),
    ],
)
def test_failed_process_says_nothing_about_the_certificate(
    monkeypatch: pytest.MonkeyPatch, command: list[str], said: str
) -> None:
    monkeypatch.setattr(pki, "command", lambda _: command)
    # A busy machine may take a second to start a program.
    monkeypatch.setattr(pki, "DEADLINE_S", 0.5 if said == "TimeoutExpired" else 60.0)
    with pytest.raises(PkiUnavailable, match=said):
        pki.read(b"rubbish")
