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


def seen(thread: Thread, before: Thread = BEFORE, swapped_kib: int = 0) -> Seen:
    last = Sample(at=100.1, threads=(thread,), swapped_kib=swapped_kib, resident_kib=1000)
    return Seen(first=Sample(at=100.0, threads=(before,)), last=last, table=TABLE, table_before=TABLE, answered=True)


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
