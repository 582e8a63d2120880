"""The pods and the events of OOM kills."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.oom import policy
from actors.oom.kills import Kill
from actors.oom.policy import Place, Position

ID = "ab" * 32
UID = "0d2f6f4e-0000-4000-8000-000000000001"
SLICE = UID.replace("-", "_")
POD = f"/kubepods/burstable/pod{UID}"
KILL = Kill(
    sequence=5, stamp_us=7_000_000, pid=7, process="a\nb", resident_bytes=22 << 20, of_node=False,
    cgroup=f"{POD}/{ID}", limited=f"{POD}/{ID}", limit_bytes=16 << 20, usage_bytes=16 << 20,
)  # fmt: skip


@pytest.mark.parametrize(
    ("cgroup", "driver", "root", "found"),
    [
        (f"{POD}/{ID}", "cgroupfs", "/", Place(UID, POD, ID)),
        (f"{POD}/{ID}/kubepods/podother/{'cd' * 32}", "cgroupfs", "/", Place(UID, POD, ID)),
        (POD, "cgroupfs", "/", Place(UID, POD)),
        (f"/kubepods/pod{UID}/crio-{ID}", "cgroupfs", "/", Place(UID, f"/kubepods/pod{UID}", ID)),
        (f"/own/kubepods/pod{UID}/{ID}", "cgroupfs", "/own", Place(UID, f"/own/kubepods/pod{UID}", ID)),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope",
            "systemd",
            "/",
            Place(UID, f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice", ID),
        ),
        (f"/host{POD}/{ID}", "cgroupfs", "/", None),
        (f"{POD}/{ID}", "cgroupfs", "/own", None),
        ("/kubepods", "cgroupfs", "/", None),
        ("/kubepods/burstable", "cgroupfs", "/", None),
        ("/kubepods/pod../x", "cgroupfs", "/", None),
        ("/system.slice/ssh.service", "cgroupfs", "/", None),
        ("", "cgroupfs", "/", None),
    ],
)
def test_place_of_a_cgroup(cgroup: str, driver: str, root: str, found: Place | None) -> None:
    assert policy.place(cgroup, driver, root) == found


def test_node_event_has_the_kubelets_words() -> None:
    assert policy.node_message(KILL) == r"System OOM encountered, victim process: a\nb, pid: 7"


def test_pod_event_names_process_memory_and_limit() -> None:
    begin = r"Kernel killed process a\nb, pid: 7, of container c for lack of memory. The process was using 22Mi"
    where = Place(UID, POD, ID)
    rest = "used 16Mi, its memory limit is 16Mi."
    assert policy.pod_message(KILL, where, "c") == f"{begin}; the container {rest}"
    assert policy.pod_message(replace(KILL, limited=POD), where, "c") == f"{begin}; the pod {rest}"
    above = replace(KILL, limited="/kubepods")
    assert policy.pod_message(above, where, "c") == f"{begin}; the cgroup /kubepods above the pod {rest}"
    assert policy.pod_message(replace(KILL, of_node=True), where, "c") == f"{begin}; the node had no memory left."
    unknown = replace(KILL, limited="", limit_bytes=0)
    assert policy.pod_message(unknown, where, "") == (
        begin.replace("container c", "the pod") + "; a memory limit was reached."
    )


def test_kills_are_due_once_and_not_before_the_first_start() -> None:
    assert not policy.is_due(KILL, None, caught_up=False)
    assert policy.is_due(KILL, None, caught_up=True)
    for sequence, due in ((4, True), (5, False), (6, False)):
        assert policy.is_due(KILL, Position("boot", sequence), caught_up=False) == due


def test_position_of_another_boot_or_form_is_none() -> None:
    assert policy.position({"boot": "a", "sequence": 3}, "a") == Position("a", 3)
    for saved in (None, [], {"boot": "b", "sequence": 3}, {"boot": "a"}, {"boot": "a", "sequence": "3"}):
        assert policy.position(saved, "a") is None
    assert policy.position({"boot": "", "sequence": 3}, "") is None


def test_age_is_that_of_the_kernels_clock() -> None:
    assert policy.age_s(KILL, 9_500_000) == 2.5
    assert policy.age_s(KILL, 6_000_000) == 0.0
