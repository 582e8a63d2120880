"""The container runtime of a start while pods of the last start run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from proto.agent.settings import Settings
from proto.agent.supervisor import Note
from proto.common.machine import procfs
from proto.cri import api_pb2 as pb
from proto.node import runtime
from supervisor.cli.agent import runtime as runtime_choice
from supervisor.cli.agent.runtime import with_runtime
from supervisor.cli.errors import CommandError
from supervisor.core import agent
from supervisor.core.upgrade import handover
from supervisor.core.upgrade.handover import Handover
from supervisor.host import endpoint, last_start, settings_file
from supervisor.ownership import starting
from tests.cri.services import serve
from tests.harness import wait_for
from tests.ownership.stand_ins import Nodevisor
from tests.ownership.test_facts import pod_cgroup, refusal

pytestmark = pytest.mark.needs("root", "mounts", "cgroups")

CONTAINERD = "unix:///run/nvo-none/containerd.sock"
CRIO = "unix:///run/nvo-none/crio.sock"
ANSWER: dict[str, str | None] = {"driver": "cgroupfs"}
"""The cgroup drivers that the runtimes report."""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The runtimes that answer, of the usual ones."""
    found: set[str] = set()

    def find(*endpoints: str) -> endpoint.Runtime:
        for one in endpoints or (CONTAINERD, CRIO):
            if one in found:
                return endpoint.Runtime(one, "name", "2", "v1", ANSWER["driver"])
        raise endpoint.NoRuntime("none answers")

    monkeypatch.setattr(endpoint, "find", find)
    monkeypatch.setitem(ANSWER, "driver", "cgroupfs")
    monkeypatch.setattr(os.path, "exists", lambda path: f"unix://{path}" in found)
    monkeypatch.setattr(runtime_choice, "PATIENCE_S", 0.0)
    return found


@contextmanager
def our_pod(settings: Settings, uid: str = "a1b2") -> Iterator[int]:
    Path(settings.root_dir, "pods", uid).mkdir(parents=True, exist_ok=True)
    with pod_cgroup(settings, uid) as pid:
        yield pid


@contextmanager
def embedded_container(settings: Settings) -> Iterator[int]:
    """A running container as the embedded runtime's monitor records it."""
    directory = Path(settings.root_dir, "nodevisor/runtime/containers", "c" * 64)
    directory.mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as started:
        (directory / "started").write_text(f"{started.pid} {procfs.start_time(started.pid)} 1")
        try:
            yield started.pid
        finally:
            started.kill()


def chosen(settings: Settings) -> str:
    """The endpoint of a start, which is kept as the command does."""
    found = with_runtime(settings)
    runtime_choice.remember(found)
    return last_start.endpoint_of(found)


def test_running_pods_keep_their_runtime_while_it_is_away(settings: Settings, answering: set[str]) -> None:
    """Another one would start each pod a second time, with the same volumes."""
    answering |= {CRIO}
    assert chosen(settings) == CRIO
    answering.clear()
    with our_pod(settings):
        assert chosen(settings) == CRIO  # it restarts
        answering |= {CONTAINERD}
        assert chosen(settings) == CRIO  # another one was installed
        moved = replace(settings, cgroup_root="/elsewhere", cgroup_driver="systemd")
        assert with_runtime(moved).container_runtime_endpoint == CRIO


def test_running_pods_keep_the_embedded_runtime(settings: Settings, answering: set[str]) -> None:
    assert chosen(settings) == runtime.EMBEDDED
    answering |= {CONTAINERD}
    with our_pod(settings):
        assert chosen(settings) == runtime.EMBEDDED
        found = with_runtime(replace(settings, run_dir=f"{settings.run_dir}2"))
        assert found.container_runtime_endpoint == f"unix://{settings.run_dir}2/cri.sock"
    with embedded_container(settings):  # at isolation level 3 pods have no cgroups
        assert chosen(settings) == runtime.EMBEDDED
    assert chosen(settings) == CONTAINERD


def test_node_whose_pods_have_ended_chooses_anew_and_prefers_its_runtime(
    settings: Settings, answering: set[str]
) -> None:
    answering |= {CRIO}
    assert chosen(settings) == CRIO
    answering |= {CONTAINERD}
    assert chosen(settings) == CRIO
    answering -= {CRIO}
    assert chosen(settings) == CONTAINERD
    answering.clear()
    assert chosen(settings) == runtime.EMBEDDED


