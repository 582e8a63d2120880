"""Service account tokens: requests, renewal times and cache."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.objects import tokens
from proto.pods.objects import GetToken, Token

ISSUED = 1_800_000_000.0
WISH = GetToken(namespace="ns", service_account="builder", pod_name="p", pod_uid="u1", audiences=("vault",))


def answer(life_s: float) -> dict[str, Any]:
    expires = datetime.fromtimestamp(ISSUED + life_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"spec": {"expirationSeconds": life_s}, "status": {"token": "t", "expirationTimestamp": expires}}


def test_token_request_names_the_account_and_binds_to_the_pod() -> None:
    assert tokens.path(WISH) == "/api/v1/namespaces/ns/serviceaccounts/builder/token"
    spec = tokens.body(replace(WISH, expiration_s=600))["spec"]
    assert spec == {
        "audiences": ["vault"],
        "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"},
    }
    assert "expirationSeconds" not in tokens.body(WISH)["spec"]
    assert "metadata" not in tokens.body(WISH)
    assert tokens.body(replace(WISH, account_uid="u"))["metadata"] == {"uid": "u"}


@pytest.mark.parametrize(
    ("life_s", "chance", "renewed_after_s"),
    [
        (3600, 0.0, 2880.0),
        (3600, 1.0, 2870.0),
        (3607, 0.0, 2885.6),
        (600, 0.5, 475.0),
        (40 * 3600, 0.0, 24 * 3600.0),
        (10, 1.0, 7.0),
    ],
)
def test_token_is_renewed_at_80_percent_of_life_or_after_a_day(
    life_s: float, chance: float, renewed_after_s: float
) -> None:
    token = tokens.issued(answer(life_s), chance, ISSUED)
    assert token.refresh - ISSUED == pytest.approx(renewed_after_s)
    assert token.expires == ISSUED + life_s


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_a_token_is_always_renewed_while_it_is_good(life_s: int, chance: float) -> None:
    token = tokens.issued(answer(life_s), chance, ISSUED)
    assert ISSUED < token.refresh < token.expires


@pytest.mark.parametrize(("life_s", "renewed_after_s"), [(3600, 60.0), (600, 60.0), (100, 10.0)])
def test_token_is_used_for_a_while_by_a_clock_that_is_ahead(life_s: float, renewed_after_s: float) -> None:
    ahead, cache = ISSUED + 3700, tokens.TokenCache()
    token = tokens.issued(answer(life_s), 0.5, ahead)
    assert token.refresh - ahead == renewed_after_s
    cache.keep(WISH, token, ahead)
    cache.keep(replace(WISH, pod_uid="other"), token, ahead)
    assert cache.fresh(WISH, ahead + renewed_after_s - 1) == token
    assert cache.fresh(WISH, ahead + renewed_after_s) is None


def test_token_is_renewed_once_the_clock_is_set_back() -> None:
    ahead, cache = ISSUED + 7200, tokens.TokenCache()
    token = tokens.issued(answer(3600), 0.5, ahead)
    cache.keep(WISH, token, ahead)
    assert cache.fresh(WISH, ahead) == token
    assert cache.fresh(WISH, ISSUED + 60) is None
    assert cache.usable(WISH, ISSUED + 60) == token, "if the renewal fails"
    cache.keep(WISH, token, ISSUED + 60)
    assert cache.fresh(WISH, ISSUED + 61) == token


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"status": None},
        {"status": {"token": "t", "expirationTimestamp": "soon"}, "spec": {"expirationSeconds": 600}},
        {"status": {"token": 5, "expirationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"expirationSeconds": 600}},
        {"status": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"expirationSeconds": "x"}},
    ],
)
def test_answer_without_token_does_not_show_its_content(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no token|Invalid isoformat"):
        tokens.issued(bad, 0, ISSUED)


def test_cached_token_is_fresh_then_usable_then_gone() -> None:
    cache, token = tokens.TokenCache(), Token(token="t", expires=100.0, refresh=80.0)
    assert cache.usable(WISH, 0) is None
    cache.keep(WISH, token, 0)
    assert [cache.fresh(WISH, now) for now in (79.0, 80.0)] == [token, None]
    assert [cache.usable(WISH, now) for now in (99.0, 100.0)] == [token, None]
    assert cache.fresh(replace(WISH, audiences=()), 0) is None
    assert cache.fresh(replace(WISH, pod_uid="u2"), 0) is None
    cache.keep(replace(WISH, pod_uid="u2"), token, 101.0)
    assert len(cache) == 1, "what has expired goes when something comes"
    cache.forget(frozenset({"u2"}))
    assert len(cache) == 0


def test_a_token_is_in_no_repr() -> None:
    assert "secret" not in repr(Token(token="secret", expires=1, refresh=1))
