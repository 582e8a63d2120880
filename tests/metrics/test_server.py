"""The server's metrics of the summary, of paths and of processes, without an agent."""

from __future__ import annotations

import gzip
import os

import msgspec
import pytest

from actors._metrics import kubelet
from actors.server.base.counters import OTHER, path_label
from actors.server.base.http import Request
from actors.server.figures import collect, processes
from actors.server.routes import metrics
from actors.server.table import page_table, secure_table
from actors.stats.pages import summary
from proto.agent.settings import Settings
from proto.node.summary import Summary
from tests.stats.sample import DISK, MACHINE, READING

FOUND = msgspec.json.decode(msgspec.json.encode(summary.build(READING, {}, MACHINE, DISK)), type=Summary)


def test_log_bytes_are_reported_by_container() -> None:
    assert dict(collect._logs(FOUND)) == {
        ("uid-full", "default", "full", "web"): 7,
        ("uid-full", "default", "full", "side"): 0,
        ("uid-host", "default", "host", "agent"): 0,
    }


def test_volumes_behind_claims_have_every_figure() -> None:
    found = {family.name: dict(collect._claims(FOUND, field)) for family, field in kubelet.VOLUME_STATS}
    assert {name.rpartition("stats_")[2]: one[("default", "claim")] for name, one in found.items()} == {
        "capacity_bytes": 64,
        "available_bytes": 34,
        "used_bytes": 30,
        "inodes": 10,
        "inodes_free": 7,
        "inodes_used": 3,
    }


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/metrics", "metrics"),
        ("/metrics/cadvisor", "metrics/cadvisor"),
        ("/metrics/nonsense", "other"),
        ("/stats/summary", "stats"),
        ("/exec/ns/pod/container", "exec"),
        ("/page/page.js", "page"),
        ("/runningpods/", "runningpods"),
        ("/", "other"),
        ("/favicon.ico", "other"),
    ],
)
def test_path_label_is_the_first_segment_of_a_known_path(path: str, label: str) -> None:
    assert path_label(path) == label


def test_every_route_has_its_own_path_label_except_two() -> None:
    routes = (*secure_table(Settings()).routes, *page_table().routes)
    assert {route.pattern for route in routes if path_label(route.pattern) == OTHER} == {"/", "/metrics/slis"}


def test_every_version_label_has_a_value() -> None:
    found = collect.build_info("")
    assert len(found) == len(kubelet.BUILD_INFO.labels)
    assert found[:2] == ("1", "36")


def test_ended_process_is_left_out_of_the_usage() -> None:
    found = processes.use_of([os.getpid(), 1 << 22])
    assert list(found) == [os.getpid()]
    own = found[os.getpid()]
    assert own.pss_bytes > 1 << 20
    assert own.cpu_s > 0
    assert own.open_fds >= 3
    assert 1_600_000_000 < processes.start_time(own.started_ticks) < 4_000_000_000


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("GZip;q=0.5, identity", True),
        ("zstd;q=1, x-gzip ; q = 0.1", True),
        ("deflate, gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("notgzip, *", False),
        (",;=,", False),
    ],
)
def test_accept_encoding_is_parsed_for_gzip(accepted: str, takes: bool) -> None:
    assert Request("GET", "/metrics", {}, {"accept-encoding": accepted}).takes_gzip is takes


def test_compressed_page_decompresses_to_the_original() -> None:
    data = os.urandom(1 << 16) + b'container_memory_usage_bytes{id="/"} 1\n' * 10_000
    assert gzip.decompress(metrics.packed(data)) == data
    assert len(metrics.packed(data)) < 1 << 17
