"""The event loop of an actor process: descriptors, timers, and work of other threads.

Two threads run it, one at a time: the leader (the pattern Leader/Followers). The mailbox thread waits here while its
mailbox is empty. So what arrives for a handler wakes one thread, not two. The main thread waits here all the time, and
takes what arrives while a handler runs or hangs.

Linux wakes one waiter of an epoll for each event: the last that came, which is the mailbox thread as a rule. Nothing
depends on the choice. A leader that has messages for the other thread wakes it in the end.

A descriptor is armed for one event (EPOLLONESHOT), and again after its callback, so that one thread handles an event. A
descriptor whose callback reads all there is does without the second call (EPOLLET).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from actors._base.messaging.timers import TimerHeap

EVENTS_AT_ONCE = 32
TIDIES_A_SECOND = 50
"""Limit of `tidy`: a process with many short waits needs none before each of them."""
HANDOVER_S = 0.1
"""The longest wait of the main thread until the mailbox thread has woken: it would take the wake itself otherwise."""
_ONCE, _EDGE = select.EPOLLIN | select.EPOLLONESHOT, select.EPOLLIN | select.EPOLLET
_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1


class _Time(ctypes.Structure):
    """An itimerspec: the interval, which is not used, and the time, each in seconds and nanoseconds."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("interval_s", "interval_ns", "s", "ns"))


_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.timerfd_create.argtypes = (ctypes.c_int, ctypes.c_int)
_libc.timerfd_settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Time), ctypes.c_void_p)


class Alarm:
    """A timerfd (timerfd_create(2)): its descriptor has an event at the time that is set.

    `os.timerfd_create` does the same from Python 3.13 on.
    """

    def __init__(self) -> None:
        """Raises OSError."""
        self.fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "cannot make a timerfd")

    def set(self, at: float) -> None:
        """One event at a monotonic time in seconds, or none for infinity. A time that has passed: at once."""
        ns = 0 if math.isinf(at) else max(1, math.ceil(at * 1e9))
        _libc.timerfd_settime(self.fd, _TIMER_ABSTIME, _Time(0, 0, *divmod(ns, 1_000_000_000)), None)


class Events(NamedTuple):
    """Ready descriptors with their masks, and the number of the last `unwatch` before the wait for them."""

    since: int
    ready: list[tuple[int, int]]


class Looks(Protocol):
    """A socket. A call on it may have read messages in, of which its descriptor gives no event; `look` handles them."""

    def look(self) -> None: ...


class _Watched(NamedTuple):
    callback: Callable[[], None]
    mode: int


