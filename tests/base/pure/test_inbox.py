"""A mailbox whose messages of one thread are held until it is about to wait."""

from __future__ import annotations

import threading

from actors._base.messaging.mailbox import Inbox


def test_held_messages_wake_at_release_and_keep_their_order() -> None:
    inbox, taken, arrived = Inbox(), [], threading.Semaphore(0)

    def take() -> None:
        for _ in range(3):
            taken.append(inbox.get())
            arrived.release()

    inbox.hold()
    reader = threading.Thread(target=take)
    reader.start()
    inbox.put("a")
    assert not arrived.acquire(timeout=0.05)
    assert inbox.qsize() == 1
    other = threading.Thread(target=inbox.put, args=("b",))
    other.start()
    other.join()
    assert arrived.acquire(timeout=5), "another thread's message wakes at once"
    inbox.put("c")
    inbox.release()
    reader.join(5)
    assert taken == ["a", "b", "c"]
    inbox.release()
    assert inbox.qsize() == 0
