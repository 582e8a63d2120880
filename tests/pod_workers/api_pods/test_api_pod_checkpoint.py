"""The checkpoint of admitted API pods: its content, and reading damaged files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._host.files import checkpoint
from actors.pod_workers.api_pods import api_pod_checkpoint
from actors.pod_workers.api_pods.api_pod_checkpoint import VERSION, ApiPodCheckpoint, has_directory
from proto.v1 import Pod, from_dict
from proto.wire.errors import AskTimeout

SEEN = {"kubernetes.io/config.seen": "then", "kubernetes.io/config.source": "api"}


class Actor:
    """Runs coroutines and blocking calls at once, and keeps the timers."""

    def __init__(self, root: Path) -> None:
        self.settings = SimpleNamespace(root_dir=str(root))
        self.timers: list[Callable[[], Any]] = []

    def spawn(self, coroutine: Any, name: str) -> None:  # noqa: ARG002 - the actor's signature
        with contextlib.suppress(StopIteration):
            while True:
                coroutine.send(None)  # every awaited future is complete

    def blocking(self, timeout_s: float, function: Callable[..., Any], *args: Any) -> Future[Any]:  # noqa: ARG002
        future: Future[Any] = Future()
        try:
            future.set(function(*args))
        except OSError as error:
            future.set_error(error)
        return future

    def after(self, delay_s: float, function: Callable[[], Any]) -> None:  # noqa: ARG002 - the actor's signature
        self.timers.append(function)


def pod(uid: str = "u", image: str = "i", **status: Any) -> Pod:
    return from_dict(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "d", "uid": uid, "resourceVersion": "5", "annotations": SEEN},
            "spec": {"containers": [{"name": "c", "image": image}]},
            "status": status,
        },
    )


def api_checkpoint(root: Path) -> tuple[ApiPodCheckpoint, Actor]:
    actor = Actor(root)
    return ApiPodCheckpoint(actor), actor  # type: ignore[arg-type]


def files(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (root / "nodevisor" / "api-pods").iterdir()}


def test_checkpoint_restores_kept_pods_without_status(tmp_path: Path) -> None:
    kept, actor = api_checkpoint(tmp_path)
    assert kept.load() == []
    kept.keep(pod("a", phase="Running"))
    kept.keep(pod("b"))
    kept.forget("b")
    kept.forget("never")
    while actor.timers:
        actor.timers.pop()()
    (found,) = api_checkpoint(tmp_path)[0].load()
    assert found.metadata.uid == "a"
    assert found.metadata.annotations == SEEN
    assert (found.spec, found.metadata.resource_version, found.status.phase) == (pod("a").spec, None, None)
    assert list(files(tmp_path)) == ["a.json"]


def test_checkpoint_keeps_the_claims_of_a_pod(tmp_path: Path) -> None:
    """As the scheduler and the claims' controller have named them. Its containers need their devices after a reboot."""
    mapping = {"containerName": "c", "resourceName": "a.test/gpu", "requestName": "r"}
    claims = {
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": [mapping]},
    }
    api_checkpoint(tmp_path)[0].keep(pod(phase="Running", **claims))
    (found,) = api_checkpoint(tmp_path)[0].load()
    assert found.status == pod(**claims).status


def test_only_spec_changes_are_written_again(tmp_path: Path) -> None:
    kept, _ = api_checkpoint(tmp_path)
    kept.keep(pod())
    before = files(tmp_path)
    kept.changed(pod(phase="Running"))
    kept.changed(pod("other"))  # which was not accepted
    assert files(tmp_path) == before
    kept.changed(pod(image="new"))
    assert api_checkpoint(tmp_path)[0].load()[0].spec.containers[0].image == "new"


def test_damaged_files_are_left_out_and_the_others_run(tmp_path: Path) -> None:
    kept, _ = api_checkpoint(tmp_path)
    for uid in ("a", "b", "c"):
        kept.keep(pod(uid))
    directory = tmp_path / "nodevisor" / "api-pods"
    (directory / "a.json").write_bytes((directory / "a.json").read_bytes()[:-9])
    (directory / "b.json").rename(directory / "renamed.json")
    after, _ = api_checkpoint(tmp_path)
    assert [one.metadata.uid for one in after.load()] == ["c"]
    after.keep(pod("d"))
    assert set(files(tmp_path)) == {"c.json", "d.json"}  # the damaged ones go with the next write


def test_a_pods_directory_is_made_and_synced_before_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    mark, save, fsync = api_pod_checkpoint.mark_pod, api_pod_checkpoint.checkpoint.save, os.fsync

    def synced(descriptor: int) -> None:
        done.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        fsync(descriptor)

    monkeypatch.setattr(api_pod_checkpoint, "mark_pod", lambda *given: (done.append("made"), mark(*given)))
    monkeypatch.setattr(
        api_pod_checkpoint.checkpoint, "save", lambda *given, **more: (done.append("saved"), save(*given, **more))
    )
    monkeypatch.setattr(os, "fsync", synced)
    kept, actor = api_checkpoint(tmp_path)
    kept.keep(pod("a"))
    actor.timers.pop()()
    assert done == ["made", "saved", "pods", "nodevisor/api-pods/a.json", "nodevisor/api-pods"]
    assert has_directory(str(tmp_path), "a")


