"""Another agent's pods survive ours, however it is started, and ours cleans up after its own all the same.

NODEVISOR_FOREIGN_S: for how long ours runs beside them; without it, for some passes of its garbage collection.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from proto.agent.actor import Describe
from proto.cri import api_pb2 as pb
from proto.node import container_gc, image_gc
from proto.node.runtime import EMBEDDED
from proto.pods.config import ListSources
from proto.pods.status import ListPods
from proto.wire.errors import ActorError, ProtocolError
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, is_ready, pod
from tests.containerd import BUSYBOX, ContainerdInstance
from tests.containerd.images import busybox, write_archive
from tests.containerd.pods import container_config, sandbox_config
from tests.foreign.machine import Machine, machine
from tests.foreign.theirs import Theirs, theirs
from tests.harness import stop_process, wait_for

BESIDE_S = float(os.environ.get("NODEVISOR_FOREIGN_S", "0"))
pytestmark = [
    pytest.mark.needs("root", "mounts", "networks", "cgroups", "ip"),
    pytest.mark.timeout(300 + 4 * BESIDE_S),
]
PASSES = 4
"""A cgroup that is busy in one pass is killed in the next."""


def passes(run_dir: Path, found: Callable[[], list[str]]) -> None:
    """Have container_gc and image_gc look, as the disk's filling up would; nothing of theirs is missing meanwhile."""
    with Client(run_dir) as client:
        for _ in range(PASSES):
            client.ask("container_gc", container_gc.CollectGarbage(all_dead=True), 60)
            client.ask("image_gc", image_gc.DeleteUnusedImages(), 60)
            assert found() == []
        deadline = time.monotonic() + BESIDE_S
        while time.monotonic() < deadline:
            time.sleep(1)  # the time itself is what is asked for
            assert found() == []


def described(run_dir: Path, name: str) -> dict[str, Any]:
    with Client(run_dir) as client:
        return client.ask(name, Describe(), 10).state


def ready_pods(run_dir: Path) -> list[str]:
    """Names of pods that are ready."""
    with contextlib.suppress(ActorError, ProtocolError), Client(run_dir) as client:
        return [
            one.metadata.name
            for one in client.ask("status", ListPods(), 20).pods
            if one.status is not None
            and any(found.type == "Ready" and found.status == "True" for found in one.status.conditions)
        ]
    return []


# On a machine of its own, with every directory at its default


@contextmanager
def beside() -> Iterator[tuple[Machine, Theirs]]:
    """A machine with a foreign pod, in the places where the default directories of ours are."""
    with (
        machine() as node,
        theirs(
            node.directory / "theirs", node.cgroup, node.log / "pods", node.log / "containers", node.netns
        ) as foreign,
    ):
        yield node, foreign


def images(node: Machine) -> Path:
    directory = node.directory / "images"
    directory.mkdir(exist_ok=True)
    write_archive(directory / "images.tar", [busybox()])
    return directory


def manifest(node: Machine) -> Path:
    directory = node.directory / "manifests"
    directory.mkdir()
    volume = {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}
    (directory / "ours.yaml").write_text(yaml.safe_dump(pod("ours", **volume)))
    return directory


def ours_on(node: Machine) -> list[str]:
    """Return the directories, logs and cgroups of our pods."""
    own = [str(path) for path in (node.root / "pods").glob("*")]
    own += [str(path) for path in (node.log / "pods").glob("default_ours-*")]
    for top in Path("/sys/fs/cgroup").glob("*"):
        own += [str(path) for path in (top / node.cgroup.strip("/")).glob("kubepods/*/pod*")]
    return own


