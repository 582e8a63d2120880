"""The sync step's look for pods that run in the cgroup of other settings."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.steps.sync import Sync
from proto.agent.settings import Settings
from proto.v1 import Container, ObjectMeta, Pod, PodSpec
from proto.wire.errors import AskTimeout

POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u"), spec=PodSpec(containers=(Container(name="c"),)))
RUNNING = PodView.of([SandboxView(id="s")], [ContainerView("i", "c", state="running", pid=7)])


@pytest.mark.parametrize(
    ("failure", "told"),
    [(OSError(errno.EROFS, "Read-only file system"), ["FailedCreatePodContainer"]), (AskTimeout("busy"), [])],
)
def test_pod_goes_on_until_it_can_move(failure: Exception, told: list[str]) -> None:
    answers: list[Any] = [failure, True, False]
    events: list[str] = []

    async def blocking(*_: object) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    context = SimpleNamespace(
        settings=Settings(),
        blocking=blocking,
        events=SimpleNamespace(pod=lambda _pod, _kind, reason, *_: events.append(reason)),
    )
    unused: Any = None
    scope: Any = SimpleNamespace(pod=POD, context=context)
    sync = Sync(scope, unused, unused, unused, unused, unused)

    def look() -> bool:
        with pytest.raises(StopIteration) as answer:  # nothing in it waits
            sync._is_misplaced(RUNNING).send(None)
        return bool(answer.value.value)

    assert [look() for _ in range(4)] == [False, True, False, False]
    assert events == told
    assert answers == [], "once it is in its cgroup, nothing looks again"