def test_restart_of_a_release_without_the_file_keeps_the_runtime(settings: Settings, answering: set[str]) -> None:
    """The last agent's settings tell it, else the embedded runtime's records; an unknown one has to answer."""
    with our_pod(settings) as pid:
        with pytest.raises(CommandError, match=f"no container runtime answers.*pod a1b2, pid {pid} sleep"):
            with_runtime(settings)
        answering |= {CONTAINERD}
        assert with_runtime(settings).container_runtime_endpoint == CONTAINERD
        os.makedirs(settings.run_dir)
        settings_file.write(replace(settings, container_runtime_endpoint=CRIO))
        assert with_runtime(settings).container_runtime_endpoint == CRIO
        settings_file.write(replace(settings, root_dir="/other", container_runtime_endpoint=CRIO))
        assert with_runtime(settings).container_runtime_endpoint == CONTAINERD
        with embedded_container(settings):
            assert with_runtime(settings).container_runtime_endpoint == runtime.endpoint(settings.run_dir)


def test_runtime_of_a_release_without_the_file_that_ran_meanwhile_counts(
    settings: Settings, answering: set[str]
) -> None:
    """After a roll-back and an upgrade, the file is older than the settings of the last agent."""
    answering |= {CRIO, CONTAINERD}
    assert chosen(settings) == CONTAINERD
    os.makedirs(settings.run_dir)
    named = replace(settings, container_runtime_endpoint=CRIO)
    settings_file.write(named)
    with our_pod(settings):
        assert with_runtime(settings).container_runtime_endpoint == CRIO
        assert refusal(named) == ""
        said = refusal(replace(settings, container_runtime_endpoint=CONTAINERD))
        place = last_start.path(settings.root_dir)
        assert f"remove {place} and {settings.run_dir}/settings.json" in said
        moved = replace(settings, run_dir=f"{settings.run_dir}2")
        assert chosen(moved) == CONTAINERD
        assert with_runtime(settings).container_runtime_endpoint == CONTAINERD, "that start was in another one"


