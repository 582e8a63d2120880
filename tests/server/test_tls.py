"""TLS: versions, ciphers, client certificates, and files that change while it serves."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

from actors.server import tls
from actors.server.tls import Certificates, TlsFiles, cipher_name, context
from tests.controlplane.certificates import Authority


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_AES_128_GCM_SHA256", ""),
    ],
)
def test_a_cipher_suite_has_the_librarys_name(iana: str, openssl: str) -> None:
    assert cipher_name(iana) == openssl
    if openssl:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki") / "pki")
    made.issue("server", "node")
    made.issue("other", "other node")
    made.issue("client", "me", "some", "groups")
    return made


def files(authority: Authority, name: str = "server", *, clients: bool = False) -> TlsFiles:
    crt, key = (str(authority.directory / f"{name}.{end}") for end in ("crt", "key"))
    return TlsFiles(crt, key, str(authority.path) if clients else "")


def talk(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    ours, theirs = socket.socketpair()
    made: list[ssl.SSLSocket] = []
    errors: list[BaseException] = []

    def serve() -> None:
        try:
            made.append(server.wrap_socket(ours, server_side=True))
            made[0].recv(1)
        except OSError as error:
            errors.append(error)
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        there = client.wrap_socket(theirs, server_hostname="localhost")
        there.send(b"x")
    finally:
        thread.join(20)
        if errors:
            theirs.close()
            raise errors[0]
    return made[0], there


def client(authority: Authority, certificate: str = "", *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.path))
    if certificate:
        made.load_cert_chain(*files(authority, certificate)[:2])
    if version is not None:
        made.maximum_version = version
    return made


def test_a_client_certificate_is_known_and_none_is_needed(authority: Authority) -> None:
    server = context(files(authority, clients=True))
    for name in ("client", ""):
        here, there = talk(server, client(authority, name))
        assert bool(here.getpeercert()) is bool(name)
        here.close()
        there.close()


def test_a_client_certificate_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "pki")
    stranger.issue("client", "me")
    wrong = client(authority)
    wrong.load_cert_chain(*files(stranger, "client")[:2])
    with pytest.raises(ssl.SSLError):
        talk(context(files(authority, clients=True)), wrong)


def test_the_least_version_is_kept_to(authority: Authority) -> None:
    server = context(files(authority), "VersionTLS13")
    with pytest.raises(OSError, match=r"(?i)protocol|version|eof|connection"):
        talk(server, client(authority, version=ssl.TLSVersion.TLSv1_2))
    assert context(files(authority)).minimum_version is ssl.TLSVersion.TLSv1_2


def test_only_the_configured_suites_are_spoken(authority: Authority) -> None:
    server = context(files(authority), "", ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"])
    here, there = talk(server, client(authority, version=ssl.TLSVersion.TLSv1_2))
    assert (here.cipher() or ("",))[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    here.close()
    there.close()


def test_files_that_change_are_in_use_with_the_next_connection(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    current = tmp_path / "current.pem"
    made = Certificates([TlsFiles(str(current), str(current)), files(authority)])
    first = made.current()
    assert made.current() is first
    shutil.copy(authority.directory / "other.crt", tmp_path / "pair.pem")
    with (tmp_path / "pair.pem").open("a") as pair:
        pair.write((authority.directory / "other.key").read_text())
    os.symlink(tmp_path / "pair.pem", current)
    second = made.current()
    assert second is not first
    (tmp_path / "pair.pem").write_text("nonsense")
    assert made.current() is second, "what cannot be used changes nothing"
    assert made.loads == 2


def test_without_any_certificate_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    with pytest.raises(OSError, match="none"):
        Certificates([TlsFiles(missing, missing)]).current()