class Loop:
    """Its callbacks run in one of the two threads, one at a time. Other methods may be called from any thread."""

    def __init__(self, on_fire: Callable[[float], None] = lambda _: None) -> None:
        """`on_fire` gets the seconds by which a timer fires late."""
        self.failure: BaseException | None = None
        """The exception of a callback. It ends the loop."""
        self.ended = False
        self.tidy: Callable[[], None] = lambda: None
        """Cancels timers that are not needed any more. Called before a wait, by the thread that waits: at times by both
        threads at once."""
        self._tidies_left, self._tidies_until = 0, 0.0
        self.mailbox_waits: Callable[[], bool] = lambda: False
        """True when the mailbox thread waits here though its mailbox has messages."""
        self._watched: dict[int, _Watched] = {}
        """By descriptor."""
        self._work: deque[Callable[[], object]] = deque()
        self._hands_over, self._handed_over = False, threading.Event()
        self._leading = threading.Lock()
        self._leader = 0
        """Identity of the thread that leads; 0 for none."""
        self._changes = 0
        self._unwatched: dict[int, int] = {}
        """By descriptor: the number of its last `unwatch`. Its number may be that of another file since."""
        self.mailbox_thread = 0
        """Identity of the mailbox thread, which sets it before it waits."""
        self._looks: set[Looks] = set()
        self._woken = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._alarm, self._alarm_at, self._setting = Alarm(), math.inf, threading.Lock()
        self._epoll = select.epoll()
        for fd in (self._wake_fd, self._alarm.fd):  # edge-triggered: each write is one event, and they are never read
            self._epoll.register(fd, _EDGE)
        self.timers = TimerHeap(self._set_alarm, on_fire)
        self.timers.run_due()

    # From any thread

    def watch(self, fd: int, callback: Callable[[], None], *, reads_all: bool = False) -> None:
        """Call back whenever `fd` is readable. `reads_all`: the callback always reads until there is no more."""
        self._watched[fd] = _Watched(callback, _EDGE if reads_all else _ONCE)
        self._epoll.register(fd, self._watched[fd].mode)

    def unwatch(self, fd: int) -> None:
        """Watch it no more. Only in a callback or work: then no other callback runs."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            self._changes += 1
            self._unwatched[fd] = self._changes

    def do(self, work: Callable[[], object]) -> None:
        """Have the leader call a function, after earlier ones."""
        self._work.append(work)
        self.wake()

    def wake(self) -> None:
        """Have a thread lead. The present leader looks anyway before it ends."""
        if not self._woken and threading.get_ident() != self._leader:
            self._woken = True
            os.eventfd_write(self._wake_fd, 1)

    def looks_later(self, socket: Looks) -> bool:
        """Look at a socket soon: when the mailbox thread's present message is handled. False in other threads."""
        if threading.get_ident() != self.mailbox_thread:
            return False
        self._looks.add(socket)
        return True

    def _set_alarm(self) -> None:
        with self._setting:
            at = self.timers.looks_at  # of several calls the last one sets the earliest time
            if at != self._alarm_at:
                self._alarm_at = at
                self._alarm.set(at)

    # In the main thread and the mailbox thread

    def run(self) -> None:
        """Lead again and again until the end. Raises the exception of a callback."""
        while not self.ended:
            self.lead(self.wait())
            self._hand_over()
        if self.failure is not None:
            raise self.failure

    def _hand_over(self) -> None:
        """Wait until the mailbox thread is awake for its messages."""
        self._handed_over.clear()
        self._hands_over = True
        if self.mailbox_waits():
            self._handed_over.wait(HANDOVER_S)
        self._hands_over = False

    def has_woken(self) -> None:
        """The mailbox thread does not wait any more."""
        if self._hands_over:
            self._handed_over.set()

    def look(self) -> None:
        """Make the looks that are put off."""
        while self._looks:
            with contextlib.suppress(KeyError):  # the other thread has taken it
                self._looks.pop().look()

    def wait(self) -> Events:
        """Wait for events, which the thread then handles in `lead`."""
        self._tidy_up()
        since = self._changes
        return Events(since, self._epoll.poll(None, EVENTS_AT_ONCE))

    def _tidy_up(self) -> None:
        """Have no timer wake the process for nothing."""
        if (now := time.monotonic()) >= self._tidies_until:
            self._tidies_left, self._tidies_until = TIDIES_A_SECOND, now + 1.0
        if self._tidies_left:
            self._tidies_left -= 1
            self.tidy()
            if self.timers.drop_cancelled():
                self._set_alarm()

    def lead(self, events: Events) -> None:
        """Handle events, due timers and work, then let another thread lead."""
        with self._leading:
            self._leader = threading.get_ident()
            try:
                if not self.ended:
                    self._handle(events)
            except BaseException as error:
                self.failure, self.ended = error, True
            self._leader = 0
        if self.ended:
            os.eventfd_write(self._wake_fd, 1)  # also if a wake is not handled yet: the main thread has to end
        elif self._work or self.mailbox_waits():
            self.wake()

    def _handle(self, events: Events) -> None:
        self.look()  # the mailbox thread may hang with looks put off
        for fd, _ in events.ready:
            if fd == self._wake_fd:
                self._woken = False  # before the look at the work: what is added from here on wakes again
            elif fd == self._alarm.fd:
                self._alarm_at = math.nan  # it has gone off: the next time is another one, even if it is the same
                self.timers.run_due()
                self._set_alarm()
            else:
                self._call_back(fd, self._unwatched.get(fd, 0) > events.since)
        for _ in range(len(self._work)):
            self._work.popleft()()

    def _call_back(self, fd: int, stale: bool) -> None:
        """`stale`: the event may be of an earlier file with this number. The present one's comes again."""
        watched = self._watched.get(fd)
        if watched is not None and not stale:
            watched.callback()
        if (stale or watched is None or watched.mode == _ONCE) and (now := self._watched.get(fd)) is not None:
            with contextlib.suppress(FileNotFoundError):  # another thread registers the descriptor right now
                self._epoll.modify(fd, now.mode)
