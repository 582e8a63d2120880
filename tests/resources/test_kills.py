"""kill -9 of the resources actor, of a device plugin, of both and of the whole agent, while pods come and go.

Pods ask for all devices that there are, and a Guaranteed pod for all CPUs that are not reserved. Each container makes a
directory for what it got, which fails when another container has it. NODEVISOR_KILLS is how often something is killed:
200 before a release.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from proto.agent.actor import Describe
from proto.v1 import Pod
from tests.agent.agent import Agent, container, pod
from tests.agent.embedded import answered, embedded_agent
from tests.agent.faults import Eye, condition
from tests.harness import wait_for
from tests.resources.devices.pods import GPU

KILLS = int(os.environ.get("NODEVISOR_KILLS", "10"))
CPUS = sorted(os.sched_getaffinity(0))
SLOTS = {"one0": 1, "one1": 1, "two": 2, "cpu": 1}
"""Devices of the pods of each slot, of which one is there at a time. Pods of the last one have CPUs alone, too."""
ALL_CPUS = {"cpu": str(max(1, len(CPUS) - 1)), "memory": "32Mi"}
STEADY = "steady"
DEVICES = sum(SLOTS.values()) + 1
NO_BACK_OFF = {"defaults": {"max_restarts": 100_000, "reset_after_s": 0.001, "backoff_cap_s": 0.1}}
HOLD = """
cpus=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)
names=$(echo $DEVICES | tr , ' ')
[ $PINNED = yes ] && names="$names cpus-$cpus"
for one in $names; do mkdir /host/held/$one || echo $HOSTNAME $one >> /host/doubled; done
let_go() { for one in $names; do rmdir /host/held/$one; done; exit 0; }
trap let_go TERM
echo $HOSTNAME $names >> /host/lives
sleep 100000 & wait
"""


def manifest(name: str, host: Path) -> dict[str, Any]:
    slot = name.partition("-")[0]
    amounts = {GPU: str(SLOTS.get(slot, 1))}
    if slot == "cpu":
        amounts |= ALL_CPUS
    mount = {"name": "host", "mountPath": "/host"}
    return pod(
        name,
        container(
            "c",
            HOLD,
            resources={"limits": amounts},
            env=[{"name": "PINNED", "value": "yes" if slot == "cpu" else "no"}],
            volumeMounts=[mount],
        ),
        volumes=[{"name": "host", "hostPath": {"path": str(host)}}],
        terminationGracePeriodSeconds=120,  # the directories go before the container does
    )


class DevicePlugin:
    """A plugin in a process of its own."""

    def __init__(self, agent: Agent) -> None:
        directory = str(agent.root_dir / "device-plugins")
        self._command = [
            sys.executable, "-m", "tests.resources.devices.device_plugin", directory, GPU, str(DEVICES)
        ]  # fmt: skip
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = subprocess.Popen(self._command)


class Churn(threading.Thread):
    """A pod in each slot: it gets ready, is removed, and is followed by the next one once it has gone."""

    def __init__(self, agent: Agent, host: Path) -> None:
        super().__init__(daemon=True)
        self.agent, self.host = agent, host
        self.names: dict[str, str] = {}
        """Slot to the pod that is there or ends."""
        self.rounds: Counter[str] = Counter()
        self.problems: list[str] = []
        self.end = threading.Event()
        self._random = random.Random(KILLS)

    def run(self) -> None:
        eye = Eye(self.agent)
        with closing(eye.client):
            while not self.end.is_set() or self.names:  # what was begun comes to its end
                time.sleep(0.1)
                pods = eye.pods()
                if STEADY in pods:
                    for slot in SLOTS:
                        self._step(slot, pods)

    def _step(self, slot: str, pods: dict[str, Pod]) -> None:
        name = self.names.get(slot)
        if name is None:
            if not self.end.is_set():
                self.rounds[slot] += 1
                self.names[slot] = name = f"{slot}-{self.rounds[slot]}"
                self.agent.write(name, manifest(name, self.host))
            return
        path, found = self.agent.manifests / f"{name}.yaml", pods.get(name)
        if not path.exists():
            if found is None:
                del self.names[slot]
        elif found is not None and found.status is not None and found.status.phase == "Failed":
            self.problems.append(f"{name} failed: {found.status}")
            self.end.set()
            path.unlink()
        elif found is not None and self._is_up(found) and self._random.random() < 0.5:
            path.unlink()

    def _is_up(self, found: Pod) -> bool:
        """A pod is ready once its container runs, whether or not the shell has come to its trap."""
        return condition(found, "Ready") == "True" and f"{found.metadata.name} " in (self.host / "lives").read_text()


def configure(agent: Agent) -> None:
    """Reserve the first CPU; the others can be given to containers alone."""
    config = yaml.safe_load(agent.config.read_text())
    if len(CPUS) > 1:
        config |= {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(CPUS[0]), "cpuManagerReconcilePeriod": "1s"}
    agent.config.write_text(yaml.safe_dump(config))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    settings = tmp_path / "supervisor.yaml"
    settings.write_text(yaml.safe_dump(NO_BACK_OFF))
    with embedded_agent("--supervisor-config", str(settings), prepare=configure) as one:
        yield one


@pytest.fixture
def host(tmp_path: Path) -> Path:
    directory = tmp_path / "host"
    (directory / "held").mkdir(parents=True)
    (directory / "lives").touch()  # a pod may be ready before the first shell has written
    return directory


def known_devices(eye: Eye) -> int:
    devices = eye.client.ask("resources", Describe(), 5.0).state["devices"]
    return int(devices.get(GPU, {}).get("healthy", 0))


def kill(agent: Agent, plugin: DevicePlugin, eye: Eye, what: str) -> bool:
    """Kill it, and start again what does not come back by itself. False: it was not there."""
    if what == "agent":
        return kill_agent(agent, eye)
    killed = what == "plugin" or bool(eye.signal("resources"))
    if what != "resources":
        plugin.restart()
    return killed


def kill_agent(agent: Agent, eye: Eye) -> bool:
    pids = [row.pid for row in eye.actors().values() if row.pid]
    assert agent.process is not None
    for pid in {*pids, agent.process.pid} - {0}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    agent.process.wait()
    agent.start()
    return bool(pids)


@pytest.mark.timeout(300 + 12 * KILLS)
@pytest.mark.needs("mounts")
def test_no_device_or_cpu_is_lost_or_given_twice(agent: Agent, host: Path) -> None:
    plugin, churn, eye = DevicePlugin(agent), Churn(agent, host), Eye(agent)
    dice, killed = random.Random(KILLS), Counter[str]()
    with closing(eye.client):
        try:
            wait_for(lambda: known_devices(eye) == DEVICES, 60, "the plugin has registered; until then it is unknown")
            agent.write(STEADY, manifest(STEADY, host))
            wait_for(lambda: eye.ready(STEADY), 90, f"the steady pod runs; log: {agent.log}")
            before = agent.running()
            churn.start()
            while killed.total() < KILLS and not churn.problems:
                time.sleep(dice.uniform(0, 1.5))
                what = dice.choice(("resources", "plugin", "both", "agent"))
                killed[what] += kill(agent, plugin, eye, what)
        finally:
            churn.end.set()
            churn.join(180)
            if sys.exc_info()[0]:
                plugin.kill()
        try:
            expect_nothing_wrong(agent, churn, host)
            running = wait_for(lambda: answered(agent.running), 30, "the runtime answers after its kill")
            assert running == before, "the steady pod lives its first life"
            expect_all_free(agent, eye, host)
        finally:
            plugin.kill()
    print(f"killed {dict(killed)}, {churn.rounds.total()} pods")


def expect_nothing_wrong(agent: Agent, churn: Churn, host: Path) -> None:
    assert churn.problems == []
    assert churn.names == {}, f"every pod comes to its end; log: {agent.log}"
    doubled = host / "doubled"
    assert not doubled.exists(), f"given twice: {doubled.read_text()}"
    lives = Counter(line.split()[0] for line in (host / "lives").read_text().splitlines())
    assert lives.total() == len(lives) == churn.rounds.total() + 1, "each container runs once"
    wait_for(lambda: len(list((host / "held").iterdir())) == 1, 30, "the steady pod's device is held")


def expect_all_free(agent: Agent, eye: Eye, host: Path) -> None:
    """All but the steady pod's device go to one pod, and all but the reserved CPU."""
    SLOTS["all"] = DEVICES - 1
    try:
        agent.write("all-1", manifest("all-1", host))
        agent.write("cpu-last", pod("cpu-last", container("c", resources={"limits": ALL_CPUS})))
        wait_for(lambda: eye.ready(STEADY, "all-1", "cpu-last"), 90, f"nothing is lost; log: {agent.log}")
    finally:
        del SLOTS["all"]
    wait_for(lambda: len(list((host / "held").iterdir())) == DEVICES, 30, "the pods hold all devices")
