"""Names the kind of a stall from what the supervisor sees of a hung child. Pure.

Two samples of its threads show CPU time and page faults. Its wait records show the message in the handler and its
calls. The Python stacks show locks, which the kernel only shows as a futex.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import msgspec

from proto.waits.record import RUNNING, Wait
from proto.waits.table import Table
from supervisor.process.samples import Sample, Thread

FLOODED = 1000
"""A mailbox of this depth, while messages are handled, answers no Ping in time."""
BUSY, STARVED = 0.5, 0.02
"""Share of the time in which a thread runs or could run, from which it is busy; it is starved below that on a CPU."""
SWAPPED = 0.5
"""Share of the memory in swap from which a page fault explains a stall."""

DISK_WAITS = ("jbd2", "io_schedule", "folio_wait", "xlog")
"""Parts of the kernel's functions that wait for a disk."""


class Calls(NamedTuple):
    """Numbers of system calls. The same number is another call on another architecture: 202 is futex or accept."""

    futex: frozenset[int]
    polls: frozenset[int]
    """Waits for events: they count as reads, too."""
    reads: frozenset[int]
    writes: frozenset[int]
    disk: frozenset[int]
    sleeps: frozenset[int]


_X86_64 = Calls(
    futex=frozenset((202, 449)),
    polls=frozenset((232, 281, 441)),  # epoll_wait, epoll_pwait, epoll_pwait2
    reads=frozenset((0, 17, 19, 45, 47, 299, 43, 288, 7, 271, 23, 270)),  # read to recvmmsg, accept, poll, select
    writes=frozenset((1, 18, 20, 44, 46)),  # write, pwrite64, writev, sendto, sendmsg
    disk=frozenset((74, 75, 82, 83, 162, 277, 306)),  # fsync, fdatasync, rename, mkdir, sync, sync_file_range, syncfs
    sleeps=frozenset((35, 230)),  # nanosleep, clock_nanosleep
)
_AARCH64 = Calls(
    futex=frozenset((98, 449)),
    polls=frozenset((22, 441)),
    reads=frozenset((63, 67, 65, 207, 212, 243, 202, 242, 73, 72)),
    writes=frozenset((64, 68, 66, 206, 211)),
    disk=frozenset((82, 83, 38, 34, 81, 84, 267)),  # renameat and mkdirat: it has neither rename nor mkdir
    sleeps=frozenset((101, 115)),
)
_CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64, "riscv64": _AARCH64}
"""By the machine's name in uname(2). riscv64 has arm64's numbers, the kernel's generic ones."""
_UNKNOWN = Calls(*[frozenset()] * 6)
"""Of other machines: wchan still tells most."""

ENDED = ("Z", "X", "x")
"""States in proc(5) of threads that run no more. faulthandler can crash a process whose other threads run."""

_IDLE = re.compile(
    r'File ".*/(threading|queue|selectors|socket|concurrent/futures/thread|messaging/loop|process/thread_pool)\.py", '
    r"line \d+ in "
)
_BLOCK = re.compile(r"Thread (0x[0-9a-f]+).*:\n")
_STACK_BYTES = 16 * 1024 * 1024


