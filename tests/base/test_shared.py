"""One run of work for several callers."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Cancelled, Task
from actors._base.shared import Shared


class Here:
    """Runs coroutines in this thread."""

    def spawn(self, coroutine: Coroutine[Any, None, Any], name: str = "") -> Task[Any]:
        task: Task[Any] = Task(coroutine, name, lambda task: task.step(), lambda *_: None, lambda _: None)
        task.step()
        return task


class Work:
    """Ends when it is told to."""

    def __init__(self) -> None:
        self.ends: list[Future[int]] = []

    async def __call__(self) -> int:
        self.ends.append(Future())
        return await self.ends[-1]


def test_concurrent_and_later_callers_share_a_result() -> None:
    here, work = Here(), Work()
    shared: Shared[int] = Shared(here, work, "work")
    first, second = here.spawn(shared.get(60.0)), here.spawn(shared.get(60.0))
    assert (len(work.ends), first.done(), second.done()) == (1, False, False)
    work.ends[0].set(7)
    assert (first.result(0), second.result(0), here.spawn(shared.get(60.0)).result(0)) == (7, 7, 7)
    assert shared.runs == 1


def test_work_that_began_too_early_is_repeated() -> None:
    here, work = Here(), Work()
    shared: Shared[int] = Shared(here, work, "work")
    here.spawn(shared.get(0.0))
    time.sleep(0.002)
    late = here.spawn(shared.get(0.0))
    work.ends[0].set(1)
    assert (len(work.ends), late.done()) == (2, False)
    work.ends[1].set(2)
    assert late.result(0) == 2


def test_failure_reaches_all_callers_and_the_next_retries() -> None:
    here, work = Here(), Work()
    shared: Shared[int] = Shared(here, work, "work")
    asked = [here.spawn(shared.get(60.0)) for _ in range(2)]
    work.ends[0].set_error(OSError("no"))
    for one in asked:
        with pytest.raises(OSError, match="no"):
            one.result(0)
    again = here.spawn(shared.get(60.0))
    work.ends[1].set(3)
    assert again.result(0) == 3


def test_caller_that_leaves_takes_nothing_from_the_others() -> None:
    here, work = Here(), Work()
    shared: Shared[int] = Shared(here, work, "work")
    leaving, staying = here.spawn(shared.get(60.0)), here.spawn(shared.get(60.0))
    leaving.cancel()
    work.ends[0].set(7)
    with pytest.raises(Cancelled):
        leaving.result(0)
    assert (staying.result(0), shared.runs) == (7, 1)


def test_old_result_can_be_dropped() -> None:
    here, work = Here(), Work()
    shared: Shared[int] = Shared(here, work, "work")
    here.spawn(shared.get(60.0))
    work.ends[0].set(1)
    shared.forget(60.0)
    here.spawn(shared.get(60.0))
    assert shared.runs == 1
    shared.forget(-1.0)
    here.spawn(shared.get(60.0))
    assert shared.runs == 2
