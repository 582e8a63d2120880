"""The container_gc actor as a process, against a runtime of lists; and on containerd where marked."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from actors._cri.client import Cri
from proto.agent.actor import Describe
from proto.cri import api_pb2 as pb
from proto.node.container_gc import CollectGarbage, PlanCollection, PodTerminated
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import ListPodWorkers, PodWorkerState, PodWorkerStates
from proto.pods.volume import UnmountPod
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.containerd import ContainerdInstance
from tests.containerd.pods import container_config, sandbox_config
from tests.harness import ActorProcess, Stalls, wait_for
from tests.image_gc.runtime import ListRuntime, list_runtime

ALONE = "from actors.container_gc import actor as container_gc; container_gc.FIRST_PASS_S = 3600.0\n"
"""Prevents periodic passes, so that only the requested ones run."""
NO_PASS = ALONE + "container_gc.COALESCE_S = 3600.0\n"


class Node:
    """The actor under test with its directories, its cgroups, and the pod workers' states."""

    def __init__(self, directory: Path, endpoint: str, *, prelude: str = ALONE, **settings: Any) -> None:
        self.logs, self.links = directory / "logs", directory / "links"
        self.root = directory / "root"
        for path in (self.logs, self.links, self.root):
            path.mkdir()
        self.cgroup_root = f"/nvtest-{uuid.uuid4().hex[:8]}"
        self.workers: dict[str, PodWorkerState] = {}
        self.sources_ready = True
        self.waiting: tuple[str, ...] = ()
        self.actor = ActorProcess(
            "container_gc",
            None,
            ("pod_workers", "volume", "pleg", "events"),
            container_runtime_endpoint=endpoint,
            root_dir=str(self.root),
            pod_logs_dir=str(self.logs),
            container_logs_dir=str(self.links),
            cgroup_root=self.cgroup_root,
            prelude=prelude,
            **{"container_gc_period_s": 3600.0} | settings,
        )
        self.actor.peers["pod_workers"].answers[ListPodWorkers] = lambda _: PodWorkerStates(
            pods=tuple(self.workers.values()), sources_ready=self.sources_ready, waiting=self.waiting
        )
        self.actor.peers["volume"].answers[UnmountPod] = self.unmount
        self.unmounts = True

    def unmount(self, request: UnmountPod) -> Done:
        if not self.unmounts:
            raise Refused("FailedUnmount", "it is busy")
        for path in (self.root / "pods" / request.pod_uid / "volumes").rglob("v"):
            path.rmdir()
        return Done()

    def worker(self, uid: str, stage: Any = "sync", *, deleted: bool = False) -> None:
        self.workers[uid] = PodWorkerState(
            uid=uid, namespace="ns", name=f"p-{uid}", stage=stage, deleted=deleted, released=deleted, static=True
        )

    def leave(self, uid: str, *, volume: bool = False) -> None:
        """Create a pod's directory, logs, log link and cgroup."""
        (self.root / "pods" / uid / "containers/main").mkdir(parents=True)
        (self.root / "pods" / uid / "etc-hosts").write_text("x")
        if volume:
            (self.root / "pods" / uid / "volumes/kubernetes.io~empty-dir/v").mkdir(parents=True)
        log = self.logs / f"ns_p-{uid}_{uid}" / "main/0.log"
        log.parent.mkdir(parents=True)
        log.write_text("x")
        (self.links / f"p-{uid}_ns_main-{'a' * 64}.log").symlink_to(log)
        fs.create(f"{self.cgroup_root}/kubepods/besteffort/pod{uid}", PodLimits(cpu_shares=2), hierarchy())

    def left(self) -> dict[str, list[str]]:
        """Return place to UIDs of pods with something there."""
        return {
            "pods": sorted(path.name for path in self.root.glob("pods/*")),
            "logs": sorted(path.name.rpartition("_")[2] for path in self.logs.iterdir()),
            "links": sorted(path.name.partition("_")[0].removeprefix("p-") for path in self.links.iterdir()),
            "cgroups": sorted(fs.list_pod_cgroups(self.actor.settings)),
        }

    def terminated(self, uid: str) -> None:
        self.actor.tell(PodTerminated(pod_uid=uid, pod_namespace="ns", pod_name=f"p-{uid}"))


