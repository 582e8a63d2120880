"""Challenges of WWW-Authenticate: several in one header, or one in each."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.images.sources.challenges import Challenge, choose, parse

BEARER = 'Bearer realm="https://git.example/v2/token",service="container_registry",scope="*"'
BASIC = 'Basic realm="https://git.example/v2",charset="UTF-8"'
TOKEN = {"realm": "https://git.example/v2/token", "service": "container_registry", "scope": "*"}


@pytest.mark.parametrize("headers", [[BEARER, BASIC], [BASIC, BEARER], [f"{BASIC}, {BEARER}"], [f"{BEARER},{BASIC}"]])
@pytest.mark.parametrize("with_user", [False, True])
def test_bearer_is_chosen_with_its_own_fields(headers: list[str], with_user: bool) -> None:
    assert choose(headers, with_user=with_user) == Challenge("bearer", TOKEN)


@pytest.mark.parametrize(
    ("headers", "with_user", "scheme"),
    [
        ([BASIC], True, "basic"),
        ([BASIC], False, ""),
        (["Negotiate", BASIC], True, "basic"),
        (["Negotiate YIIabc==, NTLM"], True, ""),
        (["basic realm=x"], True, "basic"),
        ([], True, ""),
    ],
)
def test_basic_needs_a_user(headers: list[str], with_user: bool, scheme: str) -> None:
    chosen = choose(headers, with_user=with_user)
    assert (chosen.scheme if chosen else "") == scheme


def test_first_challenge_of_a_scheme_is_taken() -> None:
    chosen = choose([BEARER, 'Bearer realm="https://other.example"'], with_user=False)
    assert chosen is not None
    assert chosen.fields["realm"] == TOKEN["realm"]
    assert parse('Bearer realm="a", realm="b", SCOPE = x')[0].fields == {"realm": "a", "scope": "x"}


@given(st.text(alphabet='aB-=", \t\\.', max_size=60))
def test_any_header_is_parsed(header: str) -> None:
    for one in parse(header):
        assert one.scheme == one.scheme.lower() != ""


@pytest.mark.parametrize("part", ["a", 'a="', "a=", "a ", "a!", "a-", 'a = "b', "  ", '="'])
def test_long_header_takes_no_quadratic_time(part: str) -> None:
    began = time.process_time()
    parse(part * (60_000 // len(part)))
    assert time.process_time() - began < 1
