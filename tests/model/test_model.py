"""Drives one pod through random events and faults: the invariants always hold, and at the end the goal is reached.

`NODEVISOR_MODEL_EXAMPLES` and `NODEVISOR_MODEL_STEPS` set the number of runs and of events in each.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from proto.pods.pod_workers import EvictPod
from proto.wire.envelope import Kind
from proto.wire.errors import AskTimeout, Refused
from tests.model import goals, specs
from tests.model.cri.calls import FAULTS
from tests.model.cri.runtime import Program
from tests.model.process import patched
from tests.model.world import World

EXAMPLES = int(os.environ.get("NODEVISOR_MODEL_EXAMPLES", "200"))
STEPS = int(os.environ.get("NODEVISOR_MODEL_STEPS", "50"))

RPCS = (
    "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus", "ListPodSandbox", "CreateContainer",
    "StartContainer", "StopContainer", "RemoveContainer", "ListContainers", "ContainerStatus",
    "ExecSync",
)  # fmt: skip
PROGRAMS = (
    Program(),
    Program(term_s=None),
    Program(exits=0, after_s=0.0),
    Program(exits=0, after_s=0.3),
    Program(exits=1, after_s=0.0),
    Program(exits=1, after_s=3.0),
    Program(cannot_start=True),
)
NAMES = st.sampled_from(["a", "b", "i", "j"])
KINDS = st.sampled_from(["liveness", "readiness", "startup", "exec"])
MOMENTS = st.sampled_from([0.0, 0.001, 0.004, 0.02, 0.06, 0.2, 1.1, 4.0, 15.0, 70.0])
"""Seconds between two events: within a call, between two calls, or after a back-off."""


class OnePod(RuleBasedStateMachine):
    """At most one pod is wanted at a time, from one source."""

    @initialize(static=st.booleans(), seed=st.integers(0, 9), spec=specs.specs())
    def begin(self, static: bool, seed: int, spec: dict[str, Any]) -> None:
        self.stack = ExitStack()
        directory = tempfile.mkdtemp(prefix="nvmodel-")
        self.stack.callback(shutil.rmtree, directory, ignore_errors=True)
        self.world = World(directory, seed, static=static)
        self.stack.enter_context(patched(self.world))
        self.source = "file" if static else "api"
        self.numbers = 0
        self.world.programs.update(dict.fromkeys("ij", Program(exits=0, after_s=0.1)))
        self.world.start()
        self._add(spec)

    def _then(self, moment: float) -> None:
        self.world.clock.advance(moment)

    # Desired pods

    def _add(self, spec: dict[str, Any]) -> None:
        self.numbers += 1
        for one in spec["initContainers"]:  # sidecars do not end
            if one.get("restartPolicy") == "Always":
                self.world.programs.pop(one["name"], None)
            else:
                self.world.programs[one["name"]] = Program(exits=0, after_s=0.1)
        pod = specs.static_pod(spec) if self.world.static else specs.api_pod(spec, self.numbers)
        self.world.update(self.source, "ADD", pod)

    def _pod(self) -> Any:
        return next(iter(self.world.wanted[self.source].values()), None)

    @rule(spec=specs.specs(), moment=MOMENTS)
    def replace_it(self, spec: dict[str, Any], moment: float) -> None:
        """Want another pod, another version of the manifest, or the same again."""
        if self._pod() is not None:
            self.world.update(self.source, "REMOVE", self._pod())
        self._add(spec)
        self._then(moment)

    @rule(moment=MOMENTS)
    def remove_and_add_the_same(self, moment: float) -> None:
        pod = self._pod()
        if pod is not None and self.world.static:
            self.world.update(self.source, "REMOVE", pod)
            self._then(moment)
            self.world.update(self.source, "ADD", pod)

    @rule(moment=MOMENTS)
    def remove(self, moment: float) -> None:
        if self._pod() is not None:
            self.world.update(self.source, "REMOVE", self._pod())
        self._then(moment)

    @rule(grace_s=st.sampled_from([1, 2, 40]), moment=MOMENTS)
    def delete(self, grace_s: int, moment: float) -> None:
        pod = self._pod()
        if pod is not None and not self.world.static:
            before = pod.metadata.deletion_grace_period_seconds
            grace_s = grace_s if before is None else min(before, grace_s)
            self.world.update(self.source, "DELETE", specs.with_deletion(pod, grace_s))
        self._then(moment)

    @rule(image=st.sampled_from(["image:1", "image:2"]), moment=MOMENTS)
    def another_image(self, image: str, moment: float) -> None:
        if self._pod() is not None and not self.world.static:
            self.world.update(self.source, "UPDATE", specs.with_image(self._pod(), image))
        self._then(moment)

    @rule(seconds=st.sampled_from([1, 30]), moment=MOMENTS)
    def deadline(self, seconds: int, moment: float) -> None:
        pod = self._pod()
        if pod is not None and not self.world.static:
            changed = replace(pod, spec=replace(pod.spec, active_deadline_seconds=seconds))
            self.world.update(self.source, "UPDATE", changed)
        self._then(moment)

    @rule(moment=MOMENTS)
    def evict(self, moment: float) -> None:
        pod, process = self._pod(), self.world.process
        if pod is not None and process is not None and process.bus.ready and self.numbers % 3 == 0:
            request = EvictPod(pod_uid=pod.metadata.uid, reason="Evicted", message="memory", grace_period_s=1)
            self.world.evicted.add(pod.metadata.uid)
            process.receive("eviction", request, Kind.ASK)
        self._then(moment)

    # Containers

    @rule(name=NAMES, program=st.sampled_from(PROGRAMS), moment=MOMENTS)
    def behave(self, name: str, program: Program, moment: float) -> None:
        """Change the program from the next start on."""
        self.world.programs[name] = program
        self._then(moment)

    @rule(name=NAMES, code=st.sampled_from([0, 1, 137]), moment=MOMENTS)
    def exit(self, name: str, code: int, moment: float) -> None:
        for container in self.world.running():
            if container.name == name:
                self.world.runtime.end(container, code)
        self._then(moment)

    @rule(name=NAMES, kind=KINDS, ok=st.booleans(), moment=MOMENTS)
    def probe(self, name: str, kind: str, ok: bool, moment: float) -> None:
        self.world.health[name, kind] = ok
        self.world.peers["probe"].look()
        self._then(moment)

    @rule(moment=MOMENTS)
    def sandbox_dies(self, moment: float) -> None:
        for sandbox in self.world.runtime.sandboxes.values():
            self.world.runtime.end_sandbox(sandbox)
        self._then(moment)

    @rule(which=st.integers(0, 20), moment=MOMENTS)
    def vanish(self, which: int, moment: float) -> None:
        """Another client of the runtime removes it."""
        runtime = self.world.runtime
        ids = [*runtime.sandboxes, *runtime.containers]
        if which < len(ids):
            self.world.remove(ids[which])
        self._then(moment)

    @rule(moment=MOMENTS)
    def collect_garbage(self, moment: float) -> None:
        self.world.peers["container_gc"].collect()
        self._then(moment)

    # Faults

    @rule(rpc=st.sampled_from(RPCS), fault=st.sampled_from(FAULTS), times=st.integers(1, 3), moment=MOMENTS)
    def call_fails(self, rpc: str, fault: Any, times: int, moment: float) -> None:
        self.world.faults[rpc] = [fault] * times
        self._then(moment)

    @rule(fault=st.sampled_from(["down", "hangs"]), moment=MOMENTS)
    def runtime_is_away(self, fault: Any, moment: float) -> None:
        for rpc in RPCS:
            self.world.faults[rpc] = [fault] * 3
        self._then(moment)

    @rule(name=st.sampled_from(["volume", "image_pull"]), moment=MOMENTS)
    def peer_refuses(self, name: str, moment: float) -> None:
        left: list[Exception | None] = [Refused("ErrImagePull", "not now"), None]
        if name == "volume":
            left = [Refused("FailedMount", "not now"), AskTimeout("late"), None]
        self.world.peers[name].fault = lambda _: left.pop(0) if left else None
        self._then(moment)

    @rule(moment=MOMENTS)
    def kill(self, moment: float) -> None:
        self.world.kill()
        self._then(moment)

    @rule(name=st.sampled_from(["status", "pleg", "probe", "volume", "image_pull"]), moment=MOMENTS)
    def kill_peer(self, name: str, moment: float) -> None:
        self.world.kill_peer(name)
        self._then(moment)

    @rule(moment=MOMENTS)
    def wait(self, moment: float) -> None:
        self._then(moment)

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            goals.settle(self.world)
            for pods in self.world.wanted.values():
                for pod in list(pods.values()):
                    self.world.update(self.source, "REMOVE", pod)
            goals.settle(self.world)
            assert not self.world.runtime.sandboxes
            assert not self.world.runtime.containers
        finally:
            self.stack.close()


OnePod.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
TestOnePod = pytest.mark.timeout(max(600, EXAMPLES))(OnePod.TestCase)
