"""TLS: versions, ciphers, client certificates, and files that change while it serves."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._net import clientcerts
from actors._net import stream as stream_module
from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.server.base.http import Request, Response, text
from actors.server.policy import user_of_certificate
from actors.server.transport import tls
from actors.server.transport.listening import Connections, Port
from actors.server.transport.tls import Certificates, TlsFiles, cipher_name, context
from tests.controlplane.certificates import Authority, name_of, new_key, self_signed
from tests.server.site import say, until


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
    with pytest.raises(ssl.SSLError):
        talk(context(files(authority, clients=True)), strange(authority, Authority(tmp_path / "pki")))


def strange(authority: Authority, other: Authority) -> ssl.SSLContext:
    """A client with a certificate of another authority."""
    other.issue("client", "me", "system:masters")
    made = client(authority)
    made.load_cert_chain(*files(other, "client")[:2])
    return made


@pytest.fixture
def who(authority: Authority) -> Iterator[Callable[[ssl.SSLContext], str]]:
    """A server that answers with the name in a client's certificate; asks it once."""
    assert clientcerts.available()

    async def serve(stream: Stream, _: Request) -> Response:
        try:
            user = user_of_certificate(stream.certificate())
        except ssl.SSLCertVerificationError:
            return text(401, "strange")
        return text(200, user.name if user is not None else "nobody")

    loop, connections, crashes = Loop(), Connections(), list[BaseException]()
    certificates = Certificates([files(authority, clients=True)], later=True)
    port = Port(loop, connections, serve, certificates.current)
    loop.start(crashes.append)
    loop.call(lambda: loop.spawn(port.listen("127.0.0.1", 0)))
    until(lambda: port.number)

    def ask(tls: ssl.SSLContext) -> str:
        return say(port.number, b"GET / HTTP/1.0\r\n\r\n", tls).rpartition(b"\r\n")[2].decode()

    yield ask
    loop.stop()
    until(lambda: not any(thread.name == "server" for thread in threading.enumerate()))
    assert not crashes


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
def test_a_strange_certificate_is_judged_with_the_request(
    authority: Authority, tmp_path: Path, who: Callable[[ssl.SSLContext], str], version: ssl.TLSVersion
) -> None:
    known, nobody = client(authority, "client"), client(authority)
    wrong = strange(authority, Authority(tmp_path / "pki"))
    for one in (known, nobody, wrong):
        one.minimum_version = one.maximum_version = version
    expected = {known: "me", wrong: "strange", nobody: "nobody"}
    for one in (known, wrong, nobody, wrong, known, nobody):  # one's judgement is not the next one's
        assert who(one) == expected[one]


def test_certificates_that_claim_to_be_of_the_authority(
    authority: Authority, tmp_path: Path, who: Callable[[ssl.SSLContext], str]
) -> None:
    """Of the same name, signed by nobody, over, or for servers only."""
    twin = Authority(tmp_path / "twin")
    assert who(strange(authority, twin)) == "strange"
    certificate, key = self_signed(tmp_path / "self", name_of("me", "system:masters"), new_key())
    alone = client(authority)
    alone.load_cert_chain(certificate, key)
    assert who(alone) == "strange"
    chained = client(authority)
    (tmp_path / "chain.crt").write_text(certificate.read_text() + authority.path.read_text())
    chained.load_cert_chain(tmp_path / "chain.crt", key)
    assert who(chained) == "strange", "with the authority's own certificate behind it"
    over = client(authority)
    over.load_cert_chain(*authority.issue("over", "me", days=-1))
    assert who(over) == "strange"


def test_a_certificate_that_is_over_by_now_counts_no_more(
    authority: Authority, who: Callable[[ssl.SSLContext], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = client(authority, "client")
    assert who(known) == "me"
    tomorrow = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + 2 * 86400)
    monkeypatch.setattr(stream_module, "time", tomorrow)
    assert who(known) == "strange"


def shake(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> tuple[bool, Any]:
    """Whether the server took the session up again, and the client's new one."""
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    verification = clientcerts.Verification()
    with (
        server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False) as here,
        client.wrap_socket(
            theirs, server_hostname="localhost", session=session, do_handshake_on_connect=False
        ) as there,
    ):
        left = {here, there}
        while left:
            for end in list(left):
                verification.begin()
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    left.remove(end)
        return bool(here.session_reused), there.session


def test_no_session_is_taken_up_again_where_nothing_would_be_verified(authority: Authority) -> None:
    known = client(authority, "client", version=ssl.TLSVersion.TLSv1_2)
    for later in (False, True):
        server = context(files(authority, clients=True), later=later)
        reused, session = shake(server, known)
        assert not reused
        assert shake(server, known, session)[0] is not later


def test_without_anybody_who_listens_a_certificate_is_refused(authority: Authority) -> None:
    with pytest.raises(ssl.SSLError):
        talk(context(files(authority, clients=True), later=True), client(authority, "client"))


def test_a_context_that_is_not_as_it_is_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clientcerts, "_pointer", lambda _: 1 << 40)  # what is there ends the process that looks
    assert not clientcerts.available()
    monkeypatch.setattr(clientcerts, "_Library", lambda: ctypes.CDLL(None).no_such_function)
    assert not clientcerts.available()


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
