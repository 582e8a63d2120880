"""Credentials as they rotate: token files, certificates, plugins."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors._kube.connection import credentials as connection_credentials
from actors._kube.connection import plugin as connection_plugin
from actors._kube.connection.credentials import TOKEN_AGAIN_S, TOKEN_FILE_S, Credentials
from actors._kube.connection.kubeconfig import KubeconfigError, load
from tests.controlplane.certificates import Authority
from tests.harness import alive, wait_for


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def credentials(tmp_path: Path, user: dict[str, Any], clock: Clock) -> Credentials:
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://api", "certificate-authority-data": "UEVN"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return Credentials(load(str(path)), clock)


def plugin(tmp_path: Path, body: str) -> dict[str, Any]:
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\necho run >>{tmp_path}/runs\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1"}}


def printed(status: str) -> str:
    return f"""echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'"""


TOKEN = printed('{"token":"t"}')


def test_token_file_is_read_each_minute_and_after_a_refusal(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "token").write_text("one\n")
    who = credentials(tmp_path, {"tokenFile": "token", "token": "inline"}, clock)
    assert who.current().headers == [("Authorization", "Bearer one")]
    (tmp_path / "token").write_text("two\n")
    assert who.current().headers[0][1] == "Bearer one"
    clock.now += TOKEN_FILE_S
    assert who.current().headers[0][1] == "Bearer two"
    (tmp_path / "token").write_text("three")
    who.refused(who.current())
    assert who.current().headers[0][1] == "Bearer three"
    (tmp_path / "token").write_text("four")
    clock.now -= 86_400  # set back: how old the token is cannot be told any more
    assert who.current().headers[0][1] == "Bearer four"


def test_token_is_used_on_while_its_file_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, file = Clock(), tmp_path / "token"
    file.write_text("one")
    who = credentials(tmp_path, {"tokenFile": "token"}, clock)
    assert who.current().headers[0][1] == "Bearer one"
    file.unlink()
    for _ in range(3):
        clock.now += TOKEN_FILE_S
        assert who.current().headers[0][1] == "Bearer one"
    assert caplog.text.count("using the token that was read before") == 1
    file.write_text("two")
    clock.now += TOKEN_AGAIN_S
    assert who.current().headers[0][1] == "Bearer two"


def test_token_file_that_was_never_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="cannot read tokenFile"):
        credentials(tmp_path, {"tokenFile": "token"}, Clock()).current()


def test_certificates_follow_their_files_but_not_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "a.crt").write_text("C1")
    (tmp_path / "a.key").write_text("K1")
    who = credentials(tmp_path, {"client-certificate": "a.crt", "client-key": "a.key"}, Clock())
    assert who.current()[:2] == (b"C1", b"K1")
    (tmp_path / "a.crt").unlink()
    assert who.current()[:2] == (b"C1", b"K1")
    (tmp_path / "a.crt").write_text("C2")
    (tmp_path / "a.key").write_text("K2")
    assert who.current()[:2] == (b"C2", b"K2")


def test_plugin_runs_again_after_expiry_or_refusal_only(tmp_path: Path) -> None:
    clock = Clock()
    clock.now = 1_700_000_000.0  # 2023-11-14T22:13:20Z
    status = '{"token":"t","expirationTimestamp":"2023-11-14T23:13:20Z"}'
    who = credentials(tmp_path, plugin(tmp_path, printed(status)), clock)
    runs = tmp_path / "runs"
    for _ in range(3):
        assert who.current().headers[0][1] == "Bearer t"
    assert runs.read_text().count("run") == 1
    clock.now += 3600
    who.current()
    assert runs.read_text().count("run") == 2
    clock.now -= 3600
    who.refused(who.current())
    who.current()
    assert runs.read_text().count("run") == 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo no such profile >&2; exit 3", "exit code 3: no such profile"),
        ("echo hello", "did not print an ExecCredential"),
        (printed("{}"), "neither a token nor a certificate"),
        (printed('{"clientCertificateData":"x"}'), "neither a token nor a certificate"),
        ('echo "{}"', "printed None of None"),
    ],
)
def test_failed_plugin_has_its_stderr_in_the_error(tmp_path: Path, body: str, said: str) -> None:
    who = credentials(tmp_path, plugin(tmp_path, body), Clock())
    with pytest.raises(KubeconfigError, match=r"credential plugin .*/plugin of .*config") as failure:
        who.current()
    assert said in str(failure.value)


