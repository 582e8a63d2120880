"""The config actor in its own process, with a stand-in for pod_workers."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._host.files import checkpoint
from proto.agent.actor import Describe
from proto.pods.config import ListSources, Relist
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import PodUpdate
from proto.v1 import Pod
from tests.harness import ActorProcess, Stalls, wait_for

MANIFEST = """apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  containers:
  - name: c
    image: {image}
"""


def manifest(name: str, image: str = "busybox") -> str:
    return MANIFEST.format(name=name, image=image)


class Node:
    """The pods that pod_workers has after all updates."""

    def __init__(self, process: ActorProcess) -> None:
        self.process = process

    @property
    def updates(self) -> list[PodUpdate]:
        return self.process.peers["pod_workers"].of(PodUpdate)

    @property
    def ops(self) -> list[str]:
        """Of the updates. A SET is sent again when pod_workers' start is heard of after the first: they count once."""
        ops = [update.op for update in self.updates]
        while ops[:2] == ["SET", "SET"]:
            ops.pop(0)
        return ops

    @property
    def pods(self) -> dict[str, Pod]:
        pods: dict[str, Pod] = {}
        for update in self.updates:
            if update.op == "SET":
                pods = {}
            for pod in update.pods:
                if update.op == "REMOVE":
                    pods.pop(pod.metadata.uid, None)
                else:
                    pods[pod.metadata.uid] = pod
        return pods

    @property
    def images(self) -> dict[str, str | None]:
        return {pod.metadata.name: pod.spec.containers[0].image for pod in self.pods.values()}

    def wait(self, images: dict[str, str]) -> None:
        """Wait until pod_workers has these images by pod, at most a second."""
        within_a_second(lambda: self.images == images, f"{images}, not {self.images}")


def within_a_second(condition: Callable[[], Any], what: str) -> None:
    """Wait for a condition, for a second and the time that the machine stalled."""
    began = time.monotonic()
    with Stalls() as machine:
        wait_for(condition, 10, what)
    assert time.monotonic() - began < 1.0 + machine.longest_s, what


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "manifests"
    path.mkdir()
    return path


@pytest.fixture
def config(directory: Path) -> Iterator[ActorProcess]:
    with ActorProcess("config", peers=("pod_workers", "events"), pod_manifest_path=str(directory)) as process:
        yield process


@pytest.fixture
def node(config: ActorProcess) -> Node:
    node = Node(config)
    wait_for(lambda: node.updates, what="the first SET")
    return node


def test_manifest_changes_are_sent_within_a_second(directory: Path, node: Node) -> None:
    file = directory / "a.yaml"
    file.write_text(manifest("a"))
    node.wait({"a-node": "busybox"})
    (first,) = node.pods.values()
    assert first.metadata.annotations["kubernetes.io/config.source"] == "file"
    assert first.metadata.annotations["kubernetes.io/config.hash"] == first.metadata.uid
    file.write_text(manifest("a", "other"))
    node.wait({"a-node": "other"})
    assert first.metadata.uid not in node.pods
    file.unlink()
    node.wait({})
    assert node.ops == ["SET", "ADD", "REMOVE", "ADD", "REMOVE"]


def test_rename_into_place_is_a_change(directory: Path, node: Node) -> None:
    (directory / ".a.yaml.swp").write_text(manifest("a"))
    (directory / ".a.yaml.swp").rename(directory / "a.yaml")
    node.wait({"a-node": "busybox"})


def test_symlinks_are_read_without_a_close_event(directory: Path, tmp_path: Path, node: Node) -> None:
    (tmp_path / "elsewhere").write_text(manifest("a"))
    (directory / "a.yaml").symlink_to(tmp_path / "elsewhere")
    node.wait({"a-node": "busybox"})
    os.link(tmp_path / "elsewhere", directory / "b.yaml")
    within_a_second(lambda: str(directory / "a.yaml") in _problems(node), "the first name is a duplicate")


def _problems(node: Node) -> dict[str, str]:
    return {one.file: one.problem for one in node.process.ask(ListSources()).problems}


