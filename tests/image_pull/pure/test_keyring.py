"""Credentials for an image, and their order."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from actors.image_pull import keyring, verification
from actors.image_pull.credentials import sources
from actors.image_pull.keyring import Credentials, Keyring, KeyringError
from proto.pods.objects import ApiObject, ObjectRef


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("pattern", "repository", "does"),
    [
        ("r.io", "r.io/a", True),
        ("r.io/a", "r.io/a/b", True),
        ("r.io/a", "r.io/abc", True),
        ("r.io/b", "r.io/a", False),
        ("r.io:5000", "r.io/a", False),
        ("r.io", "r.io:5000/a", False),
        ("r.io:5000", "r.io:5000/a", True),
        ("*.r.io", "x.r.io/a", True),
        ("*.r.io", "r.io/a", False),
        ("*.r.io", "x.y.r.io/a", False),
        ("*.*.io/team", "x.r.io/team/a", True),
        ("re*.io", "registry.io/a", True),
        ("[::1]:5000", "[::1]:5000/a", True),
        ("r.io:x", "r.io/a", False),
        ("", "r.io/a", False),
        ("*", "localhost/a", True),
        ("*a*a.io", "aa.io/x", True),
        ("*a*a.io", "a.io/x", False),
        ("a*a.io", "a.io/x", False),
        ("r*g*s*y.io", "registry.io/a", True),
        ("r*s*g*y.io", "registry.io/a", False),
        ("r**y.io", "registry.io/a", True),
        ("r(e|x)*.io", "registry.io/a", False),
        ("r.io/" + "a" * 1400, "r.io/" + "a" * 1400, False),
        ("*.io", "r" * 1400 + ".io/a", False),
    ],
)
def test_a_pattern_covers_a_repository(pattern: str, repository: str, does: bool) -> None:
    assert keyring.matches(pattern, repository) is does


def user(name: str) -> Credentials:
    return Credentials(name, "p")


@pytest.mark.parametrize(
    ("registries", "repository", "users"),
    [
        (["r.io"], "r.io/a", ["r.io"]),
        (["https://r.io/v1/"], "r.io/a", ["https://r.io/v1/"]),
        (["http://r.io/v2/team"], "r.io/team/a", ["http://r.io/v2/team"]),
        (["r.io", "r.io/team", "*.io"], "r.io/team/a", ["r.io/team", "r.io", "*.io"]),
        (["https://index.docker.io/v1/"], "docker.io/library/busybox", ["https://index.docker.io/v1/"]),
        (["https://index.docker.io/v1/", "docker.io/library"], "docker.io/library/busybox", ["docker.io/library"]),
        (["https://index.docker.io/v1/"], "r.io/a", []),
        (["r.io"], "q.io/a", []),
    ],
)
def test_lookup(registries: list[str], repository: str, users: list[str]) -> None:
    found = Keyring([{registry: user(registry) for registry in registries}]).lookup(repository)
    assert [one.username for one in found] == users


def test_several_keyrings_go_in_order_and_each_credential_once() -> None:
    rings = [Keyring([{"r.io": user("a")}, {"r.io": user("b")}]), Keyring([{"r.io": user("a")}, {"*.io": user("c")}])]
    assert [one.username for one in keyring.lookup(rings, "r.io/x")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"username": "u", "password": "p"}, ("u", "p")),
        ({"auth": b64("u:p:q")}, ("u", "p:q")),
        ({"auth": b64("user:p").rstrip("=")}, ("user", "p")),
        ({"auth": base64.encodebytes(b"u:" + b"p" * 100).decode()}, ("u", "p" * 100)),
        ({"auth": "dXNl\r\ncjpw\n"}, ("user", "p")),
        ({"auth": "dXNlcj\r\npwcA\n==\n"}, ("user", "pp")),
        ({"auth": b64("u:p"), "username": "x", "password": "y"}, ("u", "p")),
        ({"Username": "u", "PASSWORD": "p"}, ("u", "p")),
        ({"Auth": b64("u:p"), "username": "x"}, ("u", "p")),
        ({"username": "x", "Username": "u", "password": "p"}, ("u", "p")),
        ({"Username": "x", "username": "u", "password": "p", "Password": None}, ("u", "p")),
        ({"username": "u", "password": "p", "email": None, "identitytoken": 5}, ("u", "p")),
        ({}, ("", "")),
        (None, ("", "")),
    ],
)
def test_an_entry(entry: dict[str, Any] | None, expected: tuple[str, str]) -> None:
    for name in ("auths", "Auths"):
        assert keyring.docker_config_json(json.dumps({name: {"r.io": entry}}).encode()) == {"r.io": expected}
    assert keyring.docker_cfg(json.dumps({"r.io": entry}).encode()) == {"r.io": expected}


@pytest.mark.parametrize(
    ("content", "registries"),
    [
        ('{"auths": {"a.io": {}}, "Auths": {"b.io": {}}}', ["a.io", "b.io"]),
        ('{"auths": {"A.io": {}, "a.io": {}}}', ["A.io", "a.io"]),
        ('{"auths": {"a.io": {}}, "AUTHS": null, "Auths": {"b.io": {}}}', ["b.io"]),
        ('{"auths": null}', []),
        ("{}", []),
    ],
)
def test_registries_of_a_configuration(content: str, registries: list[str]) -> None:
    assert list(keyring.docker_config_json(content.encode())) == registries


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ('{"auths": [1]}', "must be a JSON object of registries"),
        ('{"auths": {"r.io": {"auth": "hunter2!"}}}', "the auth of r.io must be formatted as base64"),
        (json.dumps({"auths": {"r.io": {"auth": b64("hunter2")}}}), "the auth of r.io must be formatted as base64"),
        (json.dumps({"auths": {"r.io": {"auth": "\n"}}}), "the auth of r.io must be formatted as base64"),
        (json.dumps({"auths": {"r.io": {"auth": "dXNl cjpw"}}}), "the auth of r.io must be formatted as base64"),
        ('{"auths": {"r.io": {"password": 5}}}', "the entry of r.io must hold text"),
        ('{"auths": {"r.io": {"email": false}}}', "the entry of r.io must hold text"),
        ('{"auths": {"r.io": {"username": "u", "Username": 0}}}', "the entry of r.io must hold text"),
        ('{"auths": {"r.io": "hunter2"}}', "the entry of r.io must be a JSON object"),
        ('{"auths": {"r.io": []}}', "the entry of r.io must be a JSON object"),
        ('{"auths": false}', "must be a JSON object of registries"),
    ],
)
def test_invalid_configuration_error_does_not_show_content(content: str, problem: str) -> None:
    with pytest.raises(KeyringError, match=f"^{problem}") as raised:
        keyring.docker_config_json(content.encode())
    assert "hunter2" not in str(raised.value)


LATIN = {"auth": base64.b64encode("u:für".encode("latin-1")).decode()}


def test_other_registries_stay_beside_an_entry_that_is_not_utf8() -> None:
    entries = {"r.io": LATIN, "q.io": {"auth": b64("u:für")}}
    ref, found = secret("a", *keyring.DOCKER_CONFIG_JSON, json.dumps({"auths": entries}))
    ring = sources.of_secrets([ref], {ref: found})
    assert ring.lookup("q.io/x") == [("u", "für")]
    (odd,) = ring.lookup("r.io/x")
    assert not odd.is_utf8
    assert Credentials("u", "für").is_utf8
    (held,) = sources.held_by([ref], {ref: found}, "r.io/x")
    other = keyring.docker_cfg(json.dumps({"r.io": {"auth": base64.b64encode(b"u:f\xfdr").decode()}}).encode())
    assert held.credential_hash != verification.credential_hash(other["r.io"])


def secret(name: str, kind: str, key: str, content: str) -> tuple[ObjectRef, ApiObject]:
    ref = ObjectRef(kind="Secret", namespace="ns", name=name)
    return ref, ApiObject(ref=ref, resource_version="1", data={key: content.encode()}, secret_type=kind)


def test_the_pods_secrets_in_their_order() -> None:
    found = dict(
        [
            secret("a", *keyring.DOCKER_CONFIG_JSON, '{"auths": {"r.io": {"username": "a", "password": "p"}}}'),
            secret("b", *keyring.DOCKER_CFG, '{"r.io": {"username": "b", "password": "p"}}'),
            secret("c", "Opaque", ".dockercfg", '{"r.io": {"username": "c", "password": "p"}}'),
            secret("d", *keyring.DOCKER_CFG, "{"),
        ]
    )
    refs = [ObjectRef(kind="Secret", namespace="ns", name=name) for name in ("b", "c", "none", "a")]
    assert [one.username for one in sources.of_secrets(refs, found).lookup("r.io/x")] == ["b", "a"]
    with pytest.raises(KeyringError, match=r"^cannot use pull secret ns/d: not JSON$"):
        sources.of_secrets([ObjectRef(kind="Secret", namespace="ns", name="d")], found)


def test_the_first_of_the_nodes_files_counts(tmp_path: Path) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    (home / ".docker").mkdir(parents=True)
    root.mkdir()

    def users() -> list[str]:
        return [one.username for one in sources.of_node(str(root), str(home)).lookup("r.io/x")]

    assert users() == []
    (home / ".dockercfg").write_text('{"r.io": {"username": "cfg", "password": "p"}}')
    assert users() == ["cfg"]
    (home / ".docker/config.json").write_text('{"auths": {"r.io": {"username": "home", "password": "p"}}}')
    assert users() == ["home"]
    (root / "config.json").write_text("{")
    assert users() == ["home"]
    (root / "config.json").write_text('{"auths": {"r.io": {"username": "root", "password": "p"}}}')
    assert users() == ["root"]


SECONDS = 0.5
"""A hostile configuration took nine, and half a gigabyte of memory."""
ENTRY = {"auth": b64("u:p")}


@pytest.mark.parametrize(
    "registries",
    [
        ["*a" * 500_000 + ".io"],
        ["*a" * 120 + f"b.io/{number}" for number in range(4000)],
        ["*" * 240 + f".io/{number}" for number in range(4000)],
        ["." * 1200 + str(number) for number in range(800)],
        [f"*a*{number}.io" for number in range(30_000)],
    ],
    ids=["one long", "many stars", "stars only", "many parts", "many short"],
)
def test_hostile_keys_take_no_time(registries: list[str]) -> None:
    content = json.dumps({"auths": dict.fromkeys(registries, ENTRY)})
    ref, held = secret("a", *keyring.DOCKER_CONFIG_JSON, content)
    began = time.process_time()
    assert sources.of_secrets([ref], {ref: held}).lookup("a" * 240 + ".io/x") == []
    assert sources.held_by([ref], {ref: held}, "a" * 240 + ".io/x") == {}
    assert time.process_time() - began < SECONDS


def test_entries_over_the_bound_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    registries = [f"r{number}.io" for number in range(keyring.MOST_ENTRIES + 1)]
    for count, words in ((keyring.MOST_ENTRIES, []), (keyring.MOST_ENTRIES + 1, ["pull secret ns/a has more than"])):
        content = json.dumps({"auths": dict.fromkeys(registries[:count], ENTRY)})
        ref, held = secret("a", *keyring.DOCKER_CONFIG_JSON, content)
        caplog.clear()
        ring = sources.of_secrets([ref], {ref: held})
        assert [ring.lookup(f"{one}/x") != [] for one in registries[-2:]] == [True, False]
        assert [one[: len(words[0])] for one in caplog.messages] == words


def test_message_for_a_long_key_is_short() -> None:
    with pytest.raises(KeyringError) as raised:
        keyring.docker_config_json(json.dumps({"auths": {"r" * 100_000: {"auth": "!"}}}).encode())
    assert len(str(raised.value)) < 300


def test_credentials_are_never_shown() -> None:
    assert (
        "hunter2"
        not in f"{Credentials('u', 'hunter2')!r} {Credentials('u', 'hunter2')} {[Credentials('u', 'hunter2')]}"
    )