def test_plugin_that_prints_too_much_is_killed(tmp_path: Path) -> None:
    who = credentials(tmp_path, plugin(tmp_path, f"echo $$ >{tmp_path}/pid\nexec cat /dev/zero"), Clock())
    with pytest.raises(KubeconfigError, match=r"credential plugin .*/plugin of .* printed more than 1048576 bytes"):
        who.current()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_long_stderr_of_a_plugin_is_dropped_but_for_its_end(tmp_path: Path) -> None:
    noise = "head -c 3000000 /dev/zero | tr '\\0' x >&2"
    who = credentials(tmp_path, plugin(tmp_path, f"{noise}\n{TOKEN}"), Clock())
    assert who.current().headers[0][1] == "Bearer t"
    who = credentials(tmp_path, plugin(tmp_path, f"{noise}\necho no profile >&2\nexit 3"), Clock())
    with pytest.raises(KubeconfigError, match=r"exit code 3: x{400,500}no profile$"):
        who.current()


def test_plugin_is_killed_with_its_group_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_plugin, "PLUGIN_S", 3.0)  # a busy machine may take a second to start a program
    body = f"sleep 300 & echo $! >{tmp_path}/child\nwait"
    who = credentials(tmp_path, plugin(tmp_path, body), Clock())
    with pytest.raises(KubeconfigError, match="did not end within 3 s and was killed"):
        who.current()
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not alive(child), what="the plugin's child is gone")


def test_child_that_outlives_its_plugin_is_not_waited_for(tmp_path: Path) -> None:
    body = f"sleep 300 & echo $! >{tmp_path}/child\n{TOKEN}"
    began = time.monotonic()
    try:
        who = credentials(tmp_path, plugin(tmp_path, body), Clock())
        assert who.current().headers[0][1] == "Bearer t"
        assert time.monotonic() - began < 30
    finally:
        os.kill(int((tmp_path / "child").read_text()), 9)


@pytest.mark.parametrize("end", ['"0001-01-01T00:00:00"', '"9999-12-31T23:59:59"', '"tomorrow"', "1700003600", "[]"])
def test_unreadable_expiry_of_a_plugin_is_a_kubeconfig_error(tmp_path: Path, end: str) -> None:
    who = credentials(tmp_path, plugin(tmp_path, printed(f'{{"token":"t","expirationTimestamp":{end}}}')), Clock())
    for _ in range(2):
        with pytest.raises(KubeconfigError, match=r"did not print an ExecCredential: .*expirationTimestamp"):
            who.current()


