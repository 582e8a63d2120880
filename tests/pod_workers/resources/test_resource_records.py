"""Records of the resources of pods: their content, their files, and files that cannot be used."""

import errno
import json
import os
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from actors._host.files.checkpoint import RETRY_S
from actors.pod_workers.model.allocation import PodResourceInfo, equal, resources_of, with_resources
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.shared import resource_state
from actors.pod_workers.shared.resource_state import DamagedError, ResourceState, decode, encode
from proto.agent.settings import Settings
from tests.pod_workers.resources.resize_pods import needs, pod


def test_pod_has_its_allocated_resources() -> None:
    desired, granted = pod(needs("2", "1Gi")), resources_of(pod(needs("1", "1Gi")))
    assert with_resources(desired, granted).spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}
    assert with_resources(desired, None) is desired
    same = resources_of(pod(needs("2000m", "1024Mi")))
    assert equal(same, resources_of(desired))
    assert with_resources(desired, same) is desired


def test_init_container_has_its_allocated_resources() -> None:
    init = {"name": "first", "image": "i"}
    desired = pod(needs("1"), initContainers=[init | {"resources": needs("2")}])
    granted = resources_of(pod(needs("1"), initContainers=[init | {"resources": needs("1")}]))
    assert not equal(granted, resources_of(desired))
    assert with_resources(desired, granted).spec.init_containers[0].resources.requests == {"cpu": "1"}


def test_a_container_without_a_record_keeps_its_own() -> None:
    subject = pod(needs("2"), needs("3"))
    granted = PodResourceInfo({"a": resources_of(pod(needs("1"))).containers["a"]})
    assert [one.resources.requests["cpu"] for one in with_resources(subject, granted).spec.containers] == ["1", "3"]


def test_resources_of_the_pod_itself_are_part_of_it() -> None:
    desired = pod(needs(), resources=needs("2", "1Gi"))
    granted = resources_of(pod(needs(), resources=needs("1", "1Gi")))
    assert not equal(granted, resources_of(desired))
    found = with_resources(desired, granted).spec.resources
    assert found is not None
    assert found.requests["cpu"] == "1"


KUBELETS = (
    r'{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":'
    r'{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}'
)
"""As a kubelet wrote it."""


def test_state_file_has_the_kubelets_format() -> None:
    entries = decode(KUBELETS.encode())
    assert entries["pod1"].containers["container1"].requests == {"cpu": "1Ki", "memory": "1Ki"}
    assert decode(encode(entries)) == entries
    with_null = json.loads(encode(entries))
    assert json.loads(with_null["data"])["entries"]["pod1"]["PodLevelResources"] is None


@pytest.mark.parametrize("content", [b"", b"{}", KUBELETS.replace("1Ki", "2Ki").encode(), b'{"data":"x","checksum":1}'])
def test_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(content)


def test_a_state_is_written_when_it_changes_and_read_again(tmp_path: Any) -> None:
    changes: list[int] = []
    state = ResourceState(f"{tmp_path}/s", lambda: changes.append(1))
    state.load()
    state.set("u", resources_of(pod(needs("1"))))
    state.set("u", resources_of(pod(needs("1"))))
    assert len(changes) == 1
    state.save()
    again = ResourceState(f"{tmp_path}/s")
    again.load()
    assert again.get("u") == state.get("u")
    again.keep({"v"})
    assert again.get("u") is None


def test_carried_out_resize_is_noted_beside_the_record(tmp_path: Any) -> None:
    noted: list[str] = []
    state = ResourceState(f"{tmp_path}/s", on_resize=noted.append)
    small, large = resources_of(pod(needs("1"))), resources_of(pod(needs("2")))
    assert state.held("u", small) is None
    state.note_resize("u", large)
    assert noted == [], "nothing of it runs"
    state.set("u", large)
    assert state.held("u", small) == large
    assert state.held("u", None) == large
    assert state.held("u", resources_of(pod(needs("2000m")))) is None
    state.note_resize("u", large)
    assert noted == []
    state.note_resize("u", None)
    assert (noted, state.held("u", large)) == (["u"], large)
    state.note_resize("u", small)
    assert (noted, state.held("u", small)) == (["u", "u"], None)
    state.remove("u")
    state.set("u", large)
    assert state.held("u", small) == large, "a new pod of the same UID"
    state.note_resize("u", small)
    state.keep({"v"})
    state.set("u", large)
    assert state.held("u", small) == large


