"""The checkpoint of admitted API pods: its content, and reading damaged files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from actors._base.messaging.futures import Future
from actors.pod_workers.api_pods.api_pod_checkpoint import ApiPodCheckpoint
from proto.v1 import Pod, from_dict

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


def test_unwritable_disk_is_logged_and_blocks_no_pod(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "nodevisor").write_text("not a directory")
    kept, _ = api_checkpoint(tmp_path)
    kept.keep(pod())
    assert "pods would not run after a reboot" in caplog.text
    (tmp_path / "nodevisor").unlink()
    kept.keep(replace(pod(), spec=replace(pod().spec, node_name="n")))
    assert list(files(tmp_path)) == ["u.json"]