class Stall(NamedTuple):
    """The name of a stall and a sentence about it."""

    kind: str
    text: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that is seen of a hung child."""

    first: Sample
    last: Sample
    table: Table | None = None
    table_before: Table | None = None
    """At the first sample."""
    stacks: str = ""
    """The dumps of faulthandler."""
    answered: bool = False
    """Its I/O thread answered Dump."""
    machine: str = ""
    """The kernel's name of the architecture that the numbers of system calls are of; empty: this machine's."""

    def calls(self) -> Calls:
        """The numbers of system calls in the samples."""
        return _CALLS.get(self.machine or os.uname().machine, _UNKNOWN)


def name(seen: Seen) -> Stall:
    """The stall of a process."""
    threads = {one.tid: one for one in seen.last.threads if one.state not in ENDED}
    if not threads:
        return Stall("gone", "the process has ended")
    if any(one.state in ("T", "t") for one in threads.values()):
        return Stall("stopped", "the process is stopped by a signal (SIGSTOP or a debugger)")
    running = _running(seen.table)
    mailbox = threads.get(running.number if running is not None else 0)
    if mailbox is None:
        mailbox = _likely(seen)
    return _of_thread(seen, mailbox, running) or _of_flood(seen) or Stall("unknown", _where(seen, mailbox, running))


def _running(table: Table | None) -> Wait | None:
    return next((wait for wait in table.waits if wait.target == RUNNING), None) if table is not None else None


def _likely(seen: Seen) -> Thread:
    """The thread that most likely stalls: one in D, else the busiest."""
    stuck = [one for one in seen.last.threads if one.state == "D"]
    return stuck[0] if stuck else max(seen.last.threads, key=lambda one: _share(seen, one))


def _before(seen: Seen, thread: Thread) -> Thread:
    return next((one for one in seen.first.threads if one.tid == thread.tid), thread)


def _share(seen: Seen, thread: Thread) -> float:
    """The share of the time between the samples that the thread was on a CPU."""
    took_ns = max(1.0, (seen.last.at - seen.first.at) * 1e9)
    return (thread.cpu_ns - _before(seen, thread).cpu_ns) / took_ns


def _could_run(seen: Seen, thread: Thread) -> float:
    """The share of that time in which it was on a CPU or waited for one."""
    took_ns = max(1.0, (seen.last.at - seen.first.at) * 1e9)
    return _share(seen, thread) + (thread.waited_ns - _before(seen, thread).waited_ns) / took_ns


def _of_thread(seen: Seen, thread: Thread, running: Wait | None) -> Stall | None:
    where = _where(seen, thread, running)
    if thread.state == "D":
        return _uninterruptible(seen, thread, where)
    if running is None:
        return _of_flood(seen) or (None if seen.answered else _of_io(seen))
    if (flood := _of_flood(seen)) is not None:
        return flood
    share, could = _share(seen, thread), _could_run(seen, thread)
    if could >= BUSY and share < STARVED:
        return Stall("starved", f"{where} can run and gets no CPU: {share:.0%} of the time")
    if could >= BUSY:
        return Stall("busy-loop", f"{where} runs {share:.0%} of the time and does not return")
    return _in_call(seen, thread, running, where)


def _uninterruptible(seen: Seen, thread: Thread, where: str) -> Stall:
    memory = seen.last.swapped_kib + seen.last.resident_kib
    faulted = thread.faults > _before(seen, thread).faults or "fault" in thread.stack
    if faulted and seen.last.swapped_kib >= SWAPPED * memory > 0:
        return Stall("swapped-out", f"{where} waits for memory from swap: {seen.last.swapped_kib} KiB are there")
    if thread.syscall in seen.calls().disk or any(word in thread.wchan for word in DISK_WAITS):
        return Stall("slow-disk", f"{where} waits for a disk in {thread.wchan or 'the kernel'}")
    return Stall("uninterruptible", f"{where} is in an uninterruptible sleep in {thread.wchan or 'the kernel'}")


def _in_call(seen: Seen, thread: Thread, running: Wait, where: str) -> Stall | None:
    calls = seen.calls()
    if thread.syscall in calls.futex or "futex" in thread.wchan:
        return _at_futex(seen, running, where)
    on = seen.last.files.get(thread.argument, "")
    if thread.syscall in calls.sleeps:
        return Stall("sleep", f"{where} sleeps")
    if thread.syscall in calls.reads | calls.polls or "read" in thread.wchan or "poll" in thread.wchan:
        return Stall("blocked-read", f"{where} waits for input{f' of {on}' if on else ''}")
    if thread.syscall in calls.writes or "write" in thread.wchan:
        return Stall("blocked-write", f"{where} waits to write{f' to {on}' if on else ''}")
    if "wait" in thread.wchan and "do_wait" in thread.wchan:
        return Stall("child-process", f"{where} waits for a child process to end")
    return None


def _at_futex(seen: Seen, running: Wait, where: str) -> Stall:
    """A handler waits for another thread: for an answer, or a lock that others hold."""
    blocks = _blocks(seen.stacks)
    own = next((block for block in blocks.values() if " in on_receive\n" in block), "")
    if not own or _waits_for_future(own):
        call = _call_of(seen.table, running)
        if call is not None:
            kind = "cri-call" if call.kind == "cri" else "unanswered-ask"
            return Stall(kind, f"{where} waits for {call.what} of {call.target.removeprefix('actor/')}")
    others = [block for ident, block in blocks.items() if block != own and _at_lock(block) and _in_futex(seen, ident)]
    if own and _at_lock(own) and others:
        return Stall("deadlock", f"{where} and {len(others)} more wait for locks: {_innermost(others[0])}")
    return Stall("lock", f"{where} waits for a lock that another thread holds")


def _blocks(stacks: str) -> dict[int, str]:
    """The stack of each thread in the last dump, by pthread_t. Each dump ends with the signalled thread.

    Innermost frames come first.
    """
    before, _, last = stacks.rpartition("Current thread ")
    dump = before.rpartition("Current thread ")[2] + f"Thread {last}"
    parts = _BLOCK.split(dump)[1:]
    return {int(ident, 16): block for ident, block in zip(parts[::2], parts[1::2], strict=True)}


def _in_futex(seen: Seen, ident: int) -> bool:
    """True when the kernel has that thread in a futex: the thread whose stack ends right below its pthread_t."""
    below = [one for one in seen.last.threads if 0 < one.stack_pointer <= ident < one.stack_pointer + _STACK_BYTES]
    nearest = max(below, key=lambda one: one.stack_pointer, default=None)
    return nearest is not None and nearest.syscall in seen.calls().futex


def _innermost(block: str) -> str:
    return block.strip().partition("\n")[0].strip()


def _waits_for_future(block: str) -> bool:
    return re.search(r'(futures\.py|call\.py|grpc/.*)", line \d+ in (result|_?wait|_block)', block) is not None


def _at_lock(block: str) -> bool:
    """True when the innermost frame is not one of the library's own waits: it acquires a lock itself."""
    first = _innermost(block)
    return "File " in first and _IDLE.search(first) is None


