"""The options of `make bench`."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import parse


def test_lists_are_of_names_and_of_numbers() -> None:
    options = parse(["--parts", "pods,cluster", "--pods", "1,250"])
    assert (options.parts, options.pods) == (["pods", "cluster"], [1, 250])
    assert parse([]).parts == []
    assert parse([]).scale_pods[-1] == 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--parts", "pods,pod"], "no part pod; there are pods, bus, scale, probes, streams, service, cluster"),
        (["--pods", "1,251"], "cannot run 251 pods: a private containerd has addresses for 250"),
        (["--pods", "many"], "argument --pods: invalid numbers value: 'many'"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err
