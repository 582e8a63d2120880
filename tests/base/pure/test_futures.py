"""Futures: every callback runs, and the first exception of one is raised."""

import pytest

from actors._base.messaging.futures import Future


def test_all_callbacks_run_though_one_fails() -> None:
    future: Future[int] = Future()
    seen: list[int] = []

    def fail(_: Future[int]) -> None:
        raise ValueError("of the first")

    future.add_done_callback(fail)
    future.add_done_callback(lambda over: seen.append(over.result(0)))
    with pytest.raises(ValueError, match="of the first"):
        future.set(7)
    assert seen == [7]
    assert future.result(0) == 7
