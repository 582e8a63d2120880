"""A ZeroMQ socket with several threads: no message waits for ever, and none is torn."""

from __future__ import annotations

import select
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from actors._base.messaging.shared_socket import SharedSocket
from tests.harness import wait_for

THREADS, MESSAGES = 3, 1000


class End:
    """A shared socket, and the news that it hands to its loop."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.news = threading.Semaphore(0)
        self.shared = SharedSocket(socket, self.news.release)
        self._epoll = select.epoll()
        self._epoll.register(self.shared.fd, select.EPOLLIN)

    def has_news(self) -> bool:
        """True when its loop is to receive."""
        return bool(self._epoll.poll(0)) or self.news.acquire(blocking=False)

    def take(self, count: int) -> list[list[bytes]]:
        """The next `count` messages, received as the loop does."""
        taken: list[list[bytes]] = []

        def enough() -> bool:
            if self.has_news():
                taken.extend(self.shared.receive(7))
            return len(taken) >= count

        wait_for(enough, what=f"{count} messages")
        return taken


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[End, End]]:
    """A ROUTER and a DEALER that is connected to it."""
    context = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    for socket in (router, dealer):
        socket.set(zmq.SNDHWM, 0)
        socket.set(zmq.RCVHWM, 0)
    router.bind(f"ipc://{tmp_path}/inbox.sock")
    dealer.connect(f"ipc://{tmp_path}/inbox.sock")
    yield End(router), End(dealer)
    context.destroy(linger=0)


def test_a_message_that_a_send_took_in_is_news(ends: tuple[End, End]) -> None:
    inbox, peer = ends
    peer.shared.send(b"first")
    identity = inbox.take(1)[0][0]
    peer.shared.send(b"second")
    wait_for(lambda: inbox._epoll.poll(0), what="the descriptor reports it")
    inbox.shared.send(identity, b"answer")
    assert not inbox._epoll.poll(0)
    assert inbox.has_news()
    assert inbox.shared.receive(7) == [[identity, b"second"]]


def test_a_message_that_a_refused_send_took_in_is_news() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        for socket in (router, dealer):
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.SNDHWM, 1)
            socket.set(zmq.RCVHWM, 1)
        router.bind("inproc://inbox")  # no thread takes messages out of this queue: full, it stays full
        dealer.connect("inproc://inbox")
        end = End(dealer)
        end.shared.send(b"hello")
        identity = router.recv_multipart()[0]
        assert end.shared.receive(7) == []  # takes in that there is room again
        wait_for(lambda: not end.shared.send(b"more"), what="the queue is full")
        router.send_multipart([identity, b"answer"])
        wait_for(lambda: end._epoll.poll(0), what="the descriptor reports it")

        def took_in() -> bool:
            """Not every send looks: ZeroMQ looks at most once in some 3 million cycles."""
            assert not end.shared.send(b"refused")
            return not end._epoll.poll(0)

        wait_for(took_in, what="a refused send takes the answer in")
        assert end.has_news()
        assert end.shared.receive(7) == [[b"answer"]]


def test_what_one_turn_leaves_is_news(ends: tuple[End, End]) -> None:
    inbox, peer = ends
    for number in range(20):
        peer.shared.send(str(number).encode())
    assert [body for _, body in inbox.take(20)] == [str(number).encode() for number in range(20)]


def test_threads_send_whole_messages_while_another_receives(ends: tuple[End, End]) -> None:
    inbox, peer = ends

    def tell(name: bytes) -> None:
        for _ in range(MESSAGES):
            peer.shared.send(name, name)

    threads = [threading.Thread(target=tell, args=(b"%d" % number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    seen: Counter[bytes] = Counter()
    while seen.total() < THREADS * MESSAGES:
        for identity, head, body in inbox.take(1):
            assert head == body
            inbox.shared.send(identity, head)
            seen[head] += 1
    assert set(seen.values()) == {MESSAGES}
    assert Counter(body for (body,) in peer.take(THREADS * MESSAGES)) == seen


def test_nothing_is_sent_after_the_end(ends: tuple[End, End]) -> None:
    inbox, peer = ends
    inbox.shared.close()
    assert inbox.shared.send(b"anyone", b"late")
    peer.shared.send(b"still queued")