def test_file_still_being_written_waits_for_its_end(directory: Path, node: Node) -> None:
    text = manifest("a") + "  - name: d\n    image: second\n"
    with (directory / "a.yaml").open("w") as file:
        file.write(text[:-30])  # valid already, with one container
        file.flush()
        (directory / "b.yaml").write_text(manifest("b"))
        node.wait({"b-node": "busybox"})
        file.write(text[-30:])
    node.wait({"a-node": "busybox", "b-node": "busybox"})
    assert [
        len(pod.spec.containers) for update in node.updates for pod in update.pods if pod.metadata.name == "a-node"
    ] == [2]


def test_no_half_of_a_file_is_read_while_others_are_copied(directory: Path, node: Node) -> None:
    names = [f"p{number}" for number in range(60)]
    for name in names:
        with (directory / f"{name}.yaml").open("w") as file:
            file.write(manifest(name))  # valid already, with one container
            file.flush()
            time.sleep(0.0005)  # a writer's pace: a scan may come in between
            file.write("  - name: d\n    image: second\n")
    wait_for(lambda: len(node.pods) == len(names), 30)
    assert {len(pod.spec.containers) for update in node.updates for pod in update.pods} == {2}


def test_file_name_that_is_no_utf8_is_an_error_of_that_file(directory: Path, config: ActorProcess, node: Node) -> None:
    name = os.fsencode(directory) + b"/b\xff.yaml"
    problem = {f"{directory}/b\\xff.yaml": "its name is not UTF-8; rename the file"}
    (directory / "a.yaml").write_text(manifest("a"))
    for _ in range(2):
        with open(name, "w") as file:
            file.write(manifest("b"))
        node.wait({"a-node": "busybox"})
        wait_for(lambda: _problems(node) == problem, 20)
        pid = config.pid
        os.unlink(name)
        wait_for(lambda: not _problems(node), 20)
        assert config.pid == pid
        config.restart()