def test_files_that_the_refusal_names_are_all_that_keep_the_runtime(settings: Settings, answering: set[str]) -> None:
    answering |= {CONTAINERD}
    assert chosen(settings) == CONTAINERD
    os.makedirs(settings.run_dir)
    settings_file.write(replace(settings, container_runtime_endpoint=CONTAINERD))
    named = replace(settings, container_runtime_endpoint=CRIO)
    with our_pod(settings):
        for path in refusal(named).rpartition(" remove ")[2].split(" and "):
            os.unlink(path)
        assert refusal(named) == ""


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"x" * 70_000,
        b'{"version": 2, "endpoint": "embedded"}',
        b'{"version": 1, "endpoint": "tcp://x"}',
    ],
    ids=["empty", "cut", "other JSON", "huge", "a later version", "no endpoint"],
)
def test_damaged_file_is_reported_and_no_runtime_is_guessed_beside_pods(
    settings: Settings, answering: set[str], caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    answering |= {CONTAINERD}
    place = last_start.path(settings.root_dir)
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    with our_pod(settings):
        with pytest.raises(CommandError, match=f"cannot use {place}: .*pods of ours run.*--container-runtime-endpoint"):
            with_runtime(settings)
        named = replace(settings, container_runtime_endpoint=CRIO)
        assert refusal(named) == ""
        assert chosen(named) == CRIO
        assert chosen(settings) == CRIO
    place.write_bytes(content)
    assert chosen(settings) == CONTAINERD
    assert f"cannot use {place}: " in caplog.text


def test_named_runtime_is_refused_while_pods_run_on_another(
    settings: Settings, directory: Path, answering: set[str]
) -> None:
    answering |= {CRIO}
    assert chosen(settings) == CRIO
    other = replace(settings, container_runtime_endpoint=CONTAINERD)
    with our_pod(settings) as pid:
        said = refusal(other)
        assert f"container runtime {CRIO} runs pods of ours (pod a1b2, pid {pid} sleep), and {CONTAINERD} would" in said
        link = directory / "link.sock"
        link.symlink_to(CRIO.removeprefix("unix://"))
        assert refusal(replace(settings, container_runtime_endpoint=f"unix://{link}")) == ""
    assert refusal(other) == ""


def test_hidden_pods_may_run_until_the_reboot(settings: Settings, answering: set[str]) -> None:
    """Without cgroups of their own nothing tells if pods run."""
    answering |= {CRIO}
    settings = replace(settings, cgroups_per_qos=False)
    assert chosen(settings) == CRIO
    answering.clear()
    pod = Path(settings.root_dir, "pods", "a1b2")
    pod.mkdir(parents=True)
    assert chosen(settings) == CRIO
    named = replace(settings, container_runtime_endpoint=CONTAINERD)
    assert "(pod a1b2 may run: without cgroupsPerQOS no cgroup tells)" in refusal(named)
    pod.rmdir()
    assert refusal(named) == ""
    pod.mkdir()
    place = last_start.path(settings.root_dir)
    place.write_text(place.read_text().replace(last_start.boot_id(), "another boot"))
    assert chosen(settings) == runtime.EMBEDDED


def test_start_that_cannot_replace_another_runtimes_file_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    crio, containerd = (replace(settings, container_runtime_endpoint=one) for one in (CRIO, CONTAINERD))
    monkeypatch.setattr(last_start, "replace_file", full)
    runtime_choice.remember(crio)  # the first start
    assert "without it the next start may choose another runtime" in caplog.text
    monkeypatch.undo()
    runtime_choice.remember(crio)
    monkeypatch.setattr(last_start, "replace_file", full)
    runtime_choice.remember(replace(crio, node_name="other"))
    with pytest.raises(CommandError, match=r"cannot start: cannot write .*last-start\.json"):
        runtime_choice.remember(containerd)


def test_upgrade_in_place_from_a_release_without_the_file_writes_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs(settings.run_dir)
    monkeypatch.setattr(handover, "committed", True)
    plan = agent.Plan(settings=replace(settings, container_runtime_endpoint=CRIO), specs=(), handover=Handover())
    agent._Files(plan)(Note(level="info", actor="supervisor", text="ready"))
    last = last_start.read(settings.root_dir)
    assert last is not None
    assert last.endpoint == CRIO


def test_cgroup_driver_of_the_last_start_counts_while_the_runtime_is_away(
    settings: Settings, answering: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = replace(settings, container_runtime_endpoint=CRIO)
    last_start.keep(named, "systemd")
    assert with_runtime(named).cgroup_driver == "systemd"
    last_start.keep(named)  # a start does not forget it
    assert with_runtime(named).cgroup_driver == "systemd"
    assert with_runtime(replace(named, container_runtime_endpoint=CONTAINERD)).cgroup_driver == "cgroupfs"
    answering |= {CRIO}
    assert with_runtime(named).cgroup_driver == "cgroupfs"
    monkeypatch.setitem(ANSWER, "driver", None)  # it is still starting
    assert with_runtime(named).cgroup_driver == "systemd"
    monkeypatch.setitem(ANSWER, "driver", "")  # an older version without the rpc: the configured one counts
    assert with_runtime(named).cgroup_driver == "cgroupfs"


def test_renamed_host_is_told_how_to_keep_the_node(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    old = replace(settings, container_runtime_endpoint=CRIO, node_name="old")
    runtime_choice.note_renamed(old, chosen=False)
    last_start.keep(old)
    runtime_choice.note_renamed(old, chosen=False)
    new = replace(old, node_name="new")
    runtime_choice.note_renamed(new, chosen=True)
    assert not caplog.records
    runtime_choice.note_renamed(new, chosen=False)
    assert "by the host's name the node is new;" in caplog.text
    assert "--hostname-override=old" in caplog.text


# Real agents


def test_agent_started_again_stays_with_its_runtime_beside_a_living_pod(settings: Settings) -> None:
    """The command as users give it, the second time without an endpoint or with another one."""
    named = f"unix://{settings.run_dir}.none.sock"
    with our_pod(settings):
        with Nodevisor(settings):
            pass
        last = starting.runtime_facts(settings)
        assert last.former == named
        said = Nodevisor(settings, "--container-runtime-endpoint=embedded").refused()
        assert f"container runtime {named} runs pods of ours" in said
        again = Nodevisor(settings)
        again.command = [one for one in again.command if not one.startswith("--container-runtime-endpoint=")]
        with again:
            assert f"container runtime: {named}, it runs pods of the last start" in again.log.read_text()


class LateRuntime:
    """A CRI runtime without pods. `sandboxes` counts the pods that it is asked to start. No `driver`: it has no rpc."""

    # ruff: noqa: ARG002, N802  (names and arguments are those of the rpcs)

    def __init__(self, socket: str, driver: pb.CgroupDriver.ValueType | None) -> None:
        self.driver = driver
        self.sandboxes = 0
        self.server = grpc.server(ThreadPoolExecutor(8))
        serve(self, self.server, "RuntimeService", "ImageService")
        self.server.add_insecure_port(f"unix://{socket}")
        self.server.start()

    def Version(self, request: pb.VersionRequest, context: Any) -> pb.VersionResponse:
        return pb.VersionResponse(version="0.1.0", runtime_name="fake", runtime_version="1.0", runtime_api_version="v1")

    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        ready = [pb.RuntimeCondition(type=f"{one}Ready", status=True) for one in ("Runtime", "Network")]
        return pb.StatusResponse(status=pb.RuntimeStatus(conditions=ready))

    def RuntimeConfig(self, request: pb.RuntimeConfigRequest, context: Any) -> pb.RuntimeConfigResponse:
        if self.driver is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method RuntimeConfig")
            raise AssertionError("abort raises")
        return pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=self.driver))

    def ListPodSandbox(self, request: pb.ListPodSandboxRequest, context: Any) -> pb.ListPodSandboxResponse:
        return pb.ListPodSandboxResponse()

    def ListContainers(self, request: pb.ListContainersRequest, context: Any) -> pb.ListContainersResponse:
        return pb.ListContainersResponse()

    def ListImages(self, request: pb.ListImagesRequest, context: Any) -> pb.ListImagesResponse:
        return pb.ListImagesResponse()

    def RunPodSandbox(self, request: pb.RunPodSandboxRequest, context: Any) -> pb.RunPodSandboxResponse:
        self.sandboxes += 1
        return pb.RunPodSandboxResponse(pod_sandbox_id="s1")


POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {hostNetwork: true, containers: [{name: c, image: "busybox:1"}]}
"""


@contextmanager
def agent_before_its_runtime(
    settings: Settings, directory: Path, theirs: pb.CgroupDriver.ValueType | None
) -> Iterator[tuple[Nodevisor, LateRuntime]]:
    """An agent with a manifest, and the runtime that answers once the agent has started."""
    manifests = directory / "manifests"
    manifests.mkdir()
    (manifests / "web.yaml").write_text(POD)
    with Nodevisor(settings, f"--pod-manifest-path={manifests}") as started:
        late = LateRuntime(f"{settings.run_dir}.none.sock", theirs)
        try:
            yield started, late
        finally:
            late.server.stop(0).wait()


@pytest.mark.parametrize(
    ("before", "theirs", "said", "next_one"),
    [
        ("", pb.SYSTEMD, "cgroup driver is systemd, the agent started with cgroupfs", "systemd"),
        ("systemd", None, "cgroup driver is the configured one now, the agent started with systemd", "cgroupfs"),
    ],
)
def test_agent_ends_for_a_start_with_the_cgroup_driver_that_the_runtime_tells_late(
    settings: Settings, directory: Path, before: str, theirs: pb.CgroupDriver.ValueType | None, said: str, next_one: str
) -> None:
    """The runtime was away at the start. The driver was the configured one, or what its former version had told."""
    named = replace(settings, container_runtime_endpoint=f"unix://{settings.run_dir}.none.sock")
    last_start.keep(named, before)
    with agent_before_its_runtime(settings, directory, theirs) as (started, late):
        wait_for(lambda: started.process.poll() is not None, 60, "the agent's end")
        assert started.process.returncode == 1
    assert f"the container runtime's {said}" in started.log.read_text()
    assert late.sandboxes == 0
    assert with_runtime(named).cgroup_driver == next_one


@pytest.mark.parametrize("theirs", [pb.CGROUPFS, None], ids=["cgroupfs", "no rpc"])
def test_pods_that_waited_for_the_runtime_start_once_its_driver_is_known(
    settings: Settings, directory: Path, theirs: pb.CgroupDriver.ValueType | None
) -> None:
    with agent_before_its_runtime(settings, directory, theirs) as (started, late):
        wait_for(lambda: late.sandboxes > 0, 60, "the pod's start")
        assert started.process.poll() is None