def test_state_without_a_change_is_not_encoded_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    monkeypatch.setattr(resource_state, "encode", lambda entries: encoded.append(1) or encode(entries))
    state = ResourceState(f"{tmp_path}/s")
    state.set("u", resources_of(pod(needs("1"))))
    for _ in range(3):
        state.save()
    state.keep({"u"})
    state.save()
    assert len(encoded) == 1
    state.remove("u")
    state.save()
    assert decode((tmp_path / "s").read_bytes()) == {}


def test_damaged_state_file_is_renamed(tmp_path: Any) -> None:
    (tmp_path / "s").write_text("{")
    state = ResourceState(f"{tmp_path}/s")
    state.load()
    assert (state.get("u"), (tmp_path / "s.damaged").read_text()) == (None, "{")


def test_state_that_cannot_be_replaced_leaves_no_file(tmp_path: Any) -> None:
    state = ResourceState(f"{tmp_path}/s")
    (tmp_path / "s").mkdir()
    state.set("u", resources_of(pod(needs("1"))))
    with pytest.raises(IsADirectoryError):
        state.save()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM])
def test_state_file_that_cannot_be_read_now_stays(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    state = ResourceState(f"{tmp_path}/s")
    state.set("u", resources_of(pod(needs("1"))))
    state.save()

    def fail(*_: Any) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(resource_state, "read_regular", fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            ResourceState(f"{tmp_path}/s").load()
    again = ResourceState(f"{tmp_path}/s")
    again.load()
    assert again.get("u") == state.get("u")


@pytest.mark.parametrize("kind", ["directory", "pipe", "huge", "aside"])
def test_state_file_of_another_kind_is_renamed(tmp_path: Any, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    path = tmp_path / "s"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
        case _:
            (path / "full").mkdir(parents=True)
    if kind == "aside":
        (tmp_path / "s.damaged/of before").mkdir(parents=True)
    state = ResourceState(str(path))
    state.load()
    state.set("u", resources_of(pod(needs("1"))))
    assert f"cannot use {path}: " in caplog.text
    if kind == "aside":
        assert f"cannot rename it: {os.strerror(errno.ENOTEMPTY)}; remove it" in caplog.text
        return
    assert f"it is now {path}.damaged" in caplog.text
    state.save()
    assert decode(path.read_bytes()).keys() == {"u"}


def test_records_that_a_full_disk_refused_are_written_later(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    root, timers = tmp_path / "root", []
    root.write_bytes(b"")  # no directory: each write fails

    async def at_once(_: float, write: Callable[[], None]) -> None:
        write()

    actor = Mock(settings=Settings(root_dir=str(root)), blocking=at_once, post=lambda function: function())
    actor.after = lambda delay_s, function: timers.append((delay_s, function))
    actor.spawn = lambda coroutine, _: list(coroutine.__await__())
    manager = AllocationManager(
        actor, Mock(), desired=Mock(), admission_queue=Mock(), workers={}, is_complete=lambda: True
    )
    manager.allocated.set("u", resources_of(pod(needs("1"))))
    timers.pop()[1]()
    assert [delay_s for delay_s, _ in timers] == [RETRY_S]
    timers.pop()[1]()
    timers.pop()[1]()
    assert len([record for record in caplog.records if "cannot write" in record.message]) == 1
    root.unlink()
    root.mkdir()
    while timers:
        timers.pop()[1]()
    assert decode((root / "allocated_pods_state").read_bytes()).keys() == {"u"}
    assert [path.name for path in root.iterdir()] == ["allocated_pods_state"]
