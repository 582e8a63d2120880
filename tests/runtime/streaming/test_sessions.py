"""Decisions of the streaming server: tokens, protocols and outcomes."""

from __future__ import annotations

import json

import pytest

from actors._net.streaming.remotecommand import (
    SPDY_COMMAND,
    TUNNEL,
    WEBSOCKET_FORWARD,
    choose,
    ended,
    failed,
    listed,
    outcome,
)
from actors.runtime.model.errors import RpcError
from actors.runtime.streaming.policy import EXEC, MOST_TOKENS, TOKEN_S, SessionRequest, Tokens

WANTED = SessionRequest(EXEC, "c", ("true",), stdout=True)


def test_token_is_valid_once_for_a_minute() -> None:
    tokens = Tokens()
    first, second = (tokens.issue(WANTED, 100.0) for _ in "12")
    assert len({first, second}) == 2
    assert tokens.redeem(f"/exec/{first}", 100.0 + TOKEN_S - 1) == WANTED
    assert tokens.redeem(f"/exec/{first}", 100.0 + TOKEN_S - 1) is None
    assert tokens.redeem(f"/exec/{second}", 100.0 + TOKEN_S) is None


@pytest.mark.parametrize("path", ["/attach/{}", "/{}", "/exec/{}/", "/exec/x{}", "/exec/", "", "exec/{}"])
def test_token_is_valid_for_its_own_path_only(path: str) -> None:
    tokens = Tokens()
    token = tokens.issue(WANTED, 0.0)
    assert tokens.redeem(path.format(token), 1.0) is None
    assert tokens.redeem(f"/exec/{token}", 1.0) == WANTED


def test_tokens_are_limited_and_expired_ones_make_room() -> None:
    tokens = Tokens()
    for _ in range(MOST_TOKENS):
        tokens.issue(WANTED, 0.0)
    with pytest.raises(RpcError) as raised:
        tokens.issue(WANTED, TOKEN_S - 1)
    assert raised.value.code == "RESOURCE_EXHAUSTED"
    tokens.issue(WANTED, TOKEN_S)


@pytest.mark.parametrize(
    ("offered", "served", "found"),
    [
        (["v5.channel.k8s.io", "v3.channel.k8s.io", "v4.channel.k8s.io"], SPDY_COMMAND, "v3.channel.k8s.io"),
        (["v9.channel.k8s.io"], SPDY_COMMAND, None),
        ([], SPDY_COMMAND, "fallback"),
        ([TUNNEL, "v4.channel.k8s.io"], WEBSOCKET_FORWARD, TUNNEL),
    ],
)
def test_clients_first_supported_protocol_is_chosen(
    offered: list[str], served: tuple[str, ...], found: str | None
) -> None:
    assert choose(offered, served, "fallback") == found


def test_protocols_come_in_one_header_or_in_several() -> None:
    assert listed(["a, b", "c"]) == ["a", "b", "c"]


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io", "v4.base64.channel.k8s.io"])
def test_outcome_is_a_status_since_version_4(protocol: str) -> None:
    assert json.loads(outcome(protocol, ended(0)))["status"] == "Success"
    told = json.loads(outcome(protocol, ended(7)))
    assert (told["reason"], told["details"]["causes"]) == ("NonZeroExitCode", [{"reason": "ExitCode", "message": "7"}])
    told = json.loads(outcome(protocol, failed("no such file")))
    assert (told["code"], told["message"]) == (500, "Internal error occurred: no such file")


@pytest.mark.parametrize(
    "protocol", ["channel.k8s.io", "v2.channel.k8s.io", "v3.channel.k8s.io", "base64.channel.k8s.io"]
)
def test_outcome_is_a_text_before_version_4(protocol: str) -> None:
    assert outcome(protocol, ended(0)) == b""
    assert outcome(protocol, ended(7)) == b"command terminated with non-zero exit code: exit status 7"


@pytest.mark.parametrize(
    "streams", [{}, {"tty": True}, {"stdout": True, "stderr": True, "tty": True}, {"target": "", "stdout": True}]
)
def test_impossible_streams_are_invalid(streams: dict[str, object]) -> None:
    with pytest.raises(RpcError) as raised:
        SessionRequest(EXEC, **{"target": "c"} | streams).require_streams()  # type: ignore[arg-type]
    assert raised.value.code == "INVALID_ARGUMENT"
