"""Events of a pod whose runtime answers with errors, has no network, or does not end the pod: each provoked once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from actors._host.node import shutdown
from proto.pods.events import ListEvents
from proto.pods.pod_workers import EvictPod
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, is_ready, pod
from tests.agent.recovery.runtime.refusing import Refusing
from tests.containerd import ContainerdInstance
from tests.harness import stop_process, wait_for
from tests.metrics.test_agent import Observed
from tests.ports import free_port

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def runtime(containerd: ContainerdInstance) -> Iterator[Refusing]:
    with Refusing(f"unix://{containerd.socket}") as one:
        yield one


@pytest.fixture(scope="module")
def agent(containerd: ContainerdInstance, runtime: Refusing) -> Iterator[Observed]:
    with closing(Observed(containerd)) as one:
        one.page_port = free_port()
        (one.dir / "resolv.conf").write_text(f"search {' '.join(f's{number}' for number in range(30))}\n")
        flags = (f"--resolv-conf={one.dir}/resolv.conf", "--cluster-domain=cluster.local")
        one.start("--container-runtime-endpoint", runtime.endpoint, f"--page-address={one.page_port}", *flags)
        yield one


def said(agent: Agent, reason: str) -> set[tuple[str, str, str]]:
    """(object, type, message) of the events with this reason."""
    with Client(agent.run_dir) as client:
        found = client.ask("events", ListEvents(), 5.0).events
    events = [one for one in found if one.reason == reason]
    return {(one.involved_object.name or "", one.type or "", one.message or "") for one in events}


def expect(agent: Agent, reason: str, name: str, message: str) -> None:
    wanted = {(f"{name}-vm", "Warning", message)}
    wait_for(lambda: said(agent, reason) == wanted, 30, f"{reason}; log: {agent.log}")


def test_too_many_search_domains_are_an_event_of_the_node(agent: Observed) -> None:
    words = f"Resolv.conf file '{agent.dir}/resolv.conf' contains search line consisting of more than 29 domains!"
    wait_for(lambda: said(agent, "CheckLimitsForResolvConf") == {("vm", "Warning", words)}, 20, "it is said")


def test_runtime_errors_are_events_of_the_pod(agent: Observed, runtime: Refusing) -> None:
    runtime.refused = {"RunPodSandbox"}
    agent.write("one", pod("one"))
    wait_for(lambda: said(agent, "FailedCreatePodSandBox"), 30, "no sandbox is made")
    assert agent.value("kubelet_run_podsandbox_errors", runtime_handler="") >= 1
    runtime.refused = {"PodSandboxStatus"}
    message = "rpc error: code = Internal desc = podsandboxstatus"
    expect(agent, "FailedPodSandBoxStatus", "one", f"Unable to get pod sandbox status: {message}")
    expect(agent, "FailedSync", "one", f"error determining status: {message}")
    runtime.refused = set()
    wait_for(lambda: is_ready(agent.pod("one")), 60, f"it runs; log: {agent.log}")


def test_pod_waits_for_the_network_and_a_host_pod_does_not(agent: Observed, containerd: ContainerdInstance) -> None:
    (conf,) = (containerd.directory / "net.d").iterdir()
    content = conf.read_text()
    conf.unlink()
    try:
        wait_for(lambda: not containerd.is_ready(), 20, "the runtime says so")
        agent.write("held", pod("held"))
        agent.write("host", pod("host", hostNetwork=True))
        wait_for(lambda: is_ready(agent.pod("host")), 60, f"the host's network is there; log: {agent.log}")
        wait_for(lambda: said(agent, "NetworkNotReady"), 30, f"held back; log: {agent.log}")
        ((name, kind, message),) = said(agent, "NetworkNotReady")
        assert (name, kind) == ("held-vm", "Warning")
        assert message.startswith(
            "network is not ready: container runtime network not ready: NetworkReady=false "
            "reason:NetworkPluginNotReady message:Network plugin returns error: "
        )
        assert not [one for one in agent.running().values() if one.startswith("held")]
    finally:
        conf.write_text(content)  # containerd does not see a file that is moved in
    wait_for(lambda: is_ready(agent.pod("held")), 60, f"it goes on; log: {agent.log}")


def test_pod_that_the_runtime_does_not_end_in_time(agent: Observed, containerd: ContainerdInstance) -> None:
    agent.write("slow", pod("slow"))
    wait_for(lambda: is_ready(agent.pod("slow")), 60, "it runs")
    uid, pid = agent.pod("slow")["metadata"]["uid"], containerd.pid
    assert pid is not None
    stop_process(pid)
    try:
        with Client(agent.run_dir) as client:
            request = EvictPod(pod_uid=uid, reason=shutdown.TERMINATED, message="now", grace_period_s=1)
            client.ask("pod_workers", request, 5.0)
        words = "Container runtime did not kill the pod within specified grace period."
        expect(agent, "ExceededGracePeriod", "slow", words)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: agent.pod("slow")["status"]["phase"] == "Failed", 30, "it has ended")