def test_standalone_with_its_own_runtime_and_default_directories() -> None:
    with beside() as (node, foreign):
        manifests, log, run_dir = manifest(node), node.directory / "agent.log", node.run / "nodevisor"
        command = [sys.executable, "-m", "supervisor", "start", "--pod-manifest-path", manifests]
        command += ["--container-runtime-endpoint", EMBEDDED, "--images-dir", images(node), "--tune-kernel=false"]
        process = node.start(command, log)
        foreign.mountinfo = Path(f"/proc/{process.pid}/mountinfo")
        wait_for(lambda: any(one.startswith("ours-") for one in ready_pods(run_dir)), 60, f"ours runs; log: {log}")
        there = [one for one in ours_on(node) if foreign.uid not in one]
        assert len(there) > 2, there
        foreign.enter()
        passes(run_dir, foreign.missing)
        state = described(run_dir, "container_gc")
        assert any(foreign.uid in one for one in state["left_alone"]), state
        assert log.read_text().count(foreign.uid) == 1, "said once"
        (manifests / "ours.yaml").unlink()
        wait_for(
            lambda: not [one for one in ours_on(node) if foreign.uid not in one and "empty" not in one],
            60,
            "nothing of ours is left",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        foreign.mountinfo = Path("/proc/self/mountinfo")
        assert foreign.missing() == []


def session_of(text: str) -> Path | None:
    found = re.search(r"on \d+ manifests?, in (\S+):", text)
    return Path(found[1]) if found else None


@contextmanager
def running(node: Machine, command: list[str | Path]) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """A session whose pods are settled: the process, its directory, its output."""
    log = node.directory / f"out-{time.monotonic_ns()}"
    process = node.start(command, log, TMPDIR=str(node.directory))
    wait_for(lambda: "All pods are ready" in log.read_text() or process.poll() is not None, 120, f"ready; log: {log}")
    directory = session_of(log.read_text())
    assert directory is not None, log.read_text()
    yield process, directory, log


def own_cgroups(node: Machine) -> list[str]:
    return [str(one) for top in Path("/sys/fs/cgroup").glob("*") for one in (top / node.cgroup[1:]).glob("nodevisor-*")]


def bridges() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").glob("nv*"))


def test_supervisor_run_has_its_own_cgroup_root_and_removes_it() -> None:
    with beside() as (node, foreign):
        foreign.enter()
        run = [sys.executable, "-m", "supervisor", "run", manifest(node), "--container-runtime-endpoint", EMBEDDED]
        with running(node, [*run, "--images-dir", images(node)]) as (process, directory, log):
            foreign.mountinfo = Path(f"/proc/{process.pid}/mountinfo")
            assert {Path(one).name for one in own_cgroups(node)} == {directory.name}
            passes(directory / "run", foreign.missing)
            assert described(directory / "run", "container_gc")["foreign"] == 0, "it does not even see them"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0, log.read_text()
        assert not directory.exists()
        assert own_cgroups(node) == []
        foreign.mountinfo = Path("/proc/self/mountinfo")
        assert foreign.missing() == []


def test_the_next_run_clears_a_killed_one_and_nothing_else() -> None:
    with beside() as (node, foreign):
        foreign.enter()
        run = [sys.executable, "-m", "supervisor", "run", manifest(node), "--container-runtime-endpoint", EMBEDDED]
        run += ["--images-dir", images(node)]
        with running(node, run) as (killed, left, _), running(node, run) as (live, stays, _):
            killed.kill()
            killed.wait()
            assert own_cgroups(node)
            with running(node, run) as (process, directory, log):
                assert f"Ending what an earlier session left in {left}" in log.read_text()
                assert not left.exists()
                assert {Path(one).name for one in own_cgroups(node)} == {stays.name, directory.name}
                assert live.poll() is None
                assert ready_pods(stays / "run"), "the pods of a session that lives run on"
                for one in (process, live):
                    one.send_signal(signal.SIGINT)
                for one in (process, live):
                    assert one.wait(60) == 0
        assert own_cgroups(node) == []
        assert not list(node.run.glob("nodevisor-sessions/*"))
        assert foreign.missing() == []


def test_make_run_beside_them() -> None:
    with beside() as (node, foreign):
        foreign.enter()
        command = [sys.executable, "-m", "tests.run_samples", sys.executable, "-m", "supervisor", "run"]
        with running(node, command) as (process, directory, log):
            foreign.mountinfo = Path(f"/proc/{process.pid}/mountinfo")
            passes(directory / "run", foreign.missing)
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0, log.read_text()
        assert not directory.exists()
        assert own_cgroups(node) == []
        foreign.mountinfo = Path("/proc/self/mountinfo")
        assert foreign.missing() == []


# On a container runtime that has their pods, too


def named(directory: Path, uid: str) -> list[str]:
    """All below a directory with the UID in its name; what goes meanwhile is no error."""
    return [path for path, below, files in os.walk(directory) if any(uid in name for name in (*below, *files))]


def collected(run_dir: Path) -> bool:
    """A pass of container_gc, which removes logs, without the wait for the one of each minute."""
    with Client(run_dir) as client:
        client.ask("container_gc", container_gc.CollectGarbage(), 60)
    return True


class Sandboxes:
    """Foreign pods in the runtime: a running and an ended one."""

    def __init__(self, containerd: ContainerdInstance, foreign: Theirs, directory: Path) -> None:
        self.cri = containerd.cri
        self.ids: set[str] = set()
        for name, uid in (("running", foreign.uid), ("ended", "ended-theirs")):
            identity = {"name": name, "namespace": "default", "uid": uid}
            config = sandbox_config(name, labels={f"io.kubernetes.pod.{key}": one for key, one in identity.items()})
            config.metadata.uid = uid
            config.log_directory = str(directory / f"default_{name}_{uid}")
            sandbox = self.cri.run_pod_sandbox(config).result()
            self.ids.add(sandbox)
            for attempt in range(3):
                last = name == "running" and attempt == 2
                wanted = container_config(["sleep", "100000"] if last else ["true"], log_path=f"main-{attempt}.log")
                wanted.metadata.attempt = attempt
                wanted.labels.update(dict(config.labels) | {"io.kubernetes.container.name": "main"})
                container = self.cri.create_container(sandbox, wanted, config).result()
                self.cri.start_container(container).result()
                if not last:
                    wait_for(lambda id_=container: self._has_ended(id_), 30, f"container {container} ends by itself")
                self.ids.add(container)
            if name == "ended":
                self.cri.stop_pod_sandbox(sandbox).result()

    def _has_ended(self, container: str) -> bool:
        return self.cri.container_status(container).result().status.state == pb.CONTAINER_EXITED

    def missing(self) -> list[str]:
        sandboxes = {one.id: one for one in self.cri.list_pod_sandbox().result()}
        containers = {one.id: one for one in self.cri.list_containers().result()}
        missing = sorted(self.ids - sandboxes.keys() - containers.keys())
        running = [one for one in self.ids & containers.keys() if containers[one].state == pb.CONTAINER_RUNNING]
        ready = [one for one in self.ids & sandboxes.keys() if sandboxes[one].state == pb.SANDBOX_READY]
        if (len(running), len(ready)) != (1, 1):
            missing.append("what ran has ended")
        if self.cri.image_status(BUSYBOX).result() is None:
            missing.append("the image")
        return missing


@contextmanager
def shared(containerd: ContainerdInstance) -> Iterator[tuple[Agent, Callable[[], list[str]], Theirs]]:
    """An agent that is to be started, with a foreign pod in its cgroup root, log directories and runtime."""
    with closing(Agent(containerd)) as agent:
        logs, links = agent.dir / "logs", agent.dir / "container-logs"
        with theirs(agent.dir / "theirs", f"/{agent.dir.name}", logs, links) as foreign:
            sandboxes = Sandboxes(containerd, foreign, logs)
            yield agent, lambda: foreign.missing() + sandboxes.missing(), foreign
            if agent.process is not None and agent.process.poll() is None:
                agent.stop()


def test_start_with_static_pods_on_a_runtime_that_is_shared(containerd: ContainerdInstance) -> None:
    with shared(containerd) as (agent, missing, foreign):
        agent.start()
        foreign.enter()
        agent.write("ours", pod("ours"))
        wait_for(lambda: is_ready(agent.pod("ours")), 30, f"ours runs; log: {agent.log}")
        passes(agent.run_dir, missing)
        assert agent.log.read_text().count(f"default/running ({foreign.uid})") == 1, "pod_workers says it once"
        uid = agent.pod("ours")["metadata"]["uid"]
        agent.kill_actors("pod_workers", "container_gc", "pleg")
        passes(agent.run_dir, missing)
        (agent.manifests / "ours.yaml").unlink()
        wait_for(lambda: not agent.pods(), 30, "ours has ended")
        wait_for(lambda: collected(agent.run_dir) and not named(agent.dir, uid), 30, "nothing of it is left")
        agent.kill()
        foreign.leave()
        agent.start()
        foreign.enter()
        passes(agent.run_dir, missing)


def test_a_manifest_that_names_the_uid_of_their_pod_is_not_begun(containerd: ContainerdInstance) -> None:
    """As `kubectl get pod -o yaml` writes it on the node where that pod runs."""
    with shared(containerd) as (agent, missing, foreign):
        exported = pod("running", volumes=[{"name": "v", "emptyDir": {}}])
        exported["metadata"]["uid"] = foreign.uid
        agent.write("exported", exported)
        agent.start()
        foreign.enter()
        agent.write("ours", pod("ours"))
        wait_for(lambda: is_ready(agent.pod("ours")), 30, f"ours runs; log: {agent.log}")
        why = described(agent.run_dir, "pod_workers")["not_begun"]["default/running-vm"]
        assert "remove metadata.uid" in why
        passes(agent.run_dir, missing)
        (agent.manifests / "exported.yaml").unlink()
        passes(agent.run_dir, missing)
        del exported["metadata"]["uid"]
        agent.write("exported", exported)
        wait_for(lambda: is_ready(agent.pod("running")), 30, "with a UID of its own it runs")
        passes(agent.run_dir, missing)


def test_supervisor_run_on_a_runtime_that_is_shared(containerd: ContainerdInstance) -> None:
    with shared(containerd) as (agent, missing, foreign):
        foreign.enter()
        agent.write("ours", pod("ours"))
        command = [sys.executable, "-m", "supervisor", "run", agent.manifests]
        command += ["--container-runtime-endpoint", containerd.endpoint]
        own = {"TMPDIR": str(agent.dir), "NODEVISOR_SESSIONS_DIR": str(agent.dir / "sessions")}
        with agent.log.open("ab") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env={**os.environ, **own})
        try:
            wait_for(lambda: "All pods are ready" in agent.log.read_text(), 60, f"ready; log: {agent.log}")
            directory = session_of(agent.log.read_text())
            assert directory is not None
            passes(directory / "run", missing)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0, agent.log.read_text()
        finally:
            process.kill()
            process.wait()
        assert not directory.exists()
        assert not list(Path("/sys/fs/cgroup").glob(f"*/{directory.name}"))
        assert missing() == []


