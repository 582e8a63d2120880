"""The loop of an actor process: its two threads, the alarm, and its end."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors._base.messaging.loop import EVENTS_AT_ONCE, TIDIES_A_SECOND, Alarm, Loop
from actors._base.messaging.mailbox import Inbox
from tests.harness import wait_for

SOON_S = 10.0


class Threads:
    """A loop with its main thread and a mailbox thread, which runs the functions that are put into the mailbox."""

    def __init__(self) -> None:
        self.loop, self.inbox = Loop(), Inbox()
        self.inbox.attach(self.loop)
        self.error: Exception | None = None
        self.main = threading.Thread(target=self._run, daemon=True)
        self.mailbox = threading.Thread(target=self._handle, daemon=True)

    def start(self) -> None:
        self.main.start()
        self.mailbox.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except Exception as error:
            self.error = error

    def _handle(self) -> None:
        while True:
            self.inbox.get()()

    def call(self, function: Callable[[], object]) -> threading.Event:
        """Put it into the mailbox; the event is set once it has run."""
        done = threading.Event()

        def work() -> None:
            function()
            done.set()

        self.inbox.put(work)
        return done

    def end(self) -> None:
        def end() -> None:
            self.loop.ended = True

        self.loop.do(end)
        self.main.join(SOON_S)
        assert not self.main.is_alive()


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    made.start()
    yield made
    made.end()


def test_messages_of_other_threads_are_handled(threads: Threads) -> None:
    for _ in range(500):
        assert threads.call(lambda: None).wait(SOON_S)


def test_a_burst_is_handled_in_order(threads: Threads) -> None:
    seen: list[int] = []
    calls = [threads.call(lambda number=number: seen.append(number)) for number in range(5000)]
    assert calls[-1].wait(SOON_S)
    assert seen == list(range(5000))


def test_a_message_of_a_callback_is_handled(threads: Threads) -> None:
    """Either thread may lead then."""
    for _ in range(200):
        readable, writable = os.pipe()
        done = threading.Event()

        def arrive(readable: int = readable, done: threading.Event = done) -> None:
            os.read(readable, 1)
            threads.inbox.put(done.set)

        threads.loop.watch(readable, arrive)
        os.write(writable, b"x")
        assert done.wait(SOON_S)
        _forget(threads.loop, readable)
        os.close(writable)


def _forget(loop: Loop, fd: int) -> None:
    gone = threading.Event()

    def unwatch() -> None:
        loop.unwatch(fd)
        os.close(fd)
        gone.set()

    loop.do(unwatch)
    assert gone.wait(SOON_S)


def test_descriptors_timers_and_work_go_on_while_the_mailbox_hangs(threads: Threads) -> None:
    go_on, hangs = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait()

    for _ in range(20):
        hangs.clear()
        go_on.clear()
        hung = threads.call(hang)
        assert hangs.wait(SOON_S)
        fired, worked, read = threading.Event(), threading.Event(), threading.Event()
        readable, writable = os.pipe()

        def take(readable: int = readable, read: threading.Event = read) -> None:
            os.read(readable, 1)
            read.set()

        threads.loop.watch(readable, take)
        threads.loop.timers.add(0.001, fired.set)
        threads.loop.do(worked.set)
        os.write(writable, b"x")
        assert fired.wait(SOON_S)
        assert worked.wait(SOON_S)
        assert read.wait(SOON_S)
        _forget(threads.loop, readable)
        os.close(writable)
        assert not hung.is_set()
        go_on.set()
        assert hung.wait(SOON_S)


def test_callbacks_run_one_at_a_time(threads: Threads) -> None:
    inside, both, led = [0], [0], threading.Semaphore(0)

    def lead() -> None:
        inside[0] += 1
        both[0] = max(both[0], inside[0])
        time.sleep(0.0001)
        inside[0] -= 1
        led.release()

    for _ in range(300):
        threads.loop.do(lead)
        threads.inbox.put(lambda: None)
    for _ in range(300):
        assert led.acquire(timeout=SOON_S)
    assert both == [1]


def test_more_events_than_one_look_takes_are_all_handled(threads: Threads) -> None:
    pipes = [os.pipe() for _ in range(3 * EVENTS_AT_ONCE)]
    seen: list[int] = []
    for readable, writable in pipes:
        os.write(writable, b"x")

        def take(readable: int = readable) -> None:
            os.read(readable, 1)
            seen.append(readable)

        threads.loop.watch(readable, take)
    wait_for(lambda: len(seen) == len(pipes), what="every pipe is read")
    for readable, writable in pipes:
        _forget(threads.loop, readable)
        os.close(writable)


def test_an_event_of_a_closed_descriptor_is_not_one_of_its_successor() -> None:
    """One thread waits to lead with an event, while the other one closes the file and opens another."""
    loop = Loop()
    readable, writable = os.pipe()
    os.write(writable, b"x")
    loop.watch(readable, lambda: pytest.fail("it is not watched any more"))
    events = loop.wait()
    assert [fd for fd, _ in events.ready] == [readable]
    loop.unwatch(readable)
    os.close(readable)
    successor, other = os.pipe()
    assert successor == readable
    called: list[int] = []
    loop.watch(successor, lambda: called.append(os.read(successor, 1)[0]))
    loop.lead(events)
    assert called == []
    os.write(other, b"y")
    loop.lead(loop.wait())
    assert called == [ord("y")]
    for fd in (writable, successor, other):
        os.close(fd)


def test_timers_fire_in_order_also_after_earlier_ones(threads: Threads) -> None:
    fired: list[float] = []
    due: list[float] = []

    def add() -> None:
        """In a callback: none fires meanwhile. A thread that stands still between two of them changes their order."""
        timers = threads.loop.timers
        delays = (0.05, 0.02, 0.03, 0.0, 0.01)
        added = {timers.add(delay_s, lambda delay_s=delay_s: fired.append(delay_s)): delay_s for delay_s in delays}
        due.extend(added[timer] for _, _, timer in sorted(timers._heap) if timer in added)

    threads.loop.do(add)
    wait_for(lambda: len(fired) == 5, what="all fired")
    assert fired == due


def test_a_timer_that_sets_the_next_one_goes_on(threads: Threads) -> None:
    left, done = [200], threading.Event()

    def again() -> None:
        left[0] -= 1
        if left[0]:
            threads.loop.timers.add(0.0001 if left[0] % 2 else 0.0, again)
        else:
            done.set()

    threads.loop.timers.add(0.0, again)
    assert done.wait(SOON_S)


def test_a_cancelled_timer_wakes_neither_thread(threads: Threads) -> None:
    timer = threads.loop.timers.add(3600, lambda: None)
    assert threads.loop.timers.looks_at < math.inf
    timer.cancel()
    assert threads.call(lambda: None).wait(SOON_S)  # the wait after it counts
    wait_for(lambda: all(map(_polls, (threads.main, threads.mailbox))), what="both threads wait")
    assert threads.loop.timers.looks_at == threads.loop._alarm_at == math.inf


def test_tidying_is_limited_where_waits_are_many(threads: Threads) -> None:
    tidied: list[int] = []
    threads.loop.tidy = lambda: tidied.append(1)
    began = time.monotonic()
    for _ in range(20 * TIDIES_A_SECOND):
        assert threads.call(lambda: None).wait(SOON_S)
    assert 0 < len(tidied) <= TIDIES_A_SECOND * (2 + time.monotonic() - began)


def test_an_exception_of_a_callback_ends_the_loop_and_is_raised() -> None:
    for _ in range(20):
        threads = Threads()
        threads.start()

        def fail() -> None:
            raise KeyError("a bug")

        threads.inbox.put(lambda: None)
        threads.loop.do(fail)
        threads.main.join(SOON_S)
        assert isinstance(threads.error, KeyError)


def test_a_failure_before_a_wake_is_handled_ends_the_main_thread() -> None:
    """One look finds the descriptor and the wake. The callback fails first."""
    for _ in range(20):
        loop = Loop()
        readable, writable = os.pipe()

        def fail() -> None:
            raise KeyError("a bug")

        loop.watch(readable, fail)
        os.write(writable, b"x")
        loop.do(lambda: None)
        events = loop.wait()
        assert len(events.ready) == 2
        loop.lead(events)
        with pytest.raises(KeyError):
            loop.run()
        waiting = threading.Thread(target=loop.wait, daemon=True)
        waiting.start()
        waiting.join(SOON_S)
        assert not waiting.is_alive()
        os.close(readable)
        os.close(writable)


class Socket:
    """Counts the looks at it."""

    looks = 0

    def look(self) -> None:
        self.looks += 1


def test_a_look_is_put_off_until_the_message_is_handled(threads: Threads) -> None:
    wait_for(lambda: threads.loop.mailbox_thread, what="the mailbox thread has waited")
    socket, before, later = Socket(), [-1], [-1]

    def use() -> None:
        assert threads.loop.looks_later(socket)
        assert threads.loop.looks_later(socket)
        before[0] = socket.looks

    threads.inbox.put(use)
    threads.inbox.put(lambda: later.__setitem__(0, socket.looks))
    wait_for(lambda: later[0] >= 0, what="the next message")
    assert (before, later) == ([0], [1])
    assert not threads.loop.looks_later(socket), "another thread looks itself"


def test_a_look_that_a_callback_put_off_is_made_before_the_wait(threads: Threads) -> None:
    wait_for(lambda: threads.loop.mailbox_thread, what="the mailbox thread has waited")
    for _ in range(50):
        socket, put_off = Socket(), threading.Event()

        def use(socket: Socket = socket, put_off: threading.Event = put_off) -> None:
            if threads.loop.looks_later(socket):
                put_off.set()

        wait_for(lambda: threads.inbox._waits, what="the mailbox thread waits")
        threads.loop.do(use)
        if put_off.wait(0.05):
            wait_for(lambda socket=socket: socket.looks, what="the look, without a further event")


def test_a_look_that_a_hung_handler_put_off_is_made_by_the_main_thread(threads: Threads) -> None:
    wait_for(lambda: threads.loop.mailbox_thread, what="the mailbox thread has waited")
    socket, put_off, go_on = Socket(), threading.Event(), threading.Event()

    def hang() -> None:
        assert threads.loop.looks_later(socket)
        put_off.set()
        go_on.wait()

    hung = threads.call(hang)
    assert put_off.wait(SOON_S)  # an event before it brings no look
    threads.loop.timers.add(0.01, lambda: None)
    wait_for(lambda: socket.looks, what="a look")
    assert not hung.is_set()
    go_on.set()


def test_the_mailbox_thread_leaves_the_end_to_the_main_thread() -> None:
    for _ in range(50):
        threads = Threads()
        threads.start()
        assert threads.call(lambda: None).wait(SOON_S)
        threads.end()


def test_an_idle_mailbox_thread_leads(threads: Threads) -> None:
    """So that a message wakes one thread, also after the main thread led.

    The kernel chooses. On a busy machine the main thread may be the last to wait, and then leads for a while.
    """
    wait_for(lambda: _led_by_mailbox(threads, 100) > 50, timeout_s=60, what="most of a hundred")


def _led_by_mailbox(threads: Threads, count: int) -> int:
    leaders: list[int] = []
    for number in range(count):
        if number % 10 == 0:
            _lead_with_main(threads)
        assert threads.call(lambda: None).wait(SOON_S)
        wait_for(lambda: all(map(_polls, (threads.main, threads.mailbox))), what="both threads wait")
        threads.loop.do(lambda: leaders.append(threading.get_ident()))
        wait_for(lambda number=number: len(leaders) > number, what="the work")
    return leaders.count(threads.mailbox.ident or 0)


def _lead_with_main(threads: Threads) -> None:
    """Let the main thread lead, while a handler runs."""
    go_on, led = threading.Event(), threading.Event()
    handled = threads.call(go_on.wait)
    threads.loop.do(led.set)
    assert led.wait(SOON_S)
    go_on.set()
    assert handled.wait(SOON_S)


def _polls(thread: threading.Thread) -> bool:
    return "poll" in Path(f"/proc/self/task/{thread.native_id}/wchan").read_text()


@pytest.mark.parametrize("delay_s", [-5.0, 0.0, 0.01])
def test_alarm_has_an_event_at_its_time(delay_s: float) -> None:
    alarm = Alarm()
    began = time.monotonic()
    alarm.set(began + delay_s)
    wait_for(lambda: _ticks(alarm) == 1, what="the event")
    assert time.monotonic() >= began + delay_s
    os.close(alarm.fd)


def test_alarm_at_infinity_is_none() -> None:
    alarm = Alarm()
    alarm.set(0.0)
    alarm.set(math.inf)
    assert _ticks(alarm) == 0
    os.close(alarm.fd)


def _ticks(alarm: Alarm) -> int:
    try:
        return int.from_bytes(os.read(alarm.fd, 8), "little")
    except BlockingIOError:
        return 0
