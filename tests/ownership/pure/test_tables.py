"""The kernel's tables of locks and sockets, and collisions of sockets."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._cgroup.hierarchy import Hierarchy
from proto.agent.settings import Settings
from supervisor.ownership.holders import parse_locks
from supervisor.ownership.places import places
from supervisor.ownership.ports import Listener, Wanted, collides, parse
from supervisor.ownership.processes import Inode

LOCKS = """\
1: POSIX  ADVISORY  WRITE 7743 fe:00:1501376 0 EOF
2: FLOCK  ADVISORY  WRITE 19012 00:26:9103 0 EOF
2: -> FLOCK  ADVISORY  WRITE 19013 00:26:9103 0 EOF
3: FLOCK  ADVISORY  READ 5 fe:00:1 0 EOF
4: FLOCK  ADVISORY  WRITE x fe:00:2 0 EOF
5: FLOCK
"""
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100
   1: 0100007F:2809 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 100
   2: nonsense
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when
   0: 00000000000000000000000001000000:2808 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 99 1 0 100 0 0 10 0
"""


def test_only_exclusive_flocks_that_are_held_count() -> None:
    assert parse_locks(LOCKS) == {Inode(os.makedev(0, 0x26), 9103): 19012}


def test_listeners_and_their_addresses() -> None:
    assert list(parse(TCP)) == [Listener("127.0.0.1", 10_248, 4711)]
    assert list(parse(TCP6)) == [Listener("::1", 10_248, 99)]


@given(st.text())
def test_odd_tables_raise_no_error(text: str) -> None:
    parse_locks(text)
    list(parse(f"\n{text}"))


@pytest.mark.parametrize(
    ("ours", "theirs", "port", "expected"),
    [
        ("0.0.0.0", "127.0.0.1", 1, True),
        ("0.0.0.0", "127.0.0.1", 2, False),
        ("127.0.0.1", "0.0.0.0", 1, True),
        ("127.0.0.1", "::", 1, True),
        ("127.0.0.1", "::1", 1, False),
        ("127.0.0.1", "10.0.0.1", 1, False),
        ("127.0.0.1", "::ffff:127.0.0.1", 1, True),
        ("::", "10.0.0.1", 1, True),
        ("::1", "::", 1, True),
        ("::1", "0.0.0.0", 1, False),
        ("0.0.0.0", "::1", 1, True),
        ("0.0.0.0", "::", 1, True),
        ("0.0.0.0", "2001:db8::1", 1, True),
        ("::ffff:127.0.0.1", "127.0.0.1", 1, True),
    ],
)
def test_two_sockets_collide_on_one_port_of_one_address(ours: str, theirs: str, port: int, expected: bool) -> None:
    assert collides(Wanted("--port", ours, 1), Listener(theirs, port, 0)) == expected


TREE = Hierarchy(unified=False, mounts={"cpu": "/c", "cpuacct": "/c", "memory": "/m"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(), ["/c/kubepods", "/m/kubepods"]),
        (Settings(cgroup_root="/a/b"), ["/c/a/b/kubepods", "/m/a/b/kubepods"]),
        (Settings(cgroup_driver="systemd"), ["/c/kubepods.slice", "/m/kubepods.slice"]),
        (Settings(cgroups_per_qos=False), []),
    ],
)
def test_agent_owns_directories_and_a_cgroup_per_hierarchy(settings: Settings, expected: list[str]) -> None:
    found = places(settings, TREE)
    assert [place.path for place in found if place.cgroup] == expected
    assert [place.path for place in found if not place.cgroup] == [
        "/var/lib/kubelet",
        "/var/log/pods",
        "/var/log/containers",
    ]