def test_run_once_on_a_runtime_that_is_shared(containerd: ContainerdInstance) -> None:
    with shared(containerd) as (agent, missing, foreign):
        go = agent.dir / "go"
        go.mkdir()
        probe = {"exec": {"command": ["test", "-e", "/go/on"]}, "periodSeconds": 1}
        mount = {"name": "go", "mountPath": "/go"}
        volume = {"name": "go", "hostPath": {"path": str(go)}}
        agent.write("ours", pod("ours", container("c", readinessProbe=probe, volumeMounts=[mount]), volumes=[volume]))
        agent.start("--run-once", f"--run-once-timeout={300 + BESIDE_S:.0f}s", wait=False)
        assert agent.process is not None
        wait_for((agent.run_dir / "control.sock").exists, 60, "it has started")
        foreign.enter()
        wait_for(lambda: "ours-vm/c" in agent.running().values(), 60, "its pod runs")
        passes(agent.run_dir, missing)
        (go / "on").touch()
        assert agent.process.wait(60) == 0, agent.log.read_text()
        assert missing() == []


def test_late_sandbox_of_a_removed_pod_is_ended_after_a_kill(
    containerd: ContainerdInstance,
) -> None:
    """A sandbox that the runtime finishes after its caller was killed and the pod's directory is gone."""
    with shared(containerd) as (agent, missing, _):
        agent.start()
        agent.write("ours", pod("ours"))
        wait_for(lambda: is_ready(agent.pod("ours")), 30, f"ours runs; log: {agent.log}")
        uid = agent.pod("ours")["metadata"]["uid"]
        (agent.manifests / "ours.yaml").unlink()
        wait_for(lambda: not (agent.root_dir / "pods" / uid).exists(), 30, "its directory is gone")
        agent.kill()
        identity = {"name": "ours-vm", "namespace": "default", "uid": uid}
        config = sandbox_config("ours-vm", labels={f"io.kubernetes.pod.{key}": one for key, one in identity.items()})
        config.metadata.uid = uid
        late = containerd.cri.run_pod_sandbox(config).result()
        agent.start()
        wait_for(lambda: late not in agent.sandboxes(), 30, "it is ended")
        assert missing() == []


