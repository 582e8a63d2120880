"""The problem of a failed pull is read from its message, and not from the names in it."""

from __future__ import annotations

import time

import pytest

from proto.waits.remedies import pull_problem

NOT_THERE = "its registry does not have it"
CERTIFICATE = "its registry's certificate is not trusted here"
UNREACHABLE = "its registry cannot be reached"
REFUSED = "its registry refuses it"
LIMITED = "its registry limits pulls"


def of_containerd(image: str, error: str) -> str:
    """containerd's message for an image."""
    return (
        f'rpc error: code = Unknown desc = failed to pull and unpack image "{image}": failed to resolve reference '
        f'"{image}": {error}'
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (of_containerd("docker.io/acme/certificate-rotator:1", "docker.io/acme/certificate-rotator:1: not found"),
         NOT_THERE),
        (of_containerd("timeout.example:5000/denied/a:404", 'unexpected status from HEAD request to '
                       "https://timeout.example:5000/v2/denied/a/manifests/404: 429 Too Many Requests"), LIMITED),
        (of_containerd("reg.example/forbidden:1", 'failed to do request: Head "https://reg.example/v2/forbidden/manife'
                       'sts/1": dial tcp 192.0.2.1:443: i/o timeout'), UNREACHABLE),
        (of_containerd("reg.example/a:1", 'failed to do request: Head "https://reg.example/v2/a/manifests/1": tls: '
                       "failed to verify certificate: x509: certificate signed by unknown authority"), CERTIFICATE),
        (of_containerd("docker.io/library/a:1", "pull access denied, repository does not exist or may require "
                       "authorization: server message: insufficient_scope: authorization failed"), REFUSED),
        ('failed to do request: Head "https://certificates.example/v2/a/manifests/1": dial tcp: lookup '
         "certificates.example on 192.0.2.53:53: no such host", UNREACHABLE),
        ('Back-off pulling image "certificates": ErrImagePull: reading manifest latest: manifest unknown', NOT_THERE),
        ('{"errors":[{"code":"UNAUTHORIZED","detail":[{"Type":"repository","Name":"acme/x509"}]}]}', REFUSED),
        ("rpc error: code = Unavailable desc = cannot reach registry localhost:1", UNREACHABLE),
    ],
)  # fmt: skip
def test_names_in_the_message_tell_no_problem(message: str, expected: str) -> None:
    found = pull_problem(message)
    assert found is not None
    assert found.what == expected


@pytest.mark.parametrize("message", ["", "acme/denied:404", 'image "unauthorized" is odd', "forbidden.example:443"])
def test_message_of_names_alone_tells_no_problem(message: str) -> None:
    assert pull_problem(message) is None


@pytest.mark.parametrize("part", ["a", "a.", "/", "a/", "-a:", 'image "'])
def test_long_message_of_a_registry_is_read_in_linear_time(part: str) -> None:
    began = time.process_time()
    pull_problem(part * 50_000)
    assert time.process_time() - began < 2
