"""Endpoints as users write them."""

import logging

import pytest

from actors._cri.endpoint import BadEndpoint, normalized


@pytest.mark.parametrize("written", ["unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"])
def test_each_way_to_write_an_endpoint_means_the_same(written: str) -> None:
    assert normalized(written) == "unix:///run/x.sock"


def test_a_bare_path_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        normalized("/run/x.sock")
    assert "unix:///run/x.sock" in caplog.text


@pytest.mark.parametrize(
    "written",
    ["", "/", "unix://", "unix:///", "unix://run/x.sock", "run/x.sock", "tcp://localhost:3735", "npipe:////./pipe/x"],
)
def test_anything_else_is_refused_with_what_to_write(written: str) -> None:
    with pytest.raises(BadEndpoint, match=r"cannot use container runtime endpoint .* unix:///"):
        normalized(written)


def test_a_path_too_long_for_a_socket_is_refused() -> None:
    assert normalized("unix:///" + "x" * 106)
    with pytest.raises(BadEndpoint, match="108 bytes, a socket's at most 107"):
        normalized("unix:///" + "x" * 107)
