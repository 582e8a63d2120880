"""Pods without our mark are left alone, unless the agent is to take them over. Recorded pods are ours."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from proto.agent.actor import Describe
from proto.node.container_gc import CollectGarbage
from tests.container_gc.node import Node, container, nowhere, sandbox
from tests.harness import wait_for
from tests.image_gc.runtime import ListRuntime


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
