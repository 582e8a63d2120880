"""A full pass removes containers over the limits and everything of pods that are gone, and nothing else.

The runtime keeps lists only, or is containerd where marked.
"""

import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cri.client import Cri
from proto.agent.actor import Describe
from proto.cri import api_pb2 as pb
from proto.node.container_gc import CollectGarbage
from proto.pods.events import RecordEvent
from proto.wire.errors import Refused
from tests.container_gc.node import ALONE, Node, container, everywhere, nowhere, recorded, sandbox
from tests.containerd import ContainerdInstance
from tests.containerd.pods import container_config, sandbox_config
from tests.harness import Stalls, wait_for
from tests.image_gc.runtime import ListRuntime


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
