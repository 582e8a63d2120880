"""Certificates that clients trust: what Go's crypto/x509 takes, with any Python."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from actors._pki import pki
from actors._pki.pki import Names
from actors._pki.trust import client_context
from tests.controlplane.certificates import Authority, Key, name_of, new_key, unsigned, write

NAME = "node.invalid"
SERVES = x509.SubjectAlternativeName([x509.DNSName(NAME)])
IS_AUTHORITY = x509.BasicConstraints(ca=True, path_length=None)


def handshake(client: ssl.SSLContext, certificate: Path, key: Path, name: str = NAME) -> None:
    """Connect in memory. Raises ssl.SSLError when the client refuses the server."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)


def bare(path: Path, key: Key, *extensions: x509.ExtensionType) -> Path:
    """An authority without key usage and identifiers, as old tools make it."""
    builder = unsigned(name_of("bare"), name_of("bare"), key, 1)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return write(path, key, builder.sign(key, hashes.SHA256()))[0]


def test_server_of_an_authority_without_identifiers_is_trusted(tmp_path: Path) -> None:
    key, own = new_key(), new_key()
    authority = bare(tmp_path / "bare", key, IS_AUTHORITY)
    signed = unsigned(name_of("server"), name_of("bare"), own, 1).add_extension(SERVES, critical=False)
    pair = write(tmp_path / "server", own, signed.sign(key, hashes.SHA256()))
    context = client_context(authority.read_text())
    handshake(context, *pair)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT  # set by default from Python 3.13 on


def test_intermediate_is_an_authority_without_its_root(tmp_path: Path) -> None:
    root, key, name = Authority(tmp_path / "root"), new_key(), name_of("between")
    between, _ = root.sign("between", name, key, IS_AUTHORITY)
    pair = Authority(tmp_path / "below", key, name).issue("server", "server")
    handshake(client_context(between.read_text()), *pair, name="localhost")


def test_others_and_other_names_are_refused(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "authority"), Authority(tmp_path / "other")
    trusting = client_context(authority.path.read_text())
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get local issuer|self.signed"):
        handshake(trusting, *other.issue("server", "server"), name="localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        handshake(trusting, *authority.issue("server", "server"), name="other.invalid")
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(trusting, *authority.issue("late", "server", days=-1), name="localhost")


def test_common_name_is_no_servers_name(tmp_path: Path) -> None:
    authority, key = Authority(tmp_path / "authority"), new_key()
    pair = authority.sign("server", name_of(NAME), key)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        handshake(client_context(authority.path.read_text()), *pair)


def test_strict_client_trusts_our_own_serving_certificate(tmp_path: Path) -> None:
    made = pki.self_signed(Names(common_name="node", dns_names=(NAME,)))
    for name, content in (("tls.crt", made.certificate), ("tls.key", made.key)):
        (tmp_path / name).write_text(content)
    strict = ssl.create_default_context(cadata=made.certificate)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    handshake(strict, tmp_path / "tls.crt", tmp_path / "tls.key")