@contextmanager
def shim_like(sandbox_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the name and the last argument of that sandbox's shim."""
    with tempfile.TemporaryDirectory() as directory:
        program = shutil.copy("/bin/sh", f"{directory}/containerd-shim-runc-v2")
        command = [program, "-c", "echo; read _", sandbox_id]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        with process:
            yield process
            process.kill()


def everywhere(*uids: str) -> dict[str, list[str]]:
    return {where: sorted(uids) for where in ("pods", "logs", "links", "cgroups")}


def nowhere() -> dict[str, list[str]]:
    return everywhere()


def recorded(node: Node, reason: str, count: int = 1) -> list[RecordEvent]:
    """So many events of a reason: the first of all may come after the answer that it was sent before."""

    def found() -> list[RecordEvent]:
        return [one for one in node.actor.peers["events"].of(RecordEvent) if one.reason == reason]

    wait_for(lambda: len(found()) >= count, 10, f"{count} events {reason}")
    return found()


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ListRuntime]:
    with list_runtime(tmp_path) as runtime:
        yield runtime


@pytest.fixture
def node(tmp_path: Path, runtime: ListRuntime) -> Iterator[Node]:
    node = Node(tmp_path, runtime.endpoint)
    try:
        with node.actor:
            yield node
    finally:
        assert fs.remove(node.cgroup_root, hierarchy())


def container(uid: str, attempt: int, state: Any = pb.CONTAINER_EXITED, name: str = "main") -> pb.Container:
    return pb.Container(
        id=f"{uid}-{name}-{attempt}",
        pod_sandbox_id=f"sandbox-{uid}",
        metadata=pb.ContainerMetadata(name=name, attempt=attempt),
        state=state,
        created_at=1_000_000_000 + attempt,
        labels={
            "io.kubernetes.pod.uid": uid,
            "io.kubernetes.pod.name": f"p-{uid}",
            "io.kubernetes.pod.namespace": "ns",
            "io.kubernetes.container.name": name,
        },
        annotations={"io.kubernetes.container.restartCount": str(attempt)},
    )


def sandbox(uid: str, *, ready: bool) -> pb.PodSandbox:
    state = pb.SANDBOX_READY if ready else pb.SANDBOX_NOTREADY
    labels = {"io.kubernetes.pod.uid": uid}
    return pb.PodSandbox(id=f"sandbox-{uid}", state=state, labels=labels, metadata=pb.PodSandboxMetadata(uid=uid))


def sandbox_of_its_own(uid: str) -> pb.PodSandbox:
    """One with an ID that no other test has: its shim is looked for among all processes of the machine."""
    one = sandbox(uid, ready=False)
    one.id = f"sandbox-{uuid.uuid4().hex}"
    return one


@pytest.mark.needs("cgroups")
def test_dead_containers_of_a_live_pod_go_except_the_last_one(node: Node, runtime: ListRuntime) -> None:
    node.worker("a")
    node.leave("a")
    runtime.sandboxes["sandbox-a"] = sandbox("a", ready=True)
    for attempt in range(4):
        state = pb.CONTAINER_RUNNING if attempt == 3 else pb.CONTAINER_EXITED
        runtime.containers[f"a-main-{attempt}"] = container("a", attempt, state)
        (node.logs / "ns_p-a_a/main" / f"{attempt}.log").write_text("x")
    runtime.containers["foreign"] = pb.Container(id="foreign", state=pb.CONTAINER_EXITED)
    assert node.actor.ask(CollectGarbage()).containers == 2
    assert sorted(runtime.containers) == ["a-main-2", "a-main-3", "foreign"]
    assert sorted(path.name for path in (node.logs / "ns_p-a_a/main").iterdir()) == ["2.log", "3.log"]
    assert list(runtime.sandboxes) == ["sandbox-a"]