def _call_of(table: Table | None, running: Wait) -> Wait | None:
    """The youngest ask or CRI call that began in the handler."""
    calls = [one for one in table.waits if one.kind in ("cri", "ask")] if table is not None else []
    within = [one for one in calls if one.since >= running.since]
    return max(within, key=lambda one: (one.kind == "cri", one.since), default=None)


def _of_flood(seen: Seen) -> Stall | None:
    now, before = seen.table, seen.table_before
    if now is None or before is None or now.mailbox < FLOODED:
        return None
    handled = now.handled - before.handled
    if handled > 0:
        return Stall("flooded", f"{now.mailbox} messages wait in the mailbox, and {handled} were handled meanwhile")
    return None


def _of_io(seen: Seen) -> Stall:
    """The mailbox is idle and the I/O thread does not answer."""
    stuck = _leader(seen)
    if _could_run(seen, stuck) >= BUSY:
        return Stall("io-busy", "the I/O thread runs and does not read messages")
    return Stall("io-blocked", f"the I/O thread does not read messages: it waits in {stuck.wchan or 'a system call'}")


def _leader(seen: Seen) -> Thread:
    """The thread that most likely leads the loop: the main thread, or the mailbox thread while the main one waits."""
    main, known = seen.last.threads[0], seen.table.mailbox_thread if seen.table is not None else 0
    mailbox = next((one for one in seen.last.threads if one.tid == known), None)
    if mailbox is None or _polls(seen, mailbox):
        return main
    waits = _polls(seen, main) or main.syscall in seen.calls().futex or "futex" in main.wchan
    return mailbox if waits else main


def _polls(seen: Seen, thread: Thread) -> bool:
    return thread.syscall in seen.calls().polls or "epoll" in thread.wchan or "ep_poll" in thread.wchan


def _where(seen: Seen, thread: Thread, running: Wait | None) -> str:
    if running is None:
        return f"thread {thread.name or thread.tid}"
    return f"the handler of {running.what} (for {max(0.0, seen.last.at - running.since):.1f} s)"
