"""The runtime in memory answers as containerd does: each test runs on both."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from actors._cri.client import Cri, CriCalls
from actors._cri.errors import CriError, NotFound
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, sandbox_config
from tests.harness import wait_for
from tests.model.clock import Clock
from tests.model.cri.calls import ModelCri
from tests.model.cri.runtime import Runtime

OBEDIENT = ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"]
STUBBORN = ["sh", "-c", "trap '' TERM; sleep 100000 & wait"]


@dataclass
class Subject:
    """One of the two runtimes with its clock."""

    cri: CriCalls
    pause: Callable[[float], None]
    now: Callable[[], float]

    def until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        def ask() -> bool:
            self.pause(0.01)
            return condition()

        wait_for(ask, timeout_s)

    def run(self, name: str, *command: str) -> tuple[pb.PodSandboxConfig, str, str]:
        config = sandbox_config(name, labels={"pod": name})
        sandbox = self.cri.run_pod_sandbox(config).result()
        container = self.create(sandbox, config, *command)
        self.cri.start_container(container).result()
        if "trap" in " ".join(command):
            self.until(lambda: self.minds_sigterm(container))
        return config, sandbox, container

    def minds_sigterm(self, container: str) -> bool:
        """Return True when the shell has set its trap.

        That takes a moment: runc's init, which becomes the shell, is a Go program and catches every signal.
        """
        if isinstance(self.cri, ModelCri):
            return True
        status = self.cri.exec_sync(container, ["cat", "/proc/1/status"], 5).result().stdout.decode()
        masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigIgn", "SigCgt"))]
        return "Name:\tsh\n" in status and any(mask & 1 << signal.SIGTERM - 1 for mask in masks)

    def create(self, sandbox: str, config: pb.PodSandboxConfig, *command: str, name: str = "main") -> str:
        wanted = container_config(command, name=name)
        wanted.linux.security_context.namespace_options.pid = pb.CONTAINER  # as the kubelet has it, not CRI's default
        wanted.labels["of"] = config.metadata.name
        wanted.annotations["io.kubernetes.container.restartCount"] = "3"
        return self.cri.create_container(sandbox, wanted, config).result()

    def status(self, container: str) -> pb.ContainerStatus:
        return self.cri.container_status(container).result().status

    def ended(self, container: str) -> bool:
        return self.status(container).state == pb.CONTAINER_EXITED

    def sandbox_state(self, sandbox: str) -> int:
        return self.cri.pod_sandbox_status(sandbox).result().status.state


@pytest.fixture(params=["model", "containerd"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    if request.param == "model":
        clock = Clock()
        yield Subject(ModelCri(Runtime(clock)), clock.advance, lambda: clock.now)
        return
    containerd = request.getfixturevalue("containerd")
    client = Cri(containerd.endpoint)
    yield Subject(client, time.sleep, time.time)
    client.close()
    containerd.remove_pods()


def test_sandbox_is_ready_until_stopped_and_exists_until_removed(subject):
    config = sandbox_config("sandbox", labels={"pod": "sandbox"})
    config.annotations["note"] = "kept"
    sandbox = subject.cri.run_pod_sandbox(config).result()
    answer = subject.cri.pod_sandbox_status(sandbox, verbose=True).result()
    assert answer.status.state == pb.SANDBOX_READY
    assert answer.status.network.ip
    assert json.loads(answer.info["info"])["pid"] > 0
    assert (dict(answer.status.labels), dict(answer.status.annotations)) == ({"pod": "sandbox"}, {"note": "kept"})
    assert answer.status.metadata == config.metadata
    for _ in range(2):
        subject.cri.stop_pod_sandbox(sandbox).result()
        assert subject.sandbox_state(sandbox) == pb.SANDBOX_NOTREADY
    for _ in range(2):
        subject.cri.remove_pod_sandbox(sandbox).result()
        with pytest.raises(NotFound):
            subject.cri.pod_sandbox_status(sandbox).result()


def test_a_name_is_taken_until_its_sandbox_is_removed(subject):
    config = sandbox_config("taken")
    first = subject.cri.run_pod_sandbox(config).result()
    with pytest.raises(CriError, match="failed to reserve sandbox name"):
        subject.cri.run_pod_sandbox(config).result()
    subject.cri.stop_pod_sandbox(first).result()
    with pytest.raises(CriError, match="failed to reserve sandbox name"):
        subject.cri.run_pod_sandbox(config).result()
    config.metadata.attempt = 1
    second = subject.cri.run_pod_sandbox(config).result()
    config.metadata.attempt = 0
    subject.cri.remove_pod_sandbox(first).result()
    assert subject.cri.run_pod_sandbox(config).result() not in (first, second)


def test_stop_and_remove_of_unknown_ids_succeed(subject):
    nobody = "f" * 64
    subject.cri.stop_container(nobody, 1).result()
    subject.cri.remove_container(nobody).result()
    subject.cri.stop_pod_sandbox(nobody).result()
    subject.cri.remove_pod_sandbox(nobody).result()
    with pytest.raises(NotFound):
        subject.cri.container_status(nobody).result()
    with pytest.raises(NotFound):
        subject.cri.start_container(nobody).result()
    with pytest.raises(CriError):
        subject.create(nobody, sandbox_config("nobody"), "true")


def test_a_container_from_created_to_exited(subject):
    config = sandbox_config("life")
    sandbox = subject.cri.run_pod_sandbox(config).result()
    container = subject.create(sandbox, config, "sh", "-c", "exit 7")
    created = subject.status(container)
    assert created.state == pb.CONTAINER_CREATED
    assert (created.started_at, created.finished_at, created.exit_code) == (0, 0, 0)
    assert abs(created.created_at / 1e9 - subject.now()) < 60
    subject.cri.start_container(container).result()
    subject.until(lambda: subject.ended(container))
    exited = subject.status(container)
    assert (exited.exit_code, exited.reason) == (7, "Error")
    assert created.created_at < min(exited.started_at, exited.finished_at)  # which of the two comes first is open
    assert exited.annotations["io.kubernetes.container.restartCount"] == "3"
    assert exited.labels["of"] == "life"
    with pytest.raises(CriError):
        subject.cri.start_container(container).result()
    assert subject.status(container) == exited
    subject.cri.stop_container(container, 5).result()
    assert subject.status(container) == exited


def test_an_end_with_0_is_completed(subject):
    _, _, container = subject.run("zero", "true")
    subject.until(lambda: subject.ended(container))
    assert (subject.status(container).exit_code, subject.status(container).reason) == (0, "Completed")


def test_stop_sends_sigterm_then_kills_after_grace_period(subject):
    _, _, obedient = subject.run("obedient", *OBEDIENT)
    _, _, stubborn = subject.run("stubborn", *STUBBORN)
    began = subject.now()
    subject.cri.stop_container(obedient, 30).result()
    assert subject.now() - began < 10
    assert (subject.status(obedient).exit_code, subject.status(obedient).reason) == (0, "Completed")
    began = subject.now()
    subject.cri.stop_container(stubborn, 2).result()
    assert 2 <= subject.now() - began < 10
    assert (subject.status(stubborn).exit_code, subject.status(stubborn).reason) == (137, "Error")


def test_second_stop_with_shorter_grace_ends_the_first(subject):
    _, _, container = subject.run("twice", *STUBBORN)
    first = subject.cri.stop_container(container, 60)
    subject.pause(0.2)
    began = subject.now()
    subject.cri.stop_container(container, 1).result()
    first.result()
    assert subject.now() - began < 10
    assert subject.status(container).exit_code == 137


def test_cancelled_stop_sends_sigterm_and_does_not_kill(subject):
    _, _, stubborn = subject.run("stubborn", *STUBBORN)
    _, _, obedient = subject.run("obedient", *OBEDIENT)
    calls = [subject.cri.stop_container(one, 5) for one in (stubborn, obedient)]
    subject.pause(2.5)  # the middle of the grace period: a machine may stand still before, and after
    for call in calls:
        call.cancel()
    subject.until(lambda: subject.ended(obedient))
    subject.pause(6)
    assert subject.status(stubborn).state == pb.CONTAINER_RUNNING


def test_a_command_that_is_not_there_is_a_start_error(subject):
    config = sandbox_config("nocommand")
    sandbox = subject.cri.run_pod_sandbox(config).result()
    container = subject.create(sandbox, config, "/no/such")
    with pytest.raises(CriError, match="no such file or directory"):
        subject.cri.start_container(container).result()
    status = subject.status(container)
    assert (status.state, status.reason, status.exit_code) == (pb.CONTAINER_EXITED, "StartError", 128)
    assert status.started_at <= 0


def test_a_containers_name_is_taken_until_it_is_removed(subject):
    config, sandbox, container = subject.run("names", *STUBBORN)
    with pytest.raises(CriError, match="failed to reserve container name"):
        subject.create(sandbox, config, "true")
    subject.create(sandbox, config, "true", name="other")
    subject.cri.remove_container(container).result()  # although it runs
    with pytest.raises(NotFound):
        subject.cri.container_status(container).result()
    subject.create(sandbox, config, "true")


def test_stopped_sandbox_ends_containers_and_refuses_starts(subject):
    config, sandbox, container = subject.run("ends", *STUBBORN)
    waits = subject.create(sandbox, config, *STUBBORN, name="waits")
    subject.cri.stop_pod_sandbox(sandbox).result()
    assert (subject.status(container).state, subject.status(container).exit_code) == (pb.CONTAINER_EXITED, 137)
    assert subject.status(waits).state == pb.CONTAINER_CREATED

    def begin_another() -> None:  # containerd 1.x does not make it, 2.x does not start it
        late = subject.create(sandbox, config, "true", name="late")
        subject.cri.start_container(late).result()

    with pytest.raises(CriError):
        begin_another()
    with pytest.raises(CriError):
        subject.cri.start_container(waits).result()
    assert subject.status(waits).state == pb.CONTAINER_EXITED
    assert subject.status(waits).reason == "StartError"


def test_removing_a_running_sandbox_takes_everything(subject):
    _, sandbox, container = subject.run("all", *STUBBORN)
    subject.cri.remove_pod_sandbox(sandbox).result()
    with pytest.raises(NotFound):
        subject.cri.pod_sandbox_status(sandbox).result()
    with pytest.raises(NotFound):
        subject.cri.container_status(container).result()


def test_lists_by_label_sandbox_and_state(subject):
    config, sandbox, container = subject.run("listed", *STUBBORN)
    created = subject.create(sandbox, config, "true", name="created")
    subject.run("another", *STUBBORN)

    def listed(**wanted: object) -> set[str]:
        return {one.id for one in subject.cri.list_containers(pb.ContainerFilter(**wanted)).result()}

    assert listed(label_selector={"of": "listed"}) == {container, created}
    assert listed(pod_sandbox_id=sandbox) == {container, created}
    assert listed(state={"state": pb.CONTAINER_CREATED}) == {created}
    assert listed(id=container) == {container}
    assert listed(label_selector={"of": "nobody"}) == set()
    found = subject.cri.list_pod_sandbox(pb.PodSandboxFilter(label_selector={"pod": "listed"})).result()
    assert [(one.id, one.state) for one in found] == [(sandbox, pb.SANDBOX_READY)]
    item = subject.cri.list_containers(pb.ContainerFilter(id=container)).result()[0]
    assert (item.pod_sandbox_id, item.metadata.name, item.state) == (sandbox, "main", pb.CONTAINER_RUNNING)
    assert item.annotations["io.kubernetes.container.restartCount"] == "3"


def test_dead_sandbox_is_not_ready_and_its_containers_run_on(subject):
    _, sandbox, container = subject.run("dies", *STUBBORN)
    if isinstance(subject.cri, ModelCri):
        runtime = subject.cri.runtime
        runtime.end_sandbox(runtime.sandboxes[sandbox])
    else:
        info = subject.cri.pod_sandbox_status(sandbox, verbose=True).result().info["info"]
        os.kill(json.loads(info)["pid"], signal.SIGKILL)
    subject.until(lambda: subject.sandbox_state(sandbox) == pb.SANDBOX_NOTREADY)
    assert subject.status(container).state == pb.CONTAINER_RUNNING
    subject.cri.stop_container(container, 0).result()
    subject.cri.remove_pod_sandbox(sandbox).result()
