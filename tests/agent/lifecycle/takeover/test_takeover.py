"""A node changes from the kubelet to us and back: what one has made is what the other takes for its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from google.protobuf import json_format
from msgspec.structs import replace

from actors.config.defaulting.defaults import default_pod
from actors.config.pods import static_pods
from proto.cri import api_pb2 as pb
from proto.v1 import Pod, from_dict
from tests.agent.agent import SLEEP, Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.agent.lifecycle.takeover.kubelet import BUSYBOX, Kubelet, fnv_hash
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

SEEN = "2026-11-20T13:34:32.541790034Z"
VOLUME = {"volumes": [{"name": "v", "emptyDir": {}}]}
MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
PROBE = {"exec": {"command": ["test", "-e", "/v/kept"]}, "periodSeconds": 1, "timeoutSeconds": 10}
MANIFEST = pod("static", container("c"))

API_PODS = {
    "web": pod("web", container("c", readinessProbe=PROBE, **MOUNT), **VOLUME),
    "inits": pod("inits", container("c"), initContainers=[container("i", "exit 0"), container("j", "exit 0")]),
    "between": pod("between", container("c"), initContainers=[container("i", "exit 0"), container("j", "exit 0")]),
    "changed": pod("changed", container("c"), container("d")),
    "crashing": pod("crashing", container("c", "exit 3")),
    "sided": pod("sided", container("c"), initContainers=[container("s", restartPolicy="Always")]),
    "starting": pod("starting", container("c"), initContainers=[container("i")]),
    "failed": pod("failed", container("c", "exit 3"), restartPolicy="Never"),
    "done": pod("done", container("c", "exit 0"), restartPolicy="Never"),
}


def api_pod(name: str) -> Pod:
    """The pod as the kubelet knew it, with the API's UID."""
    given = default_pod(from_dict(Pod, API_PODS[name]))
    uid = f"5a1ea0a8-649c-4e2b-b55d-{list(API_PODS).index(name):012}"
    meta = replace(given.metadata, namespace="default", uid=uid)
    return static_pods.mark_seen(replace(given, metadata=meta), "api", SEEN)


