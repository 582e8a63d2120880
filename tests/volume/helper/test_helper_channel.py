"""The socket between the actor and its helpers, when one of them is gone."""

from __future__ import annotations

from contextlib import closing

from actors.volume.helper import channel


def test_closed_channel_is_an_end_with_unread_packets() -> None:
    actor, helper = channel.pair()
    with closing(helper):
        channel.send(helper, b"an answer nobody reads")
        actor.close()
        assert channel.receive(helper, wait=True) is None


def test_a_packet_of_any_size_arrives_whole() -> None:
    actor, helper = channel.pair()
    with closing(actor), closing(helper):
        for size in (0, 1, 64 * 1024, 64 * 1024 + 1, 5_000_000):
            channel.send(actor, b"x" * size)
            assert channel.receive(helper, wait=True) == b"x" * size