@pytest.mark.needs("cgroups")
def test_each_removal_is_an_event_with_rule_age_and_bytes(node: Node, runtime: ListRuntime) -> None:
    node.worker("a")
    runtime.containers = {one.id: one for one in (container("a", attempt) for attempt in range(3))}
    runtime.layers["a-main-1"] = 4096
    log = node.logs / "ns_p-a_a/main/1.log"
    log.parent.mkdir(parents=True)
    log.write_text("12345")
    log.with_name("1.log.20260101-000000.gz").write_text("123")
    node.actor.ask(CollectGarbage())
    found = recorded(node, "ContainerRemoved", 2)
    assert {(one.involved.kind, one.involved.name, one.involved.uid, one.type) for one in found} == {
        ("Pod", "p-a", "a", "Normal")
    }
    first, second = sorted(one.message.partition(", created ")[0] for one in found)
    assert first == (
        "Removed dead container main (a-main-0) of an unknown number of bytes and 0 bytes of logs: over the limits"
    )
    assert second == "Removed dead container main (a-main-1) of 4096 bytes and 8 bytes of logs: over the limits"


@pytest.mark.needs("cgroups")
def test_each_sandbox_that_goes_is_an_event(node: Node, runtime: ListRuntime) -> None:
    node.leave("ghost")
    one = sandbox("ghost", ready=False)
    one.labels.update({"io.kubernetes.pod.name": "p-ghost", "io.kubernetes.pod.namespace": "ns"})
    runtime.sandboxes[one.id] = one
    node.actor.ask(CollectGarbage())
    (told,) = recorded(node, "SandboxRemoved")
    assert (told.involved.namespace, told.involved.name, told.involved.uid) == ("ns", "p-ghost", "ghost")
    assert told.message.startswith("Removed sandbox sandbox-ghos (attempt 0): its pod is gone, created ")


@pytest.mark.needs("cgroups")
def test_sandbox_with_a_task_that_containerd_lost_goes_with_its_shim(node: Node, runtime: ListRuntime) -> None:
    node.leave("ghost")
    one = sandbox_of_its_own("ghost")
    runtime.sandboxes[one.id] = one
    runtime.stuck, runtime.why_stuck = {one.id}, "cannot delete running task main: failed precondition"
    with shim_like(one.id) as shim, shim_like("sandbox-other") as other:
        node.actor.ask(CollectGarbage())
        assert shim.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    runtime.stuck.clear()
    node.actor.ask(CollectGarbage())
    assert not runtime.sandboxes


@pytest.mark.needs("cgroups")
def test_shim_of_a_sandbox_that_fails_otherwise_stays(node: Node, runtime: ListRuntime) -> None:
    node.leave("ghost")
    one = sandbox_of_its_own("ghost")
    runtime.sandboxes[one.id], runtime.stuck = one, {one.id}
    with shim_like(one.id) as shim:
        node.actor.ask(CollectGarbage())
        assert runtime.removed("RemovePodSandbox") == [one.id]
        assert shim.poll() is None


@pytest.mark.needs("cgroups")
def test_a_pass_tells_how_it_differs_from_the_plan(node: Node, runtime: ListRuntime) -> None:
    node.worker("a")
    runtime.containers = {one.id: one for one in (container("a", attempt) for attempt in range(3))}
    assert [one.id for one in node.actor.ask(PlanCollection()).victims] == ["a-main-0", "a-main-1"]
    runtime.stuck.add("a-main-0")
    del runtime.containers["a-main-1"]
    node.actor.ask(CollectGarbage())
    (told,) = recorded(node, "PlanChanged")
    assert "container a/main: was over the limits, is gone" in told.message


@pytest.mark.needs("cgroups")
def test_all_of_an_unknown_pod_goes_and_nothing_of_a_known_one(node: Node, runtime: ListRuntime) -> None:
    for uid in ("known", "ghost"):
        node.leave(uid)
        runtime.containers[f"{uid}-main-0"] = container(uid, 0)
        runtime.sandboxes[f"sandbox-{uid}"] = sandbox(uid, ready=False)
    node.worker("known", "terminated")
    node.sources_ready = False
    assert node.actor.ask(CollectGarbage()).containers == 0
    assert node.left() == everywhere("known", "ghost")
    node.sources_ready = True
    collected = node.actor.ask(CollectGarbage())
    assert (collected.containers, collected.sandboxes, collected.directories) == (1, 1, 2)
    assert node.left() == everywhere("known")
    assert runtime.removed("StopPodSandbox") == ["sandbox-ghost"]
    reclaimed = node.actor.ask(CollectGarbage(all_dead=True))
    assert (reclaimed.containers, reclaimed.sandboxes, reclaimed.directories) == (1, 1, 0)
    assert node.left() == everywhere("known")


