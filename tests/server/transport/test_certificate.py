"""The serving certificate: the self-signed, the configured and the cluster's one, as the kubelet chooses them."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from actors.server.transport import certificate, tls
from actors.server.transport.certificate import NONE, Pair
from actors.server.transport.certificate_watch import RETRY_S, CertificateWatch
from actors.server.transport.tls import Certificates, TlsFiles
from proto.agent.actor import Describe
from proto.agent.settings import Settings
from proto.waits.facts import Facts
from proto.waits.table import Table, read_all
from proto.waits.walk import why
from proto.wire.errors import AskTimeout
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
    """With Go's alert, which administrators know for a request without approval."""
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
    """It may be one from before serverTLSBootstrap was switched off, which no process renews."""
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


def put(path: Path, content: bytes) -> None:
    """Write a file at once: a look at a part of it would be a problem of its own."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.rename(path)


@pytest.mark.parametrize("kind", ["authority", "certificate", "key"])
def test_port_that_cannot_serve_is_a_wait_before_any_client(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also in the log. The wait is over when the files are right."""
    authority, port = Authority(tmp_path / "ca"), free_port()
    certificate_path, key = authority.issue("server", "node")
    paths = {"authority": authority.path, "certificate": certificate_path, "key": key}
    content = paths[kind].read_bytes()
    paths[kind].unlink()
    with ActorProcess(
        "server", server_address="127.0.0.1", server_port=port, anonymous_auth=True, authorization_mode="AlwaysAllow",
        tls_cert_file=str(certificate_path), tls_private_key_file=str(key), client_ca_file=str(authority.path),
    ) as process:  # fmt: skip

        def waits() -> list[str]:
            table = read_all(Path(process.dir))["server"]
            return [f"{one.waiter} {one.what}: {one.error}" for one in table.waits if one.kind == "condition"]

        (wait,) = wait_for(waits, 30, "the wait")
        assert wait.startswith(f"node port {port} to serve TLS: cannot use the ")
        assert f"{kind} {paths[kind]}: No such file or directory" in wait
        put(paths[kind], b"half of a certif")
        wait_for(lambda: (now := waits()) and "No such file" not in now[0], 30, "another problem")
        put(paths[kind], content)
        wait_for(lambda: not waits(), 30, "the end of the wait")
        assert served_name(port, authority) == der(certificate_path)
    lines = [line for line in capfd.readouterr().err.splitlines() if "serve TLS" in line]
    assert [line[0] for line in lines] == ["E", "E", "I"]
    assert str(paths[kind]) in lines[0]
    assert str(paths[kind]) in lines[1]


class Looks:
    """An actor and certificates: each look finds the next problem, or hangs in its thread."""

    def __init__(self, found: list[str | None]) -> None:
        self.found = found
        self.hanging = 0

    async def blocking(self, _: float, read: Callable[[], str]) -> str:
        if self.found[0] is None:
            self.hanging += 1
            raise AskTimeout("problem did not return within 5 s")
        return read()

    def problem(self) -> str:
        return str(self.found[0])


def test_problem_of_the_port_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    looks: Any = Looks(["no a", "no a", "no b", "", "", "no b"])
    watch = CertificateWatch(looks, looks, 10250)
    pauses = []
    while looks.found:
        pauses.append(asyncio.run(watch._look()))
        looks.found.pop(0)
    assert pauses == [RETRY_S, RETRY_S, RETRY_S, None, None, RETRY_S]
    said = [record.message.removeprefix("cannot serve TLS on port 10250: ") for record in caplog.records]
    end = "; the files are read again when they change"
    assert said == [f"no a{end}", f"no b{end}", "can serve TLS on port 10250 now", f"no b{end}"]


def test_certificate_files_that_hang_take_one_thread_only(caplog: pytest.LogCaptureFixture) -> None:
    looks: Any = Looks([None])
    watch = CertificateWatch(looks, looks, 10250)
    assert [asyncio.run(watch._look()) for _ in range(3)] == [RETRY_S] * 3
    assert looks.hanging == 1
    assert ["does not answer" in record.message for record in caplog.records] == [True]


def test_node_waits_for_a_port_that_cannot_serve(tmp_path: Path) -> None:
    """`supervisor why node` names the file."""
    missing = tmp_path / "ca.crt"
    with ActorProcess(
        "server", server_address="127.0.0.1", server_port=free_port(), client_ca_file=str(missing),
        cert_dir=str(tmp_path / "pki"),
    ) as process:  # fmt: skip

        def waiting() -> dict[str, Table] | None:
            now = read_all(Path(process.dir))
            return now if any(wait.waiter == "node" for wait in now["server"].waits) else None

        tables = wait_for(waiting, 30)
        answer = why(Facts(now=time.monotonic(), tables=tables), "node")
    assert f"cannot use the client certificate authority {missing}: No such file or directory" in answer.sentence
    assert answer.sentence.startswith("Node waits ")


def test_look_at_the_files_finds_what_the_context_refuses(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate_path, key = map(str, authority.issue("server", "node"))
    _, other = map(str, authority.issue("other", "other"))
    (tmp_path / "bad").write_text("nonsense")
    good = TlsFiles(certificate_path, key, str(authority.path))
    assert tls.problem_of(good) == tls.problem_of(TlsFiles("", "")) == ""
    bad = str(tmp_path / "bad")
    for field, value in {"certificate": bad, "key": other, "authority": bad}.items():
        files = good._replace(**{field: value})
        assert value in tls.problem_of(files)
        with pytest.raises(OSError, match=value):
            tls.context(files)
    os.mkfifo(tmp_path / "fifo")
    for field in ("certificate", "key", "authority"):
        files = good._replace(**{field: str(tmp_path / "fifo")})
        assert "it is no file" in tls.problem_of(files)
        with pytest.raises(OSError, match="it is no file"):
            tls.context(files)


def test_key_with_a_passphrase_is_refused_without_a_prompt(tmp_path: Path) -> None:
    path, key = Authority(tmp_path / "ca").issue("server", "node")
    plain = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        plain.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    files = TlsFiles(str(path), str(encrypted))
    assert str(encrypted) in tls.problem_of(files)
    with pytest.raises(OSError, match=str(encrypted)):
        tls.context(files)


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