class Node:
    """A node with the kubelet's pods, and the agent that was started afterwards."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.kubelet = Kubelet(agent)
        self.sandboxes: dict[str, str] = {}
        self.containers: dict[str, str] = {}
        self._run_static()
        for name in API_PODS:
            self.sandboxes[name] = self.kubelet.run_sandbox(api_pod(name))
        volume = self.kubelet.pod_directory(api_pod("web")) / "volumes/kubernetes.io~empty-dir/v"
        (volume / "kept").write_text("by the kubelet")
        self._life("web", "c", 2)
        os.kill(self.pid("web/c"), signal.SIGKILL)
        self._life("web", "c", 3)
        for name in "ij":
            self._life("inits", name, end=True)
        self._life("inits", "c")
        self._life("between", "i", end=True)
        self._life("changed", "c")
        self._life("changed", "d", 1)
        self._life("crashing", "c", 4, end=True)
        self._life("crashing", "c", 5, end=True)
        self._life("sided", "s", 1)
        self._life("sided", "c")
        self._life("starting", "i")
        self._life("failed", "c", end=True)
        self._life("done", "c", end=True)
        nobody = replace(api_pod("web"), metadata=replace(api_pod("web").metadata, name="nobody", uid="nobody-uid"))
        self.sandboxes["nobody"] = self.kubelet.run_sandbox(nobody)
        self.containers["nobody/c"] = self.kubelet.run(nobody, self.sandboxes["nobody"], "c")
        self.running = agent.running()

    def _run_static(self) -> None:
        path = self.agent.write("static", MANIFEST)
        data = path.read_bytes()
        found = static_pods.load(str(path), data, self.agent.node).pod
        self.static = static_pods.mark_seen(found, "file", SEEN)
        self.sandboxes["static"] = self.kubelet.run_sandbox(self.static)
        self.containers["static/c"] = self.kubelet.run(self.static, self.sandboxes["static"], "c", 7)

    def _life(self, name: str, of: str, restarts: int = 0, *, end: bool = False) -> None:
        identity = self.kubelet.run(api_pod(name), self.sandboxes[name], of, restarts, end=end)
        self.containers[f"{name}/{of}"] = identity

    def pid(self, name: str) -> int:
        answer = self.agent.containerd.cri.container_status(self.containers[name], verbose=True).result()
        return int(json.loads(answer.info["info"])["pid"])


@pytest.fixture(scope="module")
def taken_over(containerd: ContainerdInstance) -> Iterator[tuple[Node, ApiSource]]:
    with ExitStack() as stack:
        agent = stack.enter_context(closing(Agent(containerd, api=True)))
        node = Node(agent)
        source = stack.enter_context(closing(ApiSource(agent)))
        for name in API_PODS:
            added = api_pod(name)
            if name == "changed":
                first, second = added.spec.containers
                other = replace(first, image=f"{BUSYBOX.removesuffix(':latest')}:v2")
                added = replace(added, spec=replace(added.spec, containers=(other, second)))
            source.add(added)
        agent.start()
        source.wait_ready("web", "inits", "between", "sided", "static-vm", timeout_s=60)
        for name, of in (("changed", "d"), ("starting", "i")):
            wait_for(lambda name=name, of=of: runs(source, name, of), 30, f"{of} of {name} is seen to run")
        wait_for(lambda: all("c" in statuses(source, name) for name in API_PODS), 30, "every pod is shown")
        yield node, source


def runs(source: ApiSource, name: str, of: str) -> bool:
    found = source.status(name)
    return found is not None and of in (known := _by_name(found)) and known[of].state.running is not None


def statuses(source: ApiSource, name: str) -> dict[str, Any]:
    """By container; empty while the pod is not shown."""
    found = source.status(name)
    return _by_name(found) if found is not None else {}


def _by_name(pod: Pod) -> dict[str, Any]:
    return {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}


def test_the_hash_is_the_published_one():
    assert fnv_hash("c", "busybox") == "ad819b5c"
    assert fnv_hash("web", BUSYBOX) == "90b33c84"


def test_running_pods_are_taken_over_with_their_ids_and_counts(taken_over):
    node, source = taken_over
    expected = [("web", "c", 3), ("static-vm", "c", 7), ("inits", "c", 0), ("changed", "d", 1), ("sided", "c", 0)]
    for name, of, count in [*expected, ("sided", "s", 1), ("starting", "i", 0)]:
        status = statuses(source, name)[of]
        key = f"{name.removesuffix('-vm')}/{of}"
        assert status.container_id == f"containerd://{node.containers[key]}"
        assert status.restart_count == count
        assert status.state.running is not None
    last = statuses(source, "web")["c"].last_state.terminated
    assert (last.exit_code, last.reason) == (137, "Error")
    assert source.status("static-vm").metadata.uid == node.static.metadata.uid
    sandboxes = set(node.agent.sandboxes())
    assert {one for name, one in node.sandboxes.items() if name != "nobody"} <= sandboxes


def test_files_on_disk_are_used_again(taken_over):
    node, source = taken_over
    directory = node.kubelet.pod_directory(api_pod("web"))
    assert (directory / "volumes/kubernetes.io~empty-dir/v/kept").read_text() == "by the kubelet"
    assert source.condition("web", "Ready") == "True"  # its probe reads that file
    assert node.agent.command("logs", "web", check=False).returncode == 0


def test_init_containers_that_are_done_are_not_run_again(taken_over):
    node, source = taken_over
    for name, done in (("inits", "ij"), ("between", "i")):
        for one in done:
            status = statuses(source, name)[one]
            assert status.container_id == f"containerd://{node.containers[f'{name}/{one}']}"
            assert status.state.terminated.reason == "Completed"
            assert status.restart_count == 0
    assert statuses(source, "between")["j"].state.terminated.exit_code == 0


def test_a_changed_image_restarts_its_container_alone(taken_over):
    node, source = taken_over

    def replaced() -> bool:
        identity = statuses(source, "changed")["c"].container_id
        waiting = statuses(source, "changed")["c"].state.waiting
        return identity != f"containerd://{node.containers['changed/c']}" or (
            waiting is not None and waiting.reason in ("ErrImagePull", "ImagePullBackOff")
        )

    wait_for(replaced, 30, "the old one is ended for an image that is not there")
    assert node.containers["changed/c"] not in node.agent.running()
    assert node.containers["changed/d"] in node.agent.running()
    assert statuses(source, "changed")["d"].restart_count == 1


def test_a_crash_loop_goes_on_counting(taken_over):
    _, source = taken_over
    wait_for(lambda: statuses(source, "crashing")["c"].restart_count >= 6, 30, "started again")
    last = statuses(source, "crashing")["c"]
    assert (last.last_state.terminated or last.state.terminated).exit_code == 3


@pytest.mark.parametrize(("name", "phase"), [("done", "Succeeded"), ("failed", "Failed")])
def test_a_pod_that_is_done_stays_done(taken_over, name, phase):
    node, source = taken_over
    done = source.wait_phase(name, phase)
    assert done.status.container_statuses[0].container_id == f"containerd://{node.containers[f'{name}/c']}"
    assert done.status.container_statuses[0].restart_count == 0


def test_an_init_container_that_runs_is_waited_for(taken_over):
    node, source = taken_over
    assert source.status("starting").status.phase == "Pending"
    os.kill(node.pid("starting/i"), signal.SIGTERM)  # its shell leaves with 143 then: it is tried again
    wait_for(lambda: statuses(source, "starting")["i"].restart_count == 1, 20, "tried again")


def test_unwanted_pods_are_ended(taken_over):
    node, _ = taken_over
    wait_for(lambda: node.sandboxes["nobody"] not in node.agent.sandboxes(), 30, "gone")
    assert node.containers["nobody/c"] not in node.agent.containers()
    wait_for(lambda: not (node.agent.root_dir / "pods/nobody-uid").exists(), 90, "its directory, too")


def test_taken_over_containers_are_watched_and_restarted(taken_over):
    node, source = taken_over
    os.kill(node.pid("static/c"), signal.SIGKILL)
    wait_for(lambda: statuses(source, "static-vm")["c"].restart_count == 8, 20, "restarted and counted on")
    wait_for(lambda: source.condition("static-vm", "Ready") == "True", 20, "ready again")
    assert len([one for one in node.agent.running().values() if one == "static-vm/c"]) == 1


def stored(agent: Agent, sandbox: str, identity: str = "") -> dict[str, Any]:
    """Return containerd's stored request, in its own JSON."""
    cri = agent.containerd.cri
    if identity:
        info = cri.container_status(identity, verbose=True).result().info["info"]
    else:
        info = cri.pod_sandbox_status(sandbox, verbose=True).result().info["info"]
    found: dict[str, Any] = json.loads(info)["config"]
    return found


