"""The fresh machine itself: it is apart from this machine, and ends with its test process."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh.cgroups import hierarchies
from tests.fresh.downloads.rootfs import USER, rootfs
from tests.fresh.machine import Machine, delete_abandoned
from tests.fresh.traces import Traces
from tests.harness import alive, wait_for

pytestmark = [pytest.mark.needs("mmdebstrap", "root"), pytest.mark.timeout(300)]

CONNECT = """
import errno, socket
for address in ("192.0.2.1", "198.51.100.1"):
    try:
        socket.create_connection((address, 80), 2)
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
BEGUN = "until grep -qa ^sleep /proc/$!/cmdline; do :; done"
"""Until then a shell's child is another shell."""
HOLD = """
import sys
from tests.fresh.machine import Machine
from tests.fresh.downloads.rootfs import rootfs
with Machine([rootfs()], {}) as machine:
    machine.must("sh", "-c", "sleep 1000 > /dev/null 2>&1 &")
    print(machine.pid, machine.scratch, flush=True)
    sys.stdin.read()
"""


def test_machine_reaches_its_loopback_only() -> None:
    with Machine([rootfs()], {}) as machine:
        assert Traces.of(machine).interfaces == {"lo"}
        assert machine.must("python3", "-c", CONNECT, user=USER).split() == ["ENETUNREACH", "ENETUNREACH"]


def test_bare_machine_has_no_container_runtime_or_cni() -> None:
    with Machine([rootfs()], {}) as machine:
        for program in ("busybox", "runc", "crun", "containerd", "ip", "nft", "iptables"):
            assert machine.run(["sh", "-c", f"command -v {program}"]).returncode != 0, program


def test_writes_on_one_machine_are_not_seen_on_the_next() -> None:
    with Machine([rootfs()], {}) as machine:
        machine.must("touch", "/etc/mine", "/tmp/mine", "/var/lib/mine")
    with Machine([rootfs()], {}) as machine:
        assert machine.must("find", "/etc", "/tmp", "/var/lib", "-name", "mine") == ""


def test_a_trace_of_each_kind_is_found() -> None:
    with Machine([rootfs()], {}) as machine:
        before = Traces.of(machine)
        tree = next(hierarchy.mount for hierarchy in hierarchies())
        machine.must(
            "sh", "-c", f"sleep 1000 > /dev/null 2>&1 & {BEGUN}; mkdir {tree}/left; touch /run/left; mount -B /etc /mnt"
        )
        left = Traces.of(machine).since(before)
    assert left["processes"][0].endswith("sleep 1000")
    assert left["mounts"] == ["/mnt"]
    assert left["cgroups"] == [f"{tree}/left"]
    assert left["files"] == ["/run/left"]


def test_machine_ends_with_its_killed_test_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        first, scratch = test.stdout.readline().split()
        inside = _members(int(first))
        assert len(inside) >= 2
        test.kill()
        test.wait()
        wait_for(lambda: not any(alive(pid) for pid in inside), 10, "no process of it")
    delete_abandoned()
    wait_for(lambda: not Path(scratch).exists(), 20, "its directory goes; another worker may have begun with it")
    assert not [tree.mount for tree in hierarchies() if (tree.mount / Path(scratch).name).exists()]


def _members(first: int) -> list[int]:
    """The pids of all processes in the pid namespace of `first`."""
    namespace = os.readlink(f"/proc/{first}/ns/pid")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "ns/pid") == namespace:
                found.append(int(entry.name))
    return found
