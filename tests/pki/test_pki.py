"""Keys and certificates, each made in its own process and checked by openssl."""

from __future__ import annotations

import ssl
import subprocess
import time
from pathlib import Path

import pytest

from actors._pki import pki
from actors._pki.pki import Names, PkiError

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