@pytest.mark.parametrize("there", ["nothing", "file", "link to a directory", "link to nothing"])
def test_only_a_directory_itself_vouches_for_a_pod(tmp_path: Path, there: str) -> None:
    place = tmp_path / "pods" / "a"
    place.parent.mkdir()
    if there == "file":
        place.touch()
    elif there != "nothing":
        place.symlink_to(tmp_path if there == "link to a directory" else "nowhere")
    assert not has_directory(str(tmp_path), "a")
    place.unlink(missing_ok=True)
    place.mkdir()
    assert has_directory(str(tmp_path), "a")


def test_a_pod_that_cannot_be_written_blocks_no_other(tmp_path: Path, caplog: Any) -> None:
    kept, actor = api_checkpoint(tmp_path)
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "a").symlink_to("nowhere")
    batch: dict[str, Pod | None] = {"a": pod("a"), "b": pod("b")}
    with pytest.raises(FileExistsError):
        api_pod_checkpoint.write(str(tmp_path), batch, written := set())
    assert written == {"b"}
    assert list(files(tmp_path)) == ["b.json"]
    assert not (tmp_path / "pods" / "nowhere").exists()
    kept.keep(pod("a"))
    kept.keep(pod("c"))
    assert caplog.text.count("pods would not run after a reboot") == 1
    assert set(files(tmp_path)) == {"b.json", "c.json"}, "at once: a kill may come before the next try"
    assert len(actor.timers) == 2, "one syncs what is written, one tries again"
    (tmp_path / "pods" / "a").unlink()
    before = files(tmp_path)
    for timer in list(actor.timers):
        timer()
    assert set(files(tmp_path)) == {"a.json", "b.json", "c.json"}
    assert files(tmp_path).items() > before.items(), "the others are not written again"


def test_what_a_full_disk_refused_is_written_later(tmp_path: Path, caplog: Any) -> None:
    """The newest object of each pod, though no object changes after the failure."""
    kept, actor = api_checkpoint(tmp_path)
    kept.keep(pod("a"))
    kept.keep(pod("gone"))
    directory = tmp_path / "nodevisor" / "api-pods"
    directory.rename(tmp_path / "away")
    directory.write_text("not a directory")
    kept.keep(pod("a", image="resized"))
    kept.keep(pod("b"))
    kept.keep(pod("b", image="newer"))
    kept.keep(pod("a", image="resized"))
    kept.forget("gone")
    assert caplog.text.count("pods would not run after a reboot") == 1
    directory.unlink()
    (tmp_path / "away").rename(directory)
    timers, actor.timers = actor.timers, []
    for timer in timers:
        timer()
    found = {one.metadata.uid: one.spec.containers[0].image for one in api_checkpoint(tmp_path)[0].load()}
    assert found == {"a": "resized", "b": "newer"}
    kept.keep(pod("c"))
    assert set(files(tmp_path)) == {"a.json", "b.json", "c.json"}, "and others at once again"


def test_a_newer_object_waits_for_a_write_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the thread of the write that hangs could replace the newer file, or bring a removed one back."""
    kept, actor = api_checkpoint(tmp_path)
    hanging: list[Callable[[], Any]] = []

    def blocking(timeout_s: float, function: Callable[..., Any], *args: Any) -> Future[Any]:
        hanging.append(lambda: function(*args))
        future: Future[Any] = Future()
        future.set_error(AskTimeout("late"))
        return future

    with monkeypatch.context() as patched:
        patched.setattr(actor, "blocking", blocking)
        kept.keep(pod("a"))
        kept.keep(pod("a", image="newer"))
        actor.timers.pop()()  # the thread still hangs
    assert len(hanging) == 1
    hanging.pop()()
    actor.timers.pop()()
    (found,) = api_checkpoint(tmp_path)[0].load()
    assert found.spec.containers[0].image == "newer"


def test_a_write_that_ends_just_after_its_deadline_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a suspension of the machine. Else no pod would be written any more: nothing is left to try again."""
    kept, actor = api_checkpoint(tmp_path)

    def late(timeout_s: float, function: Callable[..., Any], *args: Any) -> Future[Any]:
        function(*args)
        future: Future[Any] = Future()
        future.set_error(AskTimeout("late"))
        return future

    with monkeypatch.context() as patched:
        patched.setattr(actor, "blocking", late)
        kept.keep(pod("a"))
    timers, actor.timers = actor.timers, []
    for timer in timers:
        timer()
    kept.keep(pod("b"))
    assert set(files(tmp_path)) == {"a.json", "b.json"}


def test_a_file_that_cannot_be_read_stays_for_the_next_start(tmp_path: Path, caplog: Any) -> None:
    kept, _ = api_checkpoint(tmp_path)
    for uid in ("a", "b", "c"):
        kept.keep(pod(uid))
    directory = tmp_path / "nodevisor" / "api-pods"
    checkpoint.save(directory / "a.json", VERSION + 1, "of a newer version")
    unreadable = directory / "b.json"
    unreadable.rename(tmp_path / "b.json")
    unreadable.mkdir()
    after, _ = api_checkpoint(tmp_path)
    assert [one.metadata.uid for one in after.load()] == ["c"]
    assert caplog.text.count("its pod waits for the API server") == 2
    after.keep(pod("d"))
    assert set(files(tmp_path)) == {"a.json", "b.json", "c.json", "d.json"}