_NO_RENAME = """
import os
from actors.container_gc import removal
def refused(*_):
    raise OSError(16, os.strerror(16))
removal.os = type("os", (), {**vars(os), "rename": staticmethod(refused)})
"""


def test_directory_that_stays_is_on_record_once(tmp_path: Path, runtime: ListRuntime) -> None:
    """The record has room for some thousand pods: a pod that fails each minute would push the others out."""
    node = Node(tmp_path, runtime.endpoint, prelude=ALONE + _NO_RENAME)
    (node.root / "pods/ghost").mkdir(parents=True)
    with node.actor:
        for _ in range(3):
            assert node.actor.ask(CollectGarbage()).directories == 0
        record = node.root / "nodevisor/removed-pods"
        assert record.read_text().split() == ["ghost"]


@pytest.mark.needs("cgroups")
def test_evicted_pods_keep_their_directory_only(node: Node, runtime: ListRuntime) -> None:
    for uid in ("evicted", "ending"):
        node.leave(uid)
        node.worker(uid, "terminated")
        runtime.containers[f"{uid}-main-0"] = container(uid, 0)
        runtime.sandboxes[f"sandbox-{uid}"] = sandbox(uid, ready=False)
        node.workers[uid] = replace(node.workers[uid], evicted=True, released=uid == "evicted")
    collected = node.actor.ask(CollectGarbage())
    assert (collected.containers, collected.sandboxes, collected.directories) == (1, 1, 1)
    assert list(runtime.sandboxes) == ["sandbox-ending"]
    both = everywhere("evicted", "ending")
    assert node.left() == both | {"logs": ["ending"], "links": ["ending"]}


@pytest.mark.needs("cgroups")
def test_volumes_of_a_pod_that_is_gone_are_taken_down_first(node: Node) -> None:
    node.leave("ghost", volume=True)
    node.unmounts = False
    assert node.actor.ask(CollectGarbage()).directories == 1  # the logs
    assert node.left()["pods"] == ["ghost"]
    node.unmounts = True
    assert node.actor.ask(CollectGarbage()).directories == 1
    assert node.left() == nowhere()


@pytest.mark.needs("cgroups")
def test_nothing_of_a_pod_that_gets_a_worker_soon_is_removed(node: Node) -> None:
    node.leave("ghost", volume=True)
    node.waiting = ("ghost",)
    for _ in range(2):
        assert node.actor.ask(CollectGarbage()).directories == 0
    assert node.left() == everywhere("ghost")
    node.waiting = ()
    node.actor.ask(CollectGarbage())
    assert node.left() == nowhere()


@pytest.mark.needs("cgroups")
def test_stuck_container_does_not_block_other_removals(node: Node, runtime: ListRuntime) -> None:
    for uid in ("a", "b"):
        node.leave(uid)
        runtime.containers[f"{uid}-main-0"] = container(uid, 0)
        runtime.sandboxes[f"sandbox-{uid}"] = sandbox(uid, ready=False)
    runtime.stuck = {"a-main-0"}
    collected = node.actor.ask(CollectGarbage())
    assert (collected.containers, collected.sandboxes) == (1, 1)
    assert list(runtime.sandboxes) == ["sandbox-a"], "it still has a container"
    assert node.left() == nowhere() | {"pods": ["a"]}, "its mark stays for as long as the runtime has something of it"
    runtime.stuck.clear()
    assert node.actor.ask(CollectGarbage()).containers == 1
    assert node.left() == nowhere()


@pytest.mark.needs("cgroups")
def test_pods_that_end_together_are_cleaned_up_in_one_pass(node: Node) -> None:
    uids = [f"u{number}" for number in range(50)]
    for uid in uids:
        node.leave(uid)
        node.worker(uid, "terminated", deleted=True)
    node.leave("live")
    node.worker("live")
    asked = len(node.actor.peers["pod_workers"].of(ListPodWorkers))
    for uid in uids:
        node.terminated(uid)
    wait_for(lambda: node.left()["pods"] == node.left()["cgroups"] == ["live"], 10, "all that ended is gone")
    state = node.actor.ask(Describe()).state
    assert 1 <= state["pod_passes"] <= 2
    requests = node.actor.peers["pod_workers"].of(ListPodWorkers)[asked:]
    assert len(requests) == state["pod_passes"]
    assert sorted(uid for request in requests for uid in request.uids) == sorted(uids), "it asks for no other pods"


