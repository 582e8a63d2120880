"""Names of stalls that cannot be made to happen on any machine: swap, a slow disk, no CPU; and what no rule names."""

from __future__ import annotations

import pytest

from proto.waits.record import RUNNING, Wait
from proto.waits.table import Table
from supervisor.process.samples import Sample, Thread
from supervisor.process.stalls import Seen, name

RUNS = Wait(kind="handler", waiter="actor/volume", target=RUNNING, what="MountPod", since=90.0, number=7)
TABLE = Table(name="volume", incarnation=1, pid=5, start_time=1, waits=(RUNS,))
BEFORE = Thread(tid=7, state="S")


def seen(thread: Thread, before: Thread = BEFORE, swapped_kib: int = 0, machine: str = "x86_64") -> Seen:
    last = Sample(at=100.1, threads=(thread,), swapped_kib=swapped_kib, resident_kib=1000)
    first = Sample(at=100.0, threads=(before,))
    return Seen(first=first, last=last, table=TABLE, table_before=TABLE, answered=True, machine=machine)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (seen(Thread(tid=7, state="D", wchan="folio_wait_bit_common", faults=9), swapped_kib=50_000), "swapped-out"),
        (seen(Thread(tid=7, state="D", wchan="folio_wait_bit_common", faults=9)), "slow-disk"),
        (seen(Thread(tid=7, state="D", wchan="jbd2_log_wait_commit", syscall=74)), "slow-disk"),
        (seen(Thread(tid=7, state="D", wchan="rpc_wait_bit_killable")), "uninterruptible"),
        (seen(Thread(tid=7, state="R", waited_ns=95_000_000)), "starved"),
        (seen(Thread(tid=7, state="R", waited_ns=50_000_000, cpu_ns=40_000_000)), "busy-loop"),
        (seen(Thread(tid=7, state="S", syscall=202, wchan="futex_do_wait")), "lock"),
        (seen(Thread(tid=7, state="S", syscall=999, wchan="what_is_this")), "unknown"),
        (Seen(first=Sample(at=1.0), last=Sample(at=2.0)), "gone"),
        (seen(Thread(tid=7, state="Z")), "gone"),
    ],
)
def test_stall_is_named(found: Seen, kind: str) -> None:
    stall = name(found)
    assert stall.kind == kind
    assert kind == "gone" or "MountPod" in stall.text


def test_handler_and_its_time_are_in_the_text() -> None:
    assert name(seen(Thread(tid=7, state="D", wchan="x"))).text.startswith("the handler of MountPod (for 10.1 s)")


@pytest.mark.parametrize(
    ("machine", "call", "number", "kind"),
    [
        ("x86_64", "futex", 202, "lock"),
        ("aarch64", "futex", 98, "lock"),
        ("riscv64", "futex", 98, "lock"),
        ("x86_64", "accept", 43, "blocked-read"),
        ("aarch64", "accept", 202, "blocked-read"),
        ("x86_64", "flock", 73, "unknown"),
        ("aarch64", "ppoll", 73, "blocked-read"),
        ("x86_64", "fcntl", 72, "unknown"),
        ("aarch64", "pselect6", 72, "blocked-read"),
        ("x86_64", "epoll_wait", 232, "blocked-read"),
        ("aarch64", "epoll_pwait", 22, "blocked-read"),
        ("x86_64", "read", 0, "blocked-read"),
        ("aarch64", "read", 63, "blocked-read"),
        ("aarch64", "write", 64, "blocked-write"),
        ("x86_64", "semget", 64, "unknown"),
        ("x86_64", "nanosleep", 35, "sleep"),
        ("aarch64", "unlinkat", 35, "unknown"),
        ("aarch64", "clock_nanosleep", 115, "sleep"),
        ("s390x", "anything", 202, "unknown"),
    ],
)
def test_system_call_is_the_machines_own(machine: str, call: str, number: int, kind: str) -> None:
    assert name(seen(Thread(tid=7, state="S", syscall=number), machine=machine)).kind == kind


def test_disk_calls_are_the_machines_own() -> None:
    stuck = [("x86_64", 74), ("aarch64", 82), ("aarch64", 267), ("aarch64", 74), ("x86_64", 267)]
    kinds = [name(seen(Thread(tid=7, state="D", syscall=number), machine=machine)).kind for machine, number in stuck]
    assert kinds == ["slow-disk"] * 3 + ["uninterruptible"] * 2
