"""The objects actor in its own process, with stand-ins for volume and pod_workers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proto.agent.actor import Describe
from proto.pods import pod_workers, volume
from proto.pods.objects import GetObjects, ListObjects, ObjectRef, PodObjects, SetPodObjects
from tests.harness import ActorProcess, wait_for
from tests.suite.needs import disk_directory

PEERS = ("volume", "pod_workers")
SOON_S = 20.0
"""Each reading starts a process, which takes seconds on a busy machine."""


def ref(name: str, kind: str = "ConfigMap") -> ObjectRef:
    return ObjectRef(kind=kind, namespace="default", name=name)


def config_map(name: str, value: str, more: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n{more}data: {{key: {value}}}\n"


class World:
    """The actor, its directory, and what its peers heard."""

    def __init__(self, process: ActorProcess, directory: Path) -> None:
        self.process = process
        self.directory = directory

    def write(self, file: str, text: str) -> None:
        temporary = self.directory / f".{file}"
        temporary.write_text(text)
        temporary.rename(self.directory / file)

    def value(self, name: str) -> bytes | None:
        answer = self.process.ask(GetObjects(refs=(ref(name),)))
        return answer.found[0].data["key"] if answer.found else None

    def heard(self, peer: str) -> list[tuple[tuple[str, ...], bool]]:
        kind = volume.ObjectsChanged if peer == "volume" else pod_workers.ObjectsChanged
        return [(tuple(one.name for one in told.refs), told.full) for told in self.process.peers[peer].of(kind)]

    def problems(self) -> list[str]:
        return [f"{Path(one.file).name}: {one.problem}" for one in self.process.ask(ListObjects()).problems]


@contextmanager
def world(run_in: str | None = None) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="nvo-") as directory:
        process = ActorProcess("objects", None, PEERS, objects_dir=directory, file_check_frequency_s=60.0)
        if run_in is not None:
            os.rmdir(process.dir)
            process.dir = tempfile.mkdtemp(prefix="nv-", dir=run_in)
            process.settings = type(process.settings)(
                run_dir=process.dir, root_dir=f"{process.dir}/root", objects_dir=directory
            )
        with process:
            yield World(process, Path(directory))


@pytest.fixture
def objects() -> Iterator[World]:
    with world() as one:
        yield one


def test_objects_follow_their_files(objects: World) -> None:
    assert objects.value("a") is None
    objects.write("a.yaml", config_map("a", "one"))
    wait_for(lambda: objects.value("a") == b"one", SOON_S, "the object is there")
    objects.write("a.yaml", config_map("a", "two"))
    wait_for(lambda: objects.value("a") == b"two", SOON_S, "the object changes")
    (objects.directory / "a.yaml").unlink()
    wait_for(lambda: objects.value("a") is None, SOON_S, "the object is gone")
    missing = objects.process.ask(GetObjects(refs=(ref("a"), ref(""), ref("b", "Secret"))))
    assert (missing.found, missing.missing) == ((), (ref("a"), ref("b", "Secret")))


def test_changes_are_reported_only_for_used_objects(objects: World) -> None:
    for peer in PEERS:
        wait_for(lambda peer=peer: ((), True) in objects.heard(peer), SOON_S, f"{peer} hears of the start")
    objects.process.tell(SetPodObjects(pods=(PodObjects(pod_uid="1", refs=(ref("a"),)),), full=True))
    wait_for(lambda: objects.process.ask(Describe()).state["pods"] == 1, SOON_S, "the pod is known")
    objects.write("b.yaml", config_map("b", "one"))
    objects.write("a.yaml", config_map("a", "one"))
    for peer in PEERS:
        wait_for(lambda peer=peer: (("a",), False) in objects.heard(peer), SOON_S, f"{peer} hears of a")
        assert all("b" not in names for names, _ in objects.heard(peer))
    assert [row.used_by for row in objects.process.ask(ListObjects()).objects] == [1, 0]


def test_kill_9_rereads_and_reports_everything(objects: World) -> None:
    objects.write("a.yaml", config_map("a", "one"))
    wait_for(lambda: objects.value("a") == b"one", SOON_S, "the object is there")
    version = objects.process.ask(GetObjects(refs=(ref("a"),))).found[0].resource_version
    before = len(objects.heard("volume"))
    objects.process.restart()
    answer = objects.process.ask(GetObjects(refs=(ref("a"),)))  # at once: it waits for the first reading
    assert answer.found[0].resource_version == version
    wait_for(lambda: ((), True) in objects.heard("volume")[before:], SOON_S, "volume reads again")


def test_bad_file_keeps_last_good_objects_and_says_why(objects: World) -> None:
    objects.write("a.yaml", config_map("a", "one"))
    wait_for(lambda: objects.value("a") == b"one", SOON_S, "the object is there")
    objects.write("a.yaml", "kind: [")
    wait_for(objects.problems, SOON_S, "the problem is shown")
    assert objects.value("a") == b"one"
    assert objects.process.ask(ListObjects()).problems[0].keeps_previous
    objects.write("a.yaml", config_map("a", "two", "immutable: true\n"))
    wait_for(lambda: objects.value("a") == b"two" and not objects.problems(), SOON_S, "mended")
    objects.write("a.yaml", config_map("a", "three", "immutable: true\n"))
    wait_for(lambda: "immutable" in " ".join(objects.problems()), SOON_S, "the change is refused")
    assert objects.value("a") == b"two"


def test_the_same_object_in_two_files_names_both(objects: World) -> None:
    objects.write("a.yaml", config_map("a", "one"))
    objects.write("b.yaml", config_map("a", "two"))
    wait_for(objects.problems, SOON_S, "the problem is shown")
    (problem,) = objects.problems()
    assert problem.startswith("b.yaml: ")
    assert f"already defined by {objects.directory}/a.yaml:1" in problem
    assert objects.value("a") == b"one"


def test_last_good_objects_survive_a_kill_on_a_tmpfs() -> None:
    with world(run_in="/dev/shm") as objects:
        objects.write("a.yaml", config_map("a", "one"))
        wait_for(lambda: objects.value("a") == b"one", SOON_S, "the object is there")
        kept = Path(objects.process.dir, "objects-last-good.json")
        objects.write("a.yaml", "kind: [")
        wait_for(kept.exists, SOON_S, "the last good version is kept")
        objects.process.restart()
        assert objects.value("a") == b"one"
        objects.write("a.yaml", config_map("a", "two"))
        wait_for(lambda: objects.value("a") == b"two" and not kept.exists(), SOON_S, "mended")


@pytest.mark.needs("disk")
def test_on_a_disk_nothing_is_kept() -> None:
    with world(run_in=disk_directory()) as objects:
        objects.write("a.yaml", config_map("a", "one"))
        wait_for(lambda: objects.value("a") == b"one", SOON_S, "the object is there")
        objects.write("a.yaml", "kind: [")
        wait_for(objects.problems, SOON_S, "the problem is shown")
        objects.process.restart()
        assert objects.value("a") is None
        assert list(Path(objects.process.dir).glob("objects-last*")) == []


def test_large_answer_is_split(objects: World) -> None:
    for number in range(12):
        objects.write(f"{number}.yaml", config_map(f"m{number}", "x" * (1024 * 1024 - 100)))
    wait_for(lambda: len(objects.process.ask(ListObjects()).objects) == 12, 20, "twelve objects")
    answer = objects.process.ask(GetObjects(refs=(ref(""),)))
    rest = objects.process.ask(GetObjects(refs=answer.more))
    assert len(answer.found) + len(rest.found) == 12
    assert answer.more
    assert not rest.more


def test_without_a_directory_nothing_is_there() -> None:
    with ActorProcess("objects", None, PEERS) as process:
        answer = process.ask(GetObjects(refs=(ref("a"),)))
        assert answer.missing == (ref("a"),)
        assert process.ask(ListObjects()).objects == ()


def test_secrets_never_show_in_logs_and_listings(objects: World, capfd: pytest.CaptureFixture[str]) -> None:
    canary = "hunter2-canary"
    objects.write("s.yaml", f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{a: {canary}}}\n")
    found = wait_for(
        lambda: objects.process.ask(GetObjects(refs=(ref("s", "Secret"),))).found, SOON_S, "the Secret is there"
    )
    assert found[0].data == {"a": canary.encode()}
    objects.write("s.yaml", f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ndata: {{a: {canary}!}}\n")
    wait_for(objects.problems, SOON_S, "the problem is shown")
    shown = repr(objects.process.ask(ListObjects())) + repr(objects.process.ask(Describe()))
    objects.process.kill()
    left = b"".join(path.read_bytes() for path in Path(objects.process.dir).rglob("*") if path.is_file())
    assert canary not in shown
    assert canary.encode() not in left
    objects.process.start()
    assert canary not in "".join(capfd.readouterr())


def test_a_node_without_a_cluster_does_not_load_the_api_client() -> None:
    code = "import sys, actors.objects.actor, actors.volume.actor; print({'h11', 'ssl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