def test_pods_without_marks_are_reported_until_a_source_has_them(containerd: ContainerdInstance) -> None:
    """The supervisor keeps running: a new one may refuse to start."""
    with closing(Agent(containerd)) as agent:
        agent.leave_stopped()
        agent.start()
        agent.write("wanted", pod("wanted"))
        agent.write("unwanted", pod("unwanted"))
        wait_for(lambda: all(is_ready(agent.pod(name)) for name in ("wanted", "unwanted")), 30, "both run")
        before = agent.running()
        stop_process(agent.rows()["pod_workers"]["pid"])
        (agent.manifests / "unwanted.yaml").unlink()
        with Client(agent.run_dir) as client:
            wait_for(
                lambda: client.ask("config", ListSources(), 5).pods == {"file": ("default/wanted-vm",)}, 10, "noted"
            )
        lost = [agent.root_dir / name for name in ("pods", "allocated_pods_state", "actuated_pods_state")]
        subprocess.run(["rm", "-rf", *lost], check=True)
        agent.kill_actors("pod_workers")
        wait_for(lambda: is_ready(agent.pod("wanted")), 30, "a pod that a source wants is ours")
        wait_for((agent.root_dir / "pods" / agent.pod("wanted")["metadata"]["uid"]).is_dir, 10, "and marked again")
        passes(agent.run_dir, lambda: sorted(before.keys() - agent.running().keys()))
        wait_for(lambda: "unwanted-vm" in " ".join(described(agent.run_dir, "pod_workers")["left_alone"]), 30)
        agent.write("unwanted", pod("unwanted"))
        wait_for(lambda: is_ready(agent.pod("unwanted")), 30, "wanted again, it is taken up as it runs")
        assert agent.running() == before
        assert described(agent.run_dir, "pod_workers")["left_alone"] == []