@pytest.mark.needs("cgroups")
def test_ended_pods_directory_goes_at_once_and_its_logs_with_the_full_pass(node: Node) -> None:
    """Log shippers read the last lines until then."""
    node.leave("a")
    node.leave("b")
    node.worker("b")
    node.terminated("a")
    left = {"pods": ["b"], "cgroups": ["b"], "logs": ["a", "b"], "links": ["a", "b"]}
    wait_for(lambda: node.left()["pods"] == ["b"], 10, "it is gone, without a full pass")
    assert node.left() == left
    assert (node.links / f"p-a_ns_main-{'a' * 64}.log").read_text() == "x"
    assert node.actor.ask(Describe()).state["passes"] == 0
    node.actor.restart()
    node.actor.ask(CollectGarbage())
    assert node.left() == everywhere("b")


@pytest.mark.needs("cgroups")
def test_a_pod_that_came_back_meanwhile_is_left_alone(node: Node) -> None:
    node.leave("a")
    node.worker("a")  # a static pod keeps its UID
    node.terminated("a")
    wait_for(lambda: node.actor.ask(Describe()).state["pod_passes"] == 1, 10, "the pass")
    assert node.left() == everywhere("a")


@pytest.mark.needs("cgroups")
def test_full_pass_cleans_up_after_a_kill_before_the_pod_pass(tmp_path: Path, runtime: ListRuntime) -> None:
    node = Node(tmp_path, runtime.endpoint, prelude=NO_PASS)
    try:
        with node.actor:
            node.leave("a")
            node.terminated("a")
            node.actor.ask(Describe())  # it has been told
            node.actor.restart()
            assert node.left() == everywhere("a")
            node.actor.ask(CollectGarbage())
            assert node.left() == nowhere()
    finally:
        assert fs.remove(node.cgroup_root, hierarchy())


def test_dead_symlinks_go_unless_their_container_may_yet_write(node: Node, runtime: ListRuntime) -> None:
    node.worker("a")
    for letter, state in (("b", pb.CONTAINER_RUNNING), ("c", pb.CONTAINER_EXITED), ("d", pb.CONTAINER_CREATED)):
        entry = container("a", 0, state, name=letter)
        entry.id = letter * 64
        runtime.containers[entry.id] = entry
    for letter in "bcde":
        (node.links / f"p-a_ns_{letter}-{letter * 64}.log").symlink_to(node.logs / f"ns_p-a_a/{letter}/0.log")
    elsewhere = node.links / f"p-a_ns_f-{'f' * 64}.log"
    elsewhere.symlink_to("/nowhere/ns_p-a_a/0.log")
    foreign = node.links / f"p-a_ns_g-{'1' * 64}.log"
    foreign.symlink_to(node.logs / "ns_theirs_theirs/c/0.log")
    node.actor.ask(CollectGarbage())
    assert sorted(path.name[7] for path in node.links.iterdir()) == ["b", "d", "f", "g"]