@pytest.mark.skipif(
    os.environ.get("NODEVISOR_TEST_RUNTIME") == "embedded", reason="only containerd's status has the stored request"
)
def test_containers_are_made_as_by_the_kubelet(taken_over):
    """Field by field, so that a kubelet takes our pods for its own: the second life of `static` is ours."""
    node, source = taken_over
    agent = node.agent
    fresh = source.add(pod("fresh", container("c", SLEEP, ports=[{"name": "http", "containerPort": 80}])))
    source.wait_ready("fresh")
    by_name = {one.labels["io.kubernetes.pod.name"]: one for one in agent.containerd.cri.list_containers().result()}
    ours = by_name["fresh"]
    expected = node.kubelet.container_config(fresh, fresh.spec.containers[0])
    got = stored(agent, ours.pod_sandbox_id, ours.id)
    wanted = _plain(expected)
    for one in (got, wanted):
        one["mounts"] = {mount["container_path"]: _without_token(mount["host_path"]) for mount in one["mounts"]}
        one["image"].pop("user_specified_image", None)  # containerd 1.6 does not know it
    assert set(wanted["mounts"]) == set(got["mounts"])
    for key in ("metadata", "image", "command", "labels", "annotations", "log_path", "mounts"):
        assert got[key] == wanted[key], key
    assert got["linux"]["resources"]["oom_score_adj"] == 1000
    assert got["linux"]["resources"]["cpu_shares"] == 2
    assert got["linux"]["security_context"]["namespace_options"]["pid"] == pb.CONTAINER
    sandbox, wanted = stored(agent, ours.pod_sandbox_id), _plain(node.kubelet.sandbox_config(fresh))
    for key in ("metadata", "hostname", "log_directory", "labels", "annotations"):
        assert sandbox[key] == wanted[key], key
    assert sandbox["linux"]["cgroup_parent"] == wanted["linux"]["cgroup_parent"]
    link = f"{agent.dir}/container-logs/fresh_default_c-{ours.id}.log"
    wait_for(lambda: os.path.exists(link), 10, "it is made after the start")


def _plain(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def _without_token(path: str) -> str:
    """The termination message's file has a random name."""
    directory, name = os.path.split(path)
    return directory if "/containers/" in path else f"{directory}/{name}"