def test_merge_key_bombs_stop_no_other_manifest(directory: Path, node: Node) -> None:
    bomb = "\n".join(["a0: &a0 {}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 28))])
    for number in range(3):
        (directory / f"0-bomb-{number}.yaml").write_text(bomb)
    (directory / "good.yaml").write_text(manifest("good"))
    wait_for(lambda: set(node.images.values()) == {"busybox"}, 30)
    wait_for(lambda: len(_problems(node)) == 3, 30)
    assert all("as do merge keys" in problem for problem in _problems(node).values())


def test_editor_files_are_no_manifests(directory: Path, node: Node) -> None:
    for name in (".a.swp", "a.yaml~", "#a.yaml#", "4913"):
        (directory / name).write_text(manifest("no"))
    (directory / "z.yaml").write_text(manifest("z"))
    node.wait({"z-node": "busybox"})
    assert node.process.ask(ListSources()).problems == ()


def test_skipped_backup_is_logged_once_and_a_dotfile_is_not(
    directory: Path, node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    """The kubelet would run its pod, and none of a dotfile."""
    node.process.restart()  # from now on its standard error is captured here
    text = ""

    def said() -> list[str]:
        nonlocal text
        text += capfd.readouterr().err
        return [line for line in text.splitlines() if ".bak" in line]

    (directory / "sub.bak").mkdir()
    for name in (".a.bak", "a.yaml.bak"):
        (directory / name).write_text(manifest("no"))
    wait_for(said, 10, "the line")
    for image in ("one", "two"):
        (directory / "z.yaml").write_text(manifest("z", image))
        node.wait({"z-node": image})
    node.process.restart()
    wait_for(lambda: len(said()) == 2, 10, "the line of the next process")
    why = f"{directory}/a.yaml.bak is not read: its name is that of a backup or temporary file; "
    assert all(why in line for line in said())


def test_bad_version_keeps_the_good_one_and_the_other_files(directory: Path, node: Node) -> None:
    (directory / "a.yaml").write_text(manifest("a"))
    node.wait({"a-node": "busybox"})
    (directory / "a.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers: {}\n")
    (directory / "b.yaml").write_text(manifest("b"))
    node.wait({"a-node": "busybox", "b-node": "busybox"})
    (problem,) = wait_for(lambda: node.process.ask(ListSources()).problems)
    assert (problem.file, problem.line, problem.field) == (str(directory / "a.yaml"), 6, "spec.containers")
    assert problem.keeps_previous
    (event,) = wait_for(lambda: node.process.peers["events"].of(RecordEvent))
    assert (event.type, event.reason, event.involved.name) == ("Warning", "FailedValidation", "a-node")
    assert event.message.startswith(f"Error validating pod a-node_default({event.involved.uid}) from file, ignoring: ")
    assert f"{directory / 'a.yaml'}:6" in event.message
    (directory / "c.yaml").write_text("not: [a pod")
    wait_for(lambda: len(node.process.peers["events"].of(RecordEvent)) == 2)
    assert node.process.peers["events"].of(RecordEvent)[1].involved.kind == "Node"
    (directory / "c.yaml").unlink()
    (directory / "a.yaml").write_text(manifest("a"))
    within_a_second(lambda: not node.process.ask(ListSources()).problems, "mended")
    assert node.ops == ["SET", "ADD", "ADD"]


def test_kill_at_any_time_finds_the_same_pods_again(directory: Path, node: Node) -> None:
    (directory / "a.yaml").write_text(manifest("a"))
    node.wait({"a-node": "busybox"})
    before = node.pods
    node.process.kill()
    (directory / "b.yaml").write_text(manifest("b"))
    count = len(node.updates)
    node.process.start()
    wait_for(lambda: len(node.updates) > count)
    assert node.updates[-1].op == "SET"
    assert node.images == {"a-node": "busybox", "b-node": "busybox"}
    assert before.items() <= node.pods.items()


def test_good_pod_of_a_file_is_kept_once_the_disk_has_room(directory: Path) -> None:
    soon = "import actors._host.files.checkpoint as files; files.RETRY_S = 0.1; "
    peers = ("pod_workers", "events")
    with ActorProcess("config", peers=peers, prelude=soon, pod_manifest_path=str(directory)) as process:
        node = Node(process)
        kept = Path(process.settings.root_dir, "nodevisor")
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(b"")  # no directory: each write fails
        (directory / "a.yaml").write_text(manifest("a"))
        node.wait({"a-node": "busybox"})
        kept.unlink()
        wait_for((kept / "config.json").exists, 20, "it is written without another change")
        process.kill()
        (directory / "a.yaml").write_text("no manifest")
        process.start()
        wait_for(lambda: node.images == {"a-node": "busybox"}, 20, "the pod of the last good version")


@pytest.mark.parametrize("data", [["a list"], "text"])
def test_checkpoint_of_another_shape_is_left_out(directory: Path, node: Node, data: Any) -> None:
    (directory / "a.yaml").write_text(manifest("a"))
    node.wait({"a-node": "busybox"})
    node.process.kill()
    checkpoint.save(Path(node.process.settings.root_dir, "nodevisor/config.json"), 1, data)
    count = len(node.updates)
    node.process.start()
    wait_for(lambda: len(node.updates) > count, what="the next process reads the files")
    assert node.images == {"a-node": "busybox"}


def test_removed_and_recreated_directory_is_watched_again(directory: Path, node: Node) -> None:
    (directory / "a.yaml").write_text(manifest("a"))
    node.wait({"a-node": "busybox"})
    (directory / "a.yaml").unlink()
    directory.rmdir()
    node.wait({})
    directory.mkdir()
    within_a_second(lambda: node.process.ask(Describe()).state["watched"], "watched again")
    (directory / "c.yaml").write_text(manifest("c"))
    node.wait({"c-node": "busybox"})


def test_path_may_be_one_file(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    with ActorProcess("config", peers=("pod_workers",), pod_manifest_path=str(file)) as process:
        node = Node(process)
        wait_for(lambda: node.updates, what="an empty SET: the source has been seen")
        file.write_text(manifest("a"))
        (tmp_path / "other.yaml").write_text(manifest("other"))
        node.wait({"a-node": "busybox"})
        file.write_text(manifest("a", "new"))
        node.wait({"a-node": "new"})


def test_no_path_is_an_empty_source() -> None:
    with ActorProcess("config", peers=("pod_workers",)) as process:
        update = wait_for(lambda: process.peers["pod_workers"].of(PodUpdate))[0]
        assert (update.op, update.pods) == ("SET", ())


def test_relist_reads_all_files_again(directory: Path, node: Node) -> None:
    (directory / "a.yaml").write_text(manifest("a"))
    node.process.ask(Relist())
    assert node.process.ask(ListSources()).pods == {"file": ("default/a-node",)}
