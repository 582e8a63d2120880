"""The reader of an actor's state: bounded, blind to secrets, and it calls no code of what it reads."""

from __future__ import annotations

import base64
import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._base import inspection
from actors._base.inspection import NoSuchPath, inspect
from actors._kube.connection import kubeconfig
from proto.common.secret_names import HIDDEN, redacted
from proto.v1 import EnvVar


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    left: int
    right: str


class Slotted:
    __slots__ = ("unset", "x")

    def __init__(self) -> None:
        self.x = 7


class Hostile(dict):  # type: ignore[type-arg]
    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("code of the value was called")

    def items(self) -> Any:
        raise AssertionError

    def __iter__(self) -> Any:
        raise AssertionError

    def __repr__(self) -> str:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError


class Struct(msgspec.Struct):
    name: str = "n"
    count: int = 2


@dataclass
class Root:
    pods: dict[str, Any] = field(default_factory=lambda: {"default/web.1": Struct(), "other": None})
    pair: Pair = field(default_factory=lambda: Pair(1, "r"))
    colour: Colour = Colour.RED
    slotted: Slotted = field(default_factory=Slotted)
    waiting: deque[int] = field(default_factory=lambda: deque([1, 2]))
    hostile: Any = field(default_factory=lambda: Hostile(a=1))
    body: bytes = b"secret bytes"
    env: Any = field(default_factory=lambda: EnvVar(name="A", value="planted"))

    @property
    def computed(self) -> int:
        raise AssertionError("a property was called")


def test_every_kind_of_member_is_read() -> None:
    found = inspect(Root(), "", 3)
    assert found["pods"]["default/web.1"] == {"name": "n", "count": 2}
    assert (found["pair"], found["colour"]) == ({"left": 1, "right": "r"}, "RED")
    assert (found["slotted"], found["waiting"]) == ({"x": 7}, [1, 2])
    assert found["body"] == "<12 bytes>"
    assert "computed" not in found


@pytest.mark.parametrize(
    ("path", "value"),
    [("pods[default/web.1].count", 2), ("pods.other", None), ("waiting[1]", 2), ("pair.right", "r"), ("hostile.a", 1)],
)
def test_path_leads_to_attributes_keys_and_indices(path: str, value: Any) -> None:
    assert inspect(Root(), path) == value


@pytest.mark.parametrize("path", ["nothing", "pods.nothing.x", "waiting[9]", "[[", "a" * 2000, "pods[", "computed"])
def test_wrong_path_is_refused_with_what_there_is(path: str) -> None:
    with pytest.raises(NoSuchPath):
        inspect(Root(), path)


def test_no_code_of_a_value_runs() -> None:
    assert inspect(Root(), "hostile") == {"a": 1}


@pytest.mark.parametrize(
    "name",
    [
        *("password", "_token", "bearer_token", "api_key", "data", "string_data", "env", "auth", "keys", "pass"),
        *(
            "client_key_data",
            "clientKeyData",
            "clientCertificateData",
            "_client_key",
            "privateKey",
            "sshkey",
            "tls-key",
        ),
        *("as-user-KEY", "HTTPAuthHeader", "API_KEY_2", "key_bytes", "Authorization", "x509Pem", "dbPASSWORD"),
    ],
)
def test_values_with_secret_names_are_hidden(name: str) -> None:
    holder = {name: "planted", "inner": {name: {"deep": "planted"}}}
    assert "planted" not in str(inspect(holder, "", 5))
    assert inspect(holder, name) == HIDDEN
    assert inspect(holder, f"inner.{name}.deep") == HIDDEN
    assert "planted" not in str(redacted(holder))


PEM = b"-----BEGIN PRIVATE KEY-----\nplanted"


@pytest.mark.parametrize("text", [PEM.decode(), *(base64.b64encode(b"x" * at + PEM).decode() for at in range(3))])
def test_keys_are_hidden_under_any_name(text: str) -> None:
    long = f"{'x' * 300}{text}"
    for value in ({"a": text}, [long], {text: 1}, {"a": {"b": (long,)}}):
        for shown in (inspect(value, "", 5), redacted(value)):
            assert HIDDEN in str(shown)
            assert text[:20] not in str(shown)
    assert inspect({"a": text}, "a") == HIDDEN


def test_users_and_queries_of_urls_are_hidden() -> None:
    holder = {"static_pod_url": "https://me:planted@host:1/path?word=planted#part"}
    wanted = {"static_pod_url": f"https://{HIDDEN}@host:1/path?{HIDDEN}#part"}
    assert inspect(holder, "") == redacted(holder) == wanted
    assert inspect({"path": "unix:///run/x.sock and a@b?"}, "path") == "unix:///run/x.sock and a@b?"


def test_state_of_a_clients_credentials_holds_no_key() -> None:
    exec_ = {"apiVersion": "v1", "command": "planted", "args": ["planted"], "env": [{"name": "A", "value": "planted"}]}
    user = {"client-key-data": "planted", "client-certificate-data": "planted", "token": "planted"}
    user |= {"password": "planted", "exec": exec_, "auth-provider": {"config": {"access-token": "planted"}}}
    holder = {
        "user": msgspec.convert(user, kubeconfig.User),
        "_plugin": {"status": {"clientKeyData": "planted", "clientCertificateData": "planted", "token": "planted"}},
    }
    shown = str(inspect(holder, "", 8))
    assert "planted" not in shown
    assert shown.count(HIDDEN) >= 8


def test_variables_of_containers_are_hidden() -> None:
    assert "planted" not in str(inspect(Root(), "env", 5))
    assert inspect({"one": EnvVar(name="A", value="planted")}, "one.value") == HIDDEN
    assert redacted([{"name": "A", "value": "planted"}]) == [{"name": "A", "value": HIDDEN}]


@pytest.mark.parametrize(
    "name", ["name", "secret_name", "token_count", "key_file", "pods", "keyed", "stage", "uid", "tokenFile"]
)
def test_harmless_names_are_shown(name: str) -> None:
    assert inspect({name: "x"}, name) == "x"


def test_answer_is_bounded() -> None:
    wide = {str(at): {str(one): "x" * 1000 for one in range(1000)} for at in range(1000)}
    assert len(str(inspect(wide, "", 8))) < inspection.MOST_VALUES * 300
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert len(str(inspect(endless, "", 8))) < 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=50,
    ),
    st.text(max_size=30),
)
def test_any_value_and_path_end_in_plain_values_or_a_refusal(value: Any, path: str) -> None:
    try:
        found = inspect(value, path, 8)
    except NoSuchPath:
        return
    msgspec.json.encode(found)