class Theirs:
    """A pod of another agent: on the same logs, links, cgroup root and runtime, with no mark below our root."""

    def __init__(self, node: Node, runtime: ListRuntime, uid: str = "11111111-2222-3333-4444-555555555555") -> None:
        self.uid = uid
        self.cgroups = [Path(path) for path in hierarchy().paths(f"{node.cgroup_root}/kubepods/besteffort/pod{uid}")]
        fs.create(f"{node.cgroup_root}/kubepods/besteffort/pod{uid}", PodLimits(cpu_shares=2), hierarchy())
        self.process = subprocess.Popen(["sleep", "1000"])
        for path in self.cgroups:
            (path / "cgroup.procs").write_text(str(self.process.pid))
        self.log = node.logs / f"ns_theirs_{uid}" / "c/0.log"
        self.log.parent.mkdir(parents=True)
        self.log.write_text("x")
        self.trash = node.logs / f".removed-ns_old_{uid}"
        self.trash.mkdir()
        self.link = node.links / f"theirs_ns_c-{'9' * 64}.log"
        self.link.symlink_to(self.log)
        self.dead_link = node.links / f"theirs_ns_c-{'8' * 64}.log"
        self.dead_link.symlink_to(self.log.with_name("1.log"))
        runtime.sandboxes[f"sandbox-{uid}"] = sandbox(uid, ready=False)
        for attempt in range(3):
            runtime.containers[f"{uid}-main-{attempt}"] = container(uid, attempt)

    def is_whole(self, runtime: ListRuntime) -> bool:
        present = (*self.cgroups, self.log, self.trash, self.link)
        lives = [one for one in runtime.containers if one.startswith(self.uid)]
        return (
            self.process.poll() is None
            and all(path.exists() for path in present)
            and self.dead_link.is_symlink()
            and f"sandbox-{self.uid}" in runtime.sandboxes
            and len(lives) == 3
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.needs("cgroups")
def test_pod_without_our_mark_is_left_alone_and_logged_once(
    tmp_path: Path, runtime: ListRuntime, capfd: pytest.CaptureFixture[str]
) -> None:
    node = Node(tmp_path, runtime.endpoint)
    theirs = Theirs(node, runtime)
    try:
        with node.actor:
            node.leave("ghost")
            for _ in range(4):
                node.actor.ask(CollectGarbage(all_dead=True))
            assert theirs.is_whole(runtime)
            assert "ghost" not in node.left()["cgroups"]
            state = node.actor.ask(Describe()).state
        assert state["foreign"] == 1
        assert state["left_alone"] == [f"{theirs.uid} (logs, cgroup, runtime)"]
        assert capfd.readouterr().err.count("left alone") == 1
    finally:
        theirs.close()
        wait_for(lambda: fs.remove(node.cgroup_root, hierarchy()), 5, "its cgroup is gone")


@pytest.mark.needs("cgroups")
def test_take_over_ends_a_foreign_pod(tmp_path: Path, runtime: ListRuntime) -> None:
    node = Node(tmp_path, runtime.endpoint, take_over=True)
    theirs = Theirs(node, runtime)
    (node.logs / "lost+found").mkdir()
    try:
        with node.actor:
            assert node.actor.ask(CollectGarbage()).containers == 3
            node.actor.ask(CollectGarbage())
            assert theirs.process.wait(10) == -signal.SIGKILL, "its cgroup was busy twice"
            wait_for(lambda: node.actor.ask(CollectGarbage()) and not node.left()["cgroups"], 10, "the cgroup is gone")
            assert not runtime.sandboxes
            assert os.listdir(node.logs) == ["lost+found"], "logs alone are no reason to take something over"
    finally:
        theirs.close()
        assert fs.remove(node.cgroup_root, hierarchy())


@pytest.mark.needs("cgroups")
def test_recorded_pod_is_ours_without_its_directory(node: Node, runtime: ListRuntime) -> None:
    node.leave("a")
    node.actor.ask(CollectGarbage())
    assert node.left() == nowhere()
    late = Theirs(node, runtime, "a")  # a sandbox that the runtime finished after its caller had been killed
    try:
        assert node.actor.ask(CollectGarbage()).containers == 3
        node.actor.ask(CollectGarbage())
        assert late.process.wait(10) == -signal.SIGKILL
        wait_for(lambda: node.actor.ask(CollectGarbage()) and node.left() == nowhere(), 10, "all of it is gone")
    finally:
        late.close()


@pytest.mark.needs("cgroups")
def test_directory_stays_while_a_worker_needs_it(node: Node) -> None:
    node.leave("ending")
    node.worker("ending", "terminated", deleted=True)
    node.workers["ending"] = msgspec.structs.replace(node.workers["ending"], released=False)
    node.terminated("ending")
    node.actor.ask(CollectGarbage())
    assert node.left()["pods"] == ["ending"], "it may have the IDs of a process that runs"
    del node.workers["ending"]
    node.terminated("ending")
    wait_for(lambda: not node.left()["pods"], 10, "its directory is gone")


@pytest.mark.needs("cgroups")
def test_busy_cgroup_stays_ours_after_its_pods_directory_is_gone(node: Node) -> None:
    node.leave("busy")
    process = subprocess.Popen(["sleep", "1000"])
    try:
        for path in hierarchy().paths(f"{node.cgroup_root}/kubepods/besteffort/podbusy"):
            Path(path, "cgroup.procs").write_text(str(process.pid))
        node.worker("busy", "terminated", deleted=True)
        node.terminated("busy")
        wait_for(lambda: not node.left()["pods"], 10, "its directory is gone")
        assert node.left()["cgroups"] == ["busy"]
        node.workers.clear()
        node.actor.restart()  # all that it knew is gone
        node.actor.ask(CollectGarbage())
        assert process.poll() is None, "not at first sight"
        node.actor.ask(CollectGarbage())
        assert process.wait(10) == -signal.SIGKILL
        wait_for(lambda: node.actor.ask(CollectGarbage()) and node.left() == nowhere(), 10, "all of it is gone")
    finally:
        process.kill()
        process.wait()


@pytest.mark.needs("cgroups")
def test_without_runtime_or_pod_workers_nothing_is_removed(tmp_path: Path) -> None:
    node = Node(tmp_path, f"unix://{tmp_path}/none.sock", container_gc_period_s=0.05)
    try:
        with node.actor:
            node.leave("ghost")
            with pytest.raises(Refused) as caught:
                node.actor.ask(CollectGarbage())
            assert caught.value.reason == "ContainerGCFailed"
            wait_for(lambda: node.actor.ask(Describe()).state["passes"] > 3, 10, "it goes on trying")
            assert node.left() == everywhere("ghost")
            recorded(node, "ContainerGCFailed")
            said = {(one.involved.kind, one.type, one.reason) for one in node.actor.peers["events"].of(RecordEvent)}
            assert said == {("Node", "Warning", "ContainerGCFailed")}
    finally:
        assert fs.remove(node.cgroup_root, hierarchy())


def test_on_containerd(containerd: ContainerdInstance, cri: Cri, tmp_path: Path) -> None:
    node = Node(tmp_path, containerd.endpoint)
    config = sandbox_config("ghost")
    uid = config.metadata.uid
    config.labels["io.kubernetes.pod.uid"] = uid
    identity = cri.run_pod_sandbox(config).result()
    for attempt in range(3):
        wanted = container_config(["true"])
        wanted.metadata.attempt = attempt
        wanted.labels.update({"io.kubernetes.pod.uid": uid, "io.kubernetes.container.name": "main"})
        one = cri.create_container(identity, wanted, config).result()
        cri.start_container(one).result()
        cri.stop_container(one, 0).result()
    try:
        with node.actor:
            (node.root / "pods" / uid).mkdir(parents=True)
            node.worker(uid)
            assert node.actor.ask(CollectGarbage()).containers == 2
            assert [one.metadata.attempt for one in cri.list_containers().result()] == [2]
            cri.stop_pod_sandbox(identity).result()
            node.workers.clear()
            collected = node.actor.ask(CollectGarbage())
            assert (collected.containers, collected.sandboxes) == (1, 1)
            assert not cri.list_pod_sandbox().result()
            began = time.monotonic()
            with Stalls() as machine:
                node.actor.ask(CollectGarbage())
            assert time.monotonic() - began < 1 + machine.longest_s
    finally:
        fs.remove(node.cgroup_root, hierarchy())


@pytest.mark.needs("cgroups")
def test_deleted_log_of_a_running_container_is_opened_again(tmp_path: Path, runtime: ListRuntime) -> None:
    often = {"container_gc_period_s": 0.2, "container_log_monitor_interval_s": 0.1}
    node = Node(tmp_path, runtime.endpoint, prelude="", **often)
    try:
        node.worker("a")
        node.leave("a")
        (node.logs / "ns_p-a_a/main/1.log").write_text("x")
        runtime.containers = {one.id: one for one in (container("a", 0), container("a", 1, pb.CONTAINER_RUNNING))}
        with node.actor:
            wait_for(lambda: node.actor.ask(Describe()).state["passes"], 10, "a pass")
            assert not runtime.removed("ReopenContainerLog")
            (node.logs / "ns_p-a_a/main/1.log").unlink()
            wait_for(lambda: runtime.removed("ReopenContainerLog"), 10, "its log is opened again")
            assert set(runtime.removed("ReopenContainerLog")) == {"a-main-1"}
    finally:
        assert fs.remove(node.cgroup_root, hierarchy())
