"""Counts and reports a container's start that fails."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future
from actors._metrics import kubelet as metrics
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.shared.ends import Ends
from actors.pod_workers.steps.container_start import StartFailedError
from actors.pod_workers.steps.operations import Operations
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.image_pull import ImageEnsured
from proto.v1 import ObjectMeta, Pod
from proto.v1.codec import from_dict
from proto.wire.errors import Refused


class Images:
    """The image_pull actor: has every image, or refuses."""

    def __init__(self, refusal: Refused | None) -> None:
        self._refusal = refusal

    def ask(self, _: Any, __: float) -> Future[ImageEnsured]:
        answer: Future[ImageEnsured] = Future()
        if self._refusal is not None:
            answer.set_error(self._refusal)
        else:
            answer.set(ImageEnsured(image_ref="sha256:i"))
        return answer


class Runtime:
    """A ready sandbox without containers."""

    view = PodView(sandboxes=(SandboxView(id="s"),))

    async def current(self) -> PodView:
        return self.view


def pod() -> Pod:
    debugger = {"name": "debugger", "image": "i", "targetContainerName": "gone"}
    spec = {"containers": [{"name": "c", "image": "i"}], "ephemeralContainers": [debugger]}
    return from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


def start(name: str, refusal: Refused | None = None) -> tuple[StartFailedError, list[str]]:
    """Start the container in vain: the error, and the pod's events."""
    subject, told = pod(), []

    async def no_logs(*_: Any) -> int:
        return 0

    events = SimpleNamespace(pod=lambda _, *event: told.append(" ".join(event)))
    context = SimpleNamespace(
        images=Images(refusal), events=events, settings=Settings(), blocking=no_logs, selinux=False
    )
    scope: Any = SimpleNamespace(
        pod=subject,
        context=context,
        trace=SimpleNamespace(part=lambda *_: nullcontext()),
        wait_reasons=SimpleNamespace(waiting_for=lambda *_: nullcontext()),
        pulling_s=0.0,
    )
    runtime: Any = Runtime()
    unused: Any = None
    operations = Operations(scope, runtime, unused, unused)
    operations.sandbox_pb = pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="p"))
    found = next(one for one in (*subject.spec.containers, *subject.spec.ephemeral_containers) if one.name == name)
    starting = operations.start_container(found, None)
    try:
        while True:
            starting.send(None)  # every awaited future is complete
    except StartFailedError as failure:
        return failure, told


def counted(kind: str, reason: str) -> tuple[float, float]:
    """(Starts of this kind of container, their errors of this reason)."""
    started = metrics.STARTED_CONTAINERS.take().get((kind,), (0.0,))
    errors = metrics.STARTED_CONTAINERS_ERRORS.take().get((kind, reason), (0.0,))
    return started[0], errors[0]


def test_a_start_counts_before_its_image_and_so_does_its_error() -> None:
    starts, errors = counted("container", "ErrImagePull")
    failure, told = start("c", Refused("ErrImagePull", "no such image"))
    assert (failure.reason, failure.message) == ("ErrImagePull", "no such image")
    assert told == ["Warning Failed Error: ErrImagePull c"]
    assert counted("container", "ErrImagePull") == (starts + 1, errors + 1)


def test_a_target_that_is_missing_is_counted_and_told() -> None:
    starts, errors = counted("ephemeral_container", "CreateContainerConfigError")
    failure, told = start("debugger")
    assert failure.reason == "CreateContainerConfigError"
    assert failure.message == "unable to find target container gone"
    assert told == ["Warning Failed Error: unable to find target container gone debugger"]
    assert counted("ephemeral_container", "CreateContainerConfigError") == (starts + 1, errors + 1)


def test_a_missing_image_is_told_before_a_missing_target() -> None:
    failure, _ = start("debugger", Refused("ImagePullBackOff", "later"))
    assert failure.reason == "ImagePullBackOff"


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (ContainerView("i", "c", state="exited", exit_code=137, reason="OOMKilled"), "exit code 137 (OOMKilled); "),
        (ContainerView("i", "c", state="exited", exit_code=3, reason="Error"), "exit code 3; "),
        (ContainerView("i", "c", state="running"), ""),
    ],
)
def test_record_of_a_back_off_begins_with_the_last_end(last: ContainerView, said: str) -> None:
    runtime: Any = SimpleNamespace(view=PodView(containers=(last,)))
    ends = Ends({}, {}, lambda: None)
    scope: Any = SimpleNamespace(context=SimpleNamespace(ends=ends), pod=Pod(metadata=ObjectMeta(uid="u")))
    unused: Any = None
    operations = Operations(scope, runtime, unused, unused)
    assert operations.last_end("c") == (f"it ended with {said}" if said else "")
    assert operations.last_end("other") == ""
    ends.killed("u", "c", "before", "Liveness probe failed: old")
    assert operations.last_end("c") == (f"it ended with {said}" if said else "")
    ends.killed("u", "c", "i", "Liveness probe failed: broken")
    killed = f"it was killed: Liveness probe failed: broken (exit code {last.exit_code}); "
    assert operations.last_end("c") == (killed if said else "")


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        ("pods", "Warning Failed error making pod data directories: "),
        ("", "Warning FailedCreatePodContainer unable to ensure pod container exists: "),
    ],
    ids=["directory", "cgroup"],
)
def test_a_full_disk_is_told_apart_from_a_missing_cgroup(tmp_path: Path, taken: str, said: str) -> None:
    if taken:
        (tmp_path / taken).touch()  # no directory can be made below a file

    async def no_cgroup(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    told: list[str] = []
    settings = Settings(root_dir=str(tmp_path))
    events = SimpleNamespace(pod=lambda _, *event: told.append(" ".join(event)))
    scope: Any = SimpleNamespace(
        pod=pod(), context=SimpleNamespace(events=events, settings=settings, blocking=no_cgroup)
    )
    unused: Any = None
    creation = Operations(scope, unused, unused, unused)._run_sandbox(pb.PodSandboxConfig(), "", settings, ())
    with pytest.raises(StartFailedError, match="Failed to create sandbox for pod"):
        creation.send(None)
    (event,) = told
    assert event.startswith(said)
