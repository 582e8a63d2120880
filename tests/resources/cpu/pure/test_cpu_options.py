"""Options of the static policy: gates, values, and pairs that exclude each other."""

import pytest

from actors.resources.cpu.options import Options, parse_options
from actors.resources.errors import PolicyError

FULL, STRICT = "full-pcpus-only", "strict-cpu-reservation"
OVER_NODES, OVER_CORES = "distribute-cpus-across-numa", "distribute-cpus-across-cores"
BY_SOCKET, BY_CACHE = "align-by-socket", "prefer-align-cpus-by-uncorecache"

STABLE, BETA, ALPHA = (FULL, STRICT, BY_CACHE), (OVER_NODES,), (BY_SOCKET, OVER_CORES)

EXCLUDED = [(FULL, OVER_CORES), (OVER_NODES, OVER_CORES), (BY_CACHE, OVER_CORES), (BY_CACHE, OVER_NODES)]
COMBINED = [(FULL, OVER_NODES), (FULL, BY_SOCKET), (FULL, BY_CACHE), (FULL, STRICT), (OVER_NODES, BY_SOCKET),
            (BY_CACHE, STRICT), (BY_CACHE, BY_SOCKET), (OVER_CORES, STRICT), (OVER_CORES, BY_SOCKET)]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Options()),
        ({FULL: "true"}, Options(full_pcpus_only=True)),
        ({FULL: "1"}, Options(full_pcpus_only=True)),
        ({FULL: "F"}, Options()),
        ({STRICT: "true", BY_CACHE: "t"}, Options(strict_reservation=True, prefer_align_by_cache=True)),
        ({OVER_NODES: "True"}, Options(distribute_across_numa=True)),
        ({BY_SOCKET: "TRUE"}, Options(align_by_socket=True)),
        ({OVER_CORES: "T", FULL: "false"}, Options(distribute_across_cores=True)),
    ],
)
def test_options_are_read_as_upstream(given, expected):
    assert parse_options(given, alpha=True) == expected


@pytest.mark.parametrize(
    "given", [{"badValue1": ""}, {"badValue1": "", "badvalue2": "aaaa"}, {FULL: "1", "badvalue2": "lorem ipsum"}]
)
def test_unknown_options_are_refused(given):
    with pytest.raises(PolicyError, match='unknown CPU Manager Policy option: "bad'):
        parse_options(given)


@pytest.mark.parametrize("value", ["enabled!", "", "yes", "2", "tRUE"])
def test_values_that_are_no_booleans_are_refused(value):
    with pytest.raises(PolicyError, match=r'bad value for option "full-pcpus-only": strconv\.ParseBool'):
        parse_options({FULL: value})


@pytest.mark.parametrize("name", ALPHA)
def test_alpha_options_need_their_gate(name):
    with pytest.raises(PolicyError, match=f'Alpha-level Options not enabled, but option "{name}" provided'):
        parse_options({name: "true"})


@pytest.mark.parametrize("name", BETA)
def test_beta_options_need_their_gate(name):
    with pytest.raises(PolicyError, match=f'Beta-level Options not enabled, but option "{name}" provided'):
        parse_options({name: "true"}, alpha=True, beta=False)


@pytest.mark.parametrize("name", STABLE)
def test_stable_options_need_no_gate(name):
    assert parse_options({name: "true"}, beta=False) != Options()


@pytest.mark.parametrize("pair", EXCLUDED)
def test_options_that_exclude_each_other_are_refused(pair):
    with pytest.raises(PolicyError, match=f"{pair[0]} and {pair[1]} can not be used at the same time"):
        parse_options(dict.fromkeys(pair, "true"), alpha=True)


@pytest.mark.parametrize("pair", COMBINED)
def test_other_options_can_be_combined(pair):
    assert parse_options(dict.fromkeys(pair, "true"), alpha=True)
