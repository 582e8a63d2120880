"""TLS: versions, ciphers, client certificates, and files that change during service."""

from __future__ import annotations

import contextlib
import logging
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
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from actors._net import stream as stream_module
from actors._net.loop import Loop
from actors._net.openssl import ServerContext
from actors._net.stream import Stream
from actors._net.tls import TlsSocket
from actors.server.base.http import Request, Response, text
from actors.server.policy import user_of_certificate
from actors.server.transport import tls
from actors.server.transport.listening import Connections, Port
from actors.server.transport.tls import Certificates, TlsFiles, cipher_name, context
from proto.agent.actor import Describe
from supervisor.config.kubeletconfig.validation.server import CURVES
from tests.controlplane.certificates import Authority, name_of, new_key, self_signed
from tests.harness import ActorProcess, wait_for
from tests.ports import free_port
from tests.server.site import read_all, say, site, until
from tests.tls_records import send_key_updates


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


def shake(
    server: ServerContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[TlsSocket, ssl.SSLSocket]:
    """Both ends after a handshake, not blocking, and a byte from the client."""
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    here = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    there = client.wrap_socket(theirs, server_hostname="localhost", session=session, do_handshake_on_connect=False)
    try:
        left: set[TlsSocket | ssl.SSLSocket] = {here, there}
        while left:
            for end in list(left):
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    left.remove(end)
        there.send(b"x")
        assert here.recv(1) == b"x"
    except BaseException:
        for end in (here, there):
            end.close()
        raise
    return here, there


@contextlib.contextmanager
def connection(
    server: ServerContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> Iterator[tuple[TlsSocket, ssl.SSLSocket]]:
    here, there = shake(server, client, session)
    try:
        yield here, there
    finally:
        here.close()
        there.close()


def client(authority: Authority, certificate: str = "", *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.path))
    if certificate:
        made.load_cert_chain(*files(authority, certificate)[:2])
    if version is not None:
        made.maximum_version = version
    return made


def test_client_certificate_is_read_and_none_is_required(authority: Authority) -> None:
    server = context(files(authority, clients=True))
    with connection(server, client(authority, "client")) as (here, _):
        found = here.client_certificate(server.verify)
        assert found is not None
        assert found[:2] == ("me", ("some", "groups"))
        assert 0 < found.expires - time.time() < 400 * 86400
    with connection(server, client(authority)) as (here, _):
        assert here.client_certificate(server.verify) is None


def test_server_without_an_authority_asks_for_no_certificate(authority: Authority) -> None:
    server = context(files(authority))
    with connection(server, client(authority, "client")) as (here, _):
        assert here.client_certificate(server.verify) is None


def test_certificate_of_another_authority_fails_only_when_read(authority: Authority, tmp_path: Path) -> None:
    server = context(files(authority, clients=True))
    with connection(server, strange(authority, Authority(tmp_path / "pki"))) as (here, there):
        with pytest.raises(ssl.SSLCertVerificationError):
            here.client_certificate(server.verify)
        with pytest.raises(ssl.SSLWantReadError):
            here.recv(1)
        there.send(b"more")
        assert here.recv(100) == b"more"


@pytest.mark.parametrize("clients", [False, True])
def test_hang_up_without_close_notify_reads_as_the_end(authority: Authority, clients: bool) -> None:
    with connection(context(files(authority, clients=clients)), client(authority)) as (here, there):
        socket.socket.shutdown(there, socket.SHUT_RDWR)
        assert here.recv(100) == b""


@pytest.mark.parametrize("clients", [False, True])
def test_close_notify_is_the_end_for_both_sides(authority: Authority, clients: bool) -> None:
    with connection(context(files(authority, clients=clients)), client(authority)) as (here, there):
        with contextlib.suppress(ssl.SSLError):
            there.unwrap()
        assert here.recv(100) == b""
        with contextlib.suppress(ssl.SSLError):
            here.unwrap()
        there.unwrap()


@pytest.mark.parametrize("clients", [False, True])
def test_closed_connection_uses_no_descriptor_again(authority: Authority, clients: bool) -> None:
    with connection(context(files(authority, clients=clients)), client(authority)) as (here, _):
        ours, peer = socket.socketpair()
        peer.setblocking(False)
        number = here.fileno()
        here.close()
        os.dup2(ours.fileno(), number)
        try:
            for call in (here.do_handshake, here.unwrap, lambda: here.recv(1), lambda: here.send(b"x")):
                with pytest.raises((OSError, ValueError)):
                    call()
            with pytest.raises(BlockingIOError):
                peer.recv(1)
        finally:
            os.close(number)
            ours.close()
            peer.close()


@pytest.mark.parametrize("clients", [False, True])
def test_write_to_a_client_that_reads_nothing_would_block(authority: Authority, clients: bool) -> None:
    block = os.urandom(1 << 20)
    with connection(context(files(authority, clients=clients)), client(authority)) as (here, there):
        left = memoryview(block)
        blocked = False
        got = b""
        while len(got) < len(block):
            try:
                left = left[here.send(left) :] if left else left
            except ssl.SSLWantWriteError:
                blocked = True
            if blocked or not left:
                with contextlib.suppress(ssl.SSLWantReadError):
                    got += there.recv(1 << 20)
        assert blocked
        assert got == block


@pytest.mark.parametrize("clients", [False, True])
def test_plain_http_fails_the_handshake_with_its_reason(authority: Authority, clients: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.send(b"GET / HTTP/1.1\r\n\r\n")
    server = context(files(authority, clients=clients))
    here = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    with pytest.raises(ssl.SSLError) as caught:
        here.do_handshake()
    assert caught.value.reason == "HTTP_REQUEST"
    here.close()
    theirs.close()


@pytest.mark.parametrize("clients", [False, True])
def test_client_that_leaves_within_the_handshake_is_no_error(
    authority: Authority, clients: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As each health check by TCP does, and each port scan."""
    with site(files=files(authority, clients=clients)) as here:
        for sent in (b"", b"\x16\x03\x01\x02"):
            with socket.create_connection(("127.0.0.1", here.secure), timeout=20) as connected:
                connected.sendall(sent)
                connected.shutdown(socket.SHUT_WR)
                read_all(connected)
    assert not caplog.records or max(record.levelno for record in caplog.records) < logging.WARNING


@pytest.mark.parametrize("clients", [False, True])
@pytest.mark.parametrize(("offered", "chosen"), [(["h2", "http/1.1"], "http/1.1"), (["h2"], None), ([], None)])
def test_http_1_1_is_chosen_where_it_is_offered(
    authority: Authority, clients: bool, offered: list[str], chosen: str | None
) -> None:
    one = client(authority)
    one.set_alpn_protocols(offered)
    with connection(context(files(authority, clients=clients)), one) as (_, there):
        assert there.selected_alpn_protocol() == chosen


def test_client_ca_file_without_a_certificate_is_an_error(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nonsense")
    for path in (tmp_path / "ca.crt", tmp_path / "missing.crt"):
        with pytest.raises(OSError, match=f"cannot use the client certificate authority {path}"):
            context(files(authority)._replace(authority=str(path)))


@pytest.mark.parametrize("clients", [False, True])
def test_key_of_another_certificate_is_an_error(authority: Authority, clients: bool) -> None:
    with pytest.raises(OSError, match=r"server\.crt with the key .*other\.key"):
        context(files(authority, clients=clients)._replace(key=files(authority, "other").key))


def strange(authority: Authority, other: Authority) -> ssl.SSLContext:
    """A client with a certificate of another authority."""
    other.issue("client", "me", "system:masters")
    made = client(authority)
    made.load_cert_chain(*files(other, "client")[:2])
    return made


@pytest.fixture
def who(authority: Authority) -> Iterator[Callable[[ssl.SSLContext], str]]:
    """A server that answers with the name in a client's certificate, and a function that asks it once."""

    async def serve(stream: Stream, _: Request) -> Response:
        try:
            user = user_of_certificate(stream.certificate(certificates.current().verify))
        except ssl.SSLCertVerificationError:
            return text(401, "strange")
        return text(200, user.name if user is not None else "nobody")

    loop, connections, crashes = Loop(), Connections(), list[BaseException]()
    certificates = Certificates([files(authority, clients=True)])
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


def forge(directory: Path, *groups: str) -> tuple[Authority, ssl.SSLContext]:
    """An authority with an RSA key, and a client with a certificate in its name that it did not sign.

    Only for RSA does OpenSSL leave a wrong signature in its error queue.
    """
    made = [Authority(directory / name, rsa.generate_private_key(65537, 2048)) for name in ("real", "forged")]
    crt, key = made[1].issue("client", "me", *groups)
    made[0].issue("server", "node")
    forged = client(made[0])
    forged.load_cert_chain(crt, key)
    return made[0], forged


def test_forged_certificate_harms_no_other_connection(tmp_path: Path) -> None:
    """The client's request comes with the end of its handshake, so no read in between takes the error."""
    real, forged = forge(tmp_path, "system:masters")
    server = context(files(real, clients=True))
    with connection(server, client(real)) as (waiting, _), connection(server, client(real)) as (left, gone):
        socket.socket.shutdown(gone, socket.SHUT_RDWR)
        with connection(server, forged) as (here, _):
            with pytest.raises(ssl.SSLCertVerificationError):
                here.client_certificate(server.verify)
            assert left.recv(100) == b""
        with connection(server, forged), pytest.raises(ssl.SSLWantReadError):
            waiting.recv(100)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_forged_certificate_that_comes_in_pieces_completes_the_handshake(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    real, forged = forge(tmp_path)
    forged.minimum_version = forged.maximum_version = version
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    server = context(files(real, clients=True))
    here = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = forged.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with here, theirs:
        complete = False
        while not complete:
            with contextlib.suppress(ssl.SSLWantReadError):
                there.do_handshake()
            sent = outgoing.read()
            for at in range(0, len(sent), 50):
                theirs.send(sent[at : at + 50])
                with contextlib.suppress(ssl.SSLWantReadError):
                    here.do_handshake()
                    complete = True
            with contextlib.suppress(BlockingIOError):
                incoming.write(theirs.recv(1 << 16))
        with pytest.raises(ssl.SSLCertVerificationError):
            here.client_certificate(server.verify)


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
def test_unverified_certificate_is_judged_with_the_request(
    authority: Authority, tmp_path: Path, who: Callable[[ssl.SSLContext], str], version: ssl.TLSVersion
) -> None:
    known, nobody = client(authority, "client"), client(authority)
    wrong = strange(authority, Authority(tmp_path / "pki"))
    for one in (known, nobody, wrong):
        one.minimum_version = one.maximum_version = version
    expected = {known: "me", wrong: "strange", nobody: "nobody"}
    for one in (known, wrong, nobody, wrong, known, nobody):  # one's judgement is not the next one's
        assert who(one) == expected[one]


def test_forged_and_expired_certificates_are_unverified(
    authority: Authority, tmp_path: Path, who: Callable[[ssl.SSLContext], str]
) -> None:
    """Certificates of a CA with the same name, self-signed, chained to the real CA, and expired."""
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


def test_last_common_name_is_the_user_as_in_go(authority: Authority) -> None:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in ("first", "last")]
    two = client(authority)
    two.load_cert_chain(*authority.sign("two", x509.Name(names), new_key()))
    server = context(files(authority, clients=True))
    with connection(server, two) as (here, _):
        assert (here.client_certificate(server.verify) or ("",))[0] == "last"


def test_authority_may_be_an_intermediate_without_its_root(authority: Authority, tmp_path: Path) -> None:
    key, name = new_key(), name_of("between")
    below = Authority(tmp_path / "below", key, name)
    authority.sign("between", name, key, x509.BasicConstraints(ca=True, path_length=None))
    below.issue("client", "me")
    server = context(files(authority)._replace(authority=str(authority.directory / "between.crt")))
    known, stranger = client(authority), client(authority, "client")
    known.load_cert_chain(*files(below, "client")[:2])
    with connection(server, known) as (here, _):
        assert (here.client_certificate(server.verify) or ("",))[0] == "me"
    with connection(server, stranger) as (here, _), pytest.raises(ssl.SSLCertVerificationError):
        here.client_certificate(server.verify)


def test_certificate_that_expires_while_connected_is_refused(
    authority: Authority, who: Callable[[ssl.SSLContext], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = client(authority, "client")
    assert who(known) == "me"
    tomorrow = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + 2 * 86400)
    monkeypatch.setattr(stream_module, "time", tomorrow)
    assert who(known) == "strange"


@VERSIONS
def test_removed_ca_ends_the_user_of_open_connections(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """As in the kubelet, which verifies the certificate with each request."""
    other, bundle = Authority(tmp_path / "pki"), tmp_path / "bundle.crt"
    chosen = files(authority)._replace(authority=str(bundle))
    bundle.write_text(authority.path.read_text() + other.path.read_text())
    both = context(chosen)
    bundle.write_text(other.path.read_text())
    without = context(chosen)
    bundle.write_text(authority.path.read_text())
    again = context(chosen)
    with connection(both, client(authority, "client", version=version)) as (here, _):
        for server in (both, again):
            assert (here.client_certificate(server.verify) or ("",))[0] == "me"
        with pytest.raises(ssl.SSLCertVerificationError):
            here.client_certificate(without.verify)
        assert (here.client_certificate(again.verify) or ("",))[0] == "me"
    with connection(both, client(authority)) as (here, _):
        assert here.client_certificate(without.verify) is None


def test_no_session_is_resumed(authority: Authority) -> None:
    known = client(authority, "client", version=ssl.TLSVersion.TLSv1_2)
    for clients in (False, True):
        server = context(files(authority, clients=clients))
        with connection(server, known) as (_, there):
            assert not there.session_reused
            session = there.session
        with connection(server, known, session) as (_, there):
            assert not there.session_reused


@pytest.mark.parametrize("clients", [False, True])
def test_read_ends_after_each_key_update(authority: Authority, clients: bool, tmp_path: Path) -> None:
    """A client could send them without end, so that the other connections wait for that one read."""
    known = client(authority)
    known.keylog_filename = str(tmp_path / "keys")
    with connection(context(files(authority, clients=clients)), known) as (here, there):
        send_key_updates(there, tmp_path / "keys", 3, b"data", sequence=1)  # after the byte of the connection's start
        for _ in range(3):
            with pytest.raises(ssl.SSLWantReadError):
                here.recv(100)
        assert here.recv(100) == b"data"


@pytest.mark.parametrize("clients", [False, True])
def test_lower_tls_version_than_configured_is_refused(authority: Authority, clients: bool) -> None:
    server = context(files(authority, clients=clients), "VersionTLS13")
    with pytest.raises(OSError, match=r"(?i)protocol|version|eof|connection"):
        shake(server, client(authority, version=ssl.TLSVersion.TLSv1_2))
    with connection(context(files(authority, clients=clients)), client(authority)) as (_, there):
        assert there.version() == "TLSv1.3"


@pytest.mark.parametrize("clients", [False, True])
def test_only_configured_cipher_suites_are_negotiated(authority: Authority, clients: bool) -> None:
    suites = ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"]
    server = context(files(authority, clients=clients), "", suites)
    with connection(server, client(authority, version=ssl.TLSVersion.TLSv1_2)) as (_, there):
        assert (there.cipher() or ("",))[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def only(authority: Authority, group: str) -> ssl.SSLContext:
    """A client that exchanges keys by this group alone."""
    made = client(authority)
    made.set_ecdh_curve(group)
    return made


def group_of(server: ServerContext, client: ssl.SSLContext) -> str | None:
    """The group that both ends agreed on; None when they did not."""
    try:
        with connection(server, client) as (here, _):
            session: Any = here
            found: str = session._session.get_group_name()
            return found.lower()
    except ssl.SSLError:
        return None


NAMES = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1"}
"""Of the groups that the ssl module can choose for a client."""


@pytest.mark.parametrize("allowed", [(), (23,), (24,), (25,), (25, 23), (29,)])
def test_only_configured_key_exchanges_are_negotiated(authority: Authority, allowed: tuple[int, ...]) -> None:
    server = context(files(authority), curves=allowed)
    agreed = {number for number, name in NAMES.items() if group_of(server, only(authority, name))}
    assert agreed == (set(allowed or NAMES) & NAMES.keys())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_order_of_key_exchanges_is_ignored_as_in_go(authority: Authority, version: ssl.TLSVersion) -> None:
    anything = client(authority, version=version)
    for allowed, chosen in (((24, 23, 29), "x25519"), ((29, 24, 23, 23), "x25519"), ((25, 24), "secp384r1")):
        assert group_of(context(files(authority), curves=allowed), anything) == chosen


def test_key_exchange_that_openssl_lacks_is_left_out_or_an_error(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL before 3.5 has none with ML-KEM."""
    monkeypatch.setitem(tls.GROUPS, 4588, "no-such-group")
    server = context(files(authority), curves=(4588, 23))
    assert "this OpenSSL has no no-such-group; serving with secp256r1" in caplog.text
    assert [group_of(server, only(authority, NAMES[number])) is not None for number in (23, 24)] == [True, False]
    with pytest.raises(OSError, match="cannot use tlsCurvePreferences: this OpenSSL has no key exchange no-such-group"):
        context(files(authority), curves=(4588,))


def test_each_key_exchange_of_the_configuration_has_a_name() -> None:
    assert tls.GROUPS.keys() == CURVES.keys()


def test_changed_certificate_keeps_the_configured_key_exchanges(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    pair = TlsFiles(str(tmp_path / "crt"), str(tmp_path / "key"))
    made = Certificates([pair], "", (), (24,))
    for name in ("server", "other"):
        for path, source in zip(pair, files(authority, name)[:2], strict=False):
            shutil.copy(source, path)
        assert [group_of(made.current(), only(authority, NAMES[number])) for number in (23, 24)] == [None, "secp384r1"]
    assert made.loads == 2


def test_server_has_the_configured_key_exchanges_also_after_a_kill(authority: Authority) -> None:
    port, pair = free_port(), files(authority)

    def check() -> None:
        wait_for(lambda: process.ask(Describe()).state["ports"] == [port], 30, "the port")
        assert say(port, b"GET / HTTP/1.0\r\n\r\n", only(authority, "secp384r1")).startswith(b"HTTP/1.1 401")
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            say(port, b"", only(authority, "prime256v1"))

    with ActorProcess(
        "server", server_address="127.0.0.1", server_port=port, tls_cert_file=pair.certificate,
        tls_private_key_file=pair.key, tls_curve_preferences=(24,),
    ) as process:  # fmt: skip
        check()
        process.restart()
        check()


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