@pytest.mark.parametrize("end", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_first_and_last_expiry_of_a_plugin_are_taken(tmp_path: Path, end: str) -> None:
    who = credentials(tmp_path, plugin(tmp_path, printed(f'{{"token":"t","expirationTimestamp":"{end}"}}')), Clock())
    for _ in range(2):
        assert who.current().headers[0][1] == "Bearer t"


@pytest.mark.parametrize("status", ['"x"', "[1]", '{"clientCertificateData":1,"clientKeyData":2}'])
def test_status_of_another_type_is_a_kubeconfig_error(tmp_path: Path, status: str) -> None:
    with pytest.raises(KubeconfigError, match="did not print an ExecCredential"):
        credentials(tmp_path, plugin(tmp_path, printed(status)), Clock()).current()


@pytest.mark.parametrize("user", [{"token": "a\nb"}, {"token": "\u20ac"}, {"token": "t", "as": "x\r"}])
def test_text_that_no_header_may_have_is_a_kubeconfig_error(tmp_path: Path, user: dict[str, Any]) -> None:
    with pytest.raises(KubeconfigError, match=r"cannot use the credentials of .*config: the header .* line end"):
        credentials(tmp_path, user, Clock()).current()


def test_missing_plugin_has_its_install_hint_in_the_error(tmp_path: Path) -> None:
    user = {
        "exec": {"command": "nowhere-x", "apiVersion": "client.authentication.k8s.io/v1", "installHint": "get it at y"}
    }
    with pytest.raises(KubeconfigError, match="it is not there; get it at y"):
        credentials(tmp_path, user, Clock()).current()


def test_passwords_and_impersonation_become_headers(tmp_path: Path) -> None:
    user = {"username": "a", "password": "b", "as": "x", "as-groups": ["g", "h"], "as-user-extra": {"k/v": ["v"]}}
    assert credentials(tmp_path, user, Clock()).current().headers == [
        ("Impersonate-User", "x"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
        ("Impersonate-Extra-k%2Fv", "v"),
        ("Authorization", "Basic YTpi"),
    ]


@pytest.mark.parametrize("first", [{"token": "good"}, None])
def test_kubeconfig_is_read_again_after_a_wrong_path(tmp_path: Path, first: dict[str, Any] | None) -> None:
    wrong = {"client-certificate": "/nonexistent/c.pem", "client-key": "/nonexistent/k.pem"}
    who = credentials(tmp_path, first or wrong, Clock())
    if first is not None:
        assert who.current().headers == [("Authorization", "Bearer good")]
        credentials(tmp_path, wrong, Clock())
    for _ in range(2):
        with pytest.raises(KubeconfigError, match=r"/nonexistent/c\.pem"):
            who.current()
    credentials(tmp_path, {"token": "corrected"}, Clock())
    assert who.current().headers == [("Authorization", "Bearer corrected")]


def test_plugin_with_a_nul_is_a_kubeconfig_error(tmp_path: Path) -> None:
    user = plugin(tmp_path, printed('{"token":"t"}'))
    user["exec"]["args"] = ["a\0b"]
    with pytest.raises(KubeconfigError, match="cannot run the credential plugin"):
        credentials(tmp_path, user, Clock()).current()


def pem(authority: Authority, name: str) -> bytes:
    certificate, key = authority.issue(name, "system:node:me", "system:nodes")
    return certificate.read_bytes() + key.read_bytes()


def with_rotated(tmp_path: Path, user: dict[str, Any]) -> tuple[Credentials, Path, Authority]:
    """Credentials of a kubeconfig beside a rotated certificate, which is not there yet, and its authority."""
    current = tmp_path / "kubelet-client-current.pem"
    who = Credentials(credentials(tmp_path, user, Clock()).access, Clock(), str(current))
    return who, current, Authority(tmp_path / "pki")


def test_rotated_certificate_counts_before_the_kubeconfig(tmp_path: Path) -> None:
    """Its user's token is not sent along: the server would take either."""
    who, current, authority = with_rotated(tmp_path, {"token": "t"})
    assert who.current().headers == [("Authorization", "Bearer t")]
    for name in ("first", "second"):
        content = pem(authority, name)
        current.write_bytes(content)
        assert who.current() == (content, content, [])
    current.unlink()
    assert who.current().headers == [("Authorization", "Bearer t")]


def test_unusable_rotated_certificate_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    who, current, authority = with_rotated(tmp_path, {"token": "t"})
    current.write_bytes(authority.path.read_bytes())  # without a key
    for _ in range(3):
        assert who.current().certificate == b""
    (said,) = [record.getMessage() for record in caplog.records if record.name == connection_credentials.__name__]
    assert f"cannot use the certificate {current}" in said


def test_refused_rotated_certificate_gives_way_to_the_kubeconfig(tmp_path: Path) -> None:
    """As that of another cluster, or an expired one beside a kubeconfig that an operator has renewed."""
    who, current, authority = with_rotated(tmp_path, {"token": "t"})
    current.write_bytes(pem(authority, "stale"))
    rotated = who.current()
    for _ in range(2):  # of two threads at once
        who.refused(rotated)
    others = who.current()
    assert others.headers == [("Authorization", "Bearer t")]
    who.refused(others)
    assert who.current() == rotated, "the server may have been at fault"
    who.refused(rotated)
    content = pem(authority, "next")
    current.write_bytes(content)
    assert who.current().certificate == content


def test_refused_rotated_certificate_stays_without_others(tmp_path: Path) -> None:
    """An anonymous user would be let in here and there, and be forbidden everything."""
    who, current, authority = with_rotated(tmp_path, {})
    content = pem(authority, "only")
    current.write_bytes(content)
    who.refused(who.current())
    assert who.current().certificate == content
    config = yaml.safe_load((tmp_path / "config").read_text())
    config["users"][0]["user"] = {"client-certificate": str(current), "client-key": str(current)}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    who.refused(who.current())
    assert who.current()[:2] == (content, content)
