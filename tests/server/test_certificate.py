"""The serving certificate: the self-signed, the configured and the cluster's one, as the kubelet chooses them."""

from __future__ import annotations

import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.server.transport import certificate, tls
from actors.server.transport.certificate import NONE, Pair
from actors.server.transport.tls import Certificates, TlsFiles
from proto.agent.actor import Describe
from proto.agent.settings import Settings
from tests.controlplane.certificates import Authority
from tests.harness import ActorProcess, wait_for
from tests.ports import free_port

CURRENT = Pair("/pki/kubelet-server-current.pem", "/pki/kubelet-server-current.pem")
OWN, CONFIGURED = Pair("/pki/kubelet.crt", "/pki/kubelet.key"), Pair("/etc/a.crt", "/etc/a.key")


@pytest.mark.parametrize(
    ("bootstrap", "configured", "expected"),
    [
        (False, False, (OWN,)),
        (False, True, (CONFIGURED,)),
        (True, False, (CURRENT, NONE)),
        (True, True, (CURRENT, CONFIGURED, NONE)),
    ],
)
def test_setting_decides_which_certificate_serves(
    bootstrap: bool, configured: bool, expected: tuple[Pair, ...]
) -> None:
    files = dict(zip(("tls_cert_file", "tls_private_key_file"), CONFIGURED, strict=True)) if configured else {}
    settings = Settings(cert_dir="/pki", server_tls_bootstrap=bootstrap, **files)
    assert certificate.choices(settings) == expected
    assert certificate.wants_own(settings) == (expected == (OWN,))


@contextmanager
def server(directory: Path, **settings: Any) -> Iterator[int]:
    """The port of a server actor with its certificates in the directory."""
    port = free_port()
    with ActorProcess(
        "server", server_address="127.0.0.1", server_port=port, anonymous_auth=True, authorization_mode="AlwaysAllow",
        cert_dir=str(directory), **settings,
    ) as process:  # fmt: skip
        wait_for(lambda: process.ask(Describe()).state["ports"] == [port], 30, "the port")
        yield port


def served_name(port: int, authority: Authority) -> bytes:
    """The certificate that the server shows, in DER."""
    context = ssl.create_default_context(cafile=str(authority.path))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as connected,
        context.wrap_socket(connected, server_hostname="localhost") as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_handshakes_fail_until_the_cluster_has_signed(tmp_path: Path) -> None:
    """With Go's alert, which administrators know for a request that nobody has approved."""
    authority, directory = Authority(tmp_path / "ca"), tmp_path / "pki"
    certificate_path, key = authority.issue("server", "system:node:node")
    with server(directory, server_tls_bootstrap=True) as port:
        with pytest.raises(ssl.SSLError, match=r"(?i)alert internal error"):
            served_name(port, authority)
        assert not directory.exists(), "no self-signed one"
        directory.mkdir()
        (directory / "kubelet-server-current.pem").write_bytes(certificate_path.read_bytes() + key.read_bytes())
        time.sleep(tls.LOOK_S)
        assert served_name(port, authority) == der(certificate_path)


def test_without_bootstrap_the_clusters_certificate_is_not_used(tmp_path: Path) -> None:
    """It may be one from before serverTLSBootstrap was switched off, which nobody renews."""
    authority, directory = Authority(tmp_path / "ca"), tmp_path / "pki"
    directory.mkdir()
    paths = authority.issue("old", "system:node:node")
    (directory / "kubelet-server-current.pem").write_bytes(b"".join(path.read_bytes() for path in paths))
    own = authority.issue("own", "node")
    for path, name in zip(own, ("kubelet.crt", "kubelet.key"), strict=True):
        shutil.copy(path, directory / name)
    with server(directory) as port:
        assert served_name(port, authority) == der(own[0])


def test_missing_configured_certificate_is_not_made_up(tmp_path: Path) -> None:
    missing = tmp_path / "missing.crt"
    with server(tmp_path / "pki", tls_cert_file=str(missing), tls_private_key_file=f"{missing}.key") as port:
        with pytest.raises(OSError, match=r"(?i)eof|reset"):
            served_name(port, Authority(tmp_path / "ca"))
        assert not missing.exists()
        assert not (tmp_path / "pki").exists()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The wall clock of the certificates; they look at each connection."""
    set_ = [time.time()]
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    monkeypatch.setattr(tls, "time", SimpleNamespace(monotonic=time.monotonic, time=lambda: set_[0]))
    return set_


def test_expired_certificate_of_the_cluster_fails_handshakes(
    tmp_path: Path, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """A configured one is served on, as in the kubelet."""
    files = TlsFiles(*map(str, Authority(tmp_path / "ca").issue("server", "node")))
    configured, signed = Certificates([files]), Certificates([files], only_valid=True)
    first, other = signed.current(), configured.current()
    now[0] += 2 * 86400
    refusing = signed.current()
    assert refusing is not first
    assert signed.current() is refusing
    assert [record.message for record in caplog.records if "has expired" in record.message]
    assert configured.current() is other
    now[0] -= 2 * 86400  # the clock was wrong
    assert signed.current() is not refusing


def test_expired_certificate_is_not_kept_for_a_damaged_one(
    tmp_path: Path, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    files = TlsFiles(*map(str, Authority(tmp_path / "ca").issue("server", "node")))
    signed = Certificates([files], only_valid=True)
    signed.current()
    Path(files.certificate).write_text("half of a certif")
    signed.current()
    now[0] += 2 * 86400
    for _ in range(3):
        signed.current()
    said = [record.message.rpartition("; ")[2] for record in caplog.records]
    assert said == [
        "the previous certificate stays in use",
        "the previous certificate has expired, and TLS handshakes fail",
    ]
