"""Injected faults of a real agent, and the root cause that `supervisor why` names first.

`rows` makes each fault with real parts: pods, images, volumes, hooks and processes of an agent with its own runtime.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from proto.agent.actor import Describe
from proto.waits.obstacles import CRASH_LOOP
from proto.waits.resolve import UnknownSubjectError
from proto.wire.errors import ActorError
from supervisor.cli.agent.why import explain
from supervisor.cli.errors import CommandError
from supervisor.sockets.client import Client
from tests.agent.agent import Agent
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for

IMAGE = "docker.io/library/busybox:latest"
WITHIN_S = 40.0
"""The longest wait for a fault's effect, such as a crash loop. The answer itself has MOST_MS."""
MOST_MS = 100.0
Prepare = Callable[[Agent], Any]


class Fault(NamedTuple):
    """A fault of one pod: its spec, the subject of the question, and the first cause that is right."""

    spec: dict[str, Any]
    code: str
    text: str
    subject: str = ""
    """Of the question; empty: the pod."""
    remove: bool = False
    """Remove the pod once it runs: its end is the fault."""
    again: bool = False
    """Ask once the container is held back before its next start."""
    most_ms: float = MOST_MS
    """Most time of an answer. Figures of a CPU limit take two readings."""


def pod(name: str, spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """A static pod of one container that sleeps, which `container` changes."""
    app = {"name": "app", "image": IMAGE, "command": ["sh", "-c", "trap exit TERM; while :; do sleep 1; done"]}
    whole = {"terminationGracePeriodSeconds": 1, "containers": [app | container], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def volume(source: dict[str, Any]) -> dict[str, Any]:
    """The spec and container of a pod with this volume."""
    return {"spec": {"volumes": [{"name": "data", **source}]}, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}


def env(source: str, name: str, key: str) -> dict[str, Any]:
    """A variable from a key of a ConfigMap or Secret."""
    return {"env": [{"name": "A", "valueFrom": {source: {"name": name, "key": key}}}]}


def failing(said: str) -> dict[str, Any]:
    """A probe that fails with this output."""
    return {"exec": {"command": ["sh", "-c", f"echo {said}; exit 1"]}, "periodSeconds": 1, "failureThreshold": 2}


def init(command: list[str]) -> dict[str, Any]:
    """An init container."""
    return {"name": "setup", "image": IMAGE, "command": command}


IGNORES_TERM = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
HANG = {"exec": {"command": ["sleep", "300"]}}
POD_FAULTS = {
    "Secret of a volume missing": Fault(
        volume({"secret": {"secretName": "gone"}}), "condition", 'secret "gone" not found'
    ),
    "ConfigMap of a volume missing": Fault(
        volume({"configMap": {"name": "gone"}}), "condition", 'configmap "gone" not found'
    ),
    "ConfigMap of a variable missing": Fault(
        env("configMapKeyRef", "gone", "k"), "retry", 'configmap "gone" not found'
    ),
    "key of a ConfigMap missing": Fault(env("configMapKeyRef", "there", "gone"), "retry", "couldn't find key gone"),
    "Secret of a variable missing": Fault(env("secretKeyRef", "gone", "k"), "retry", 'secret "gone" not found'),
    "claim missing": Fault(volume({"persistentVolumeClaim": {"claimName": "gone"}}), "condition", '"gone" not found'),
    "CSI driver missing": Fault(volume({"csi": {"driver": "gone.example.com"}}), "condition", "gone.example.com"),
    "directory of the host missing": Fault(
        volume({"hostPath": {"path": "/nonexistent", "type": "Directory"}}), "condition", "/nonexistent"
    ),
    "registry refuses": Fault({"image": "localhost:1/ghost:1"}, "retry", "localhost:1"),
    "registry refuses, asked of the image": Fault(
        {"image": "localhost:1/other:1"}, "retry", "localhost:1", "image/other:1"
    ),
    "registry does not answer": Fault({"image": "localhost:{stalled}/slow:1"}, "cri", "localhost:{stalled}/slow:1"),
    "image never pulled": Fault({"image": "x.test/a:1", "imagePullPolicy": "Never"}, "retry", "ErrImageNeverPull"),
    "image name invalid": Fault({"image": "UPPER//x"}, "retry", "InvalidImageName"),
    "program missing, after a restart": Fault({"command": ["/gone"]}, "retry", "/gone", again=True),
    "root although runAsNonRoot": Fault({"securityContext": {"runAsNonRoot": True}}, "retry", "runAsNonRoot"),
    "crash loop": Fault({"command": ["sh", "-c", "exit 3"]}, "retry", "ends with exit code 3, and is restarted"),
    "out of memory": Fault(
        {
            "command": ["sh", "-c", "x=a; while true; do x=$x$x; done"],
            "resources": {"limits": {"memory": "20Mi"}},
        },
        "retry",
        "ends with exit code 137",
    ),
    "liveness probe fails": Fault({"livenessProbe": failing("broken")}, "retry", ": Liveness probe failed: broken"),
    "readiness probe fails": Fault(
        {"readinessProbe": failing("not yet")}, "status", "container app: Readiness probe failed: not yet"
    ),
    "startup probe fails": Fault(
        {"startupProbe": {**failing("not up"), "failureThreshold": 300}},
        "status",
        "container app: Startup probe failed: not up",
    ),
    "postStart hook fails": Fault(
        {"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}}, "retry", "its postStart hook failed"
    ),
    "init container fails": Fault(
        {"spec": {"initContainers": [init(["sh", "-c", "exit 4"])]}}, "retry", "container setup ends with exit code 4"
    ),
    "init container hangs": Fault(
        {"spec": {"initContainers": [init(["sleep", "300"])]}}, "status", "waits for its init container setup"
    ),
    "failed": Fault(
        {"spec": {"restartPolicy": "Never"}, "command": ["sh", "-c", "exit 5"]},
        "status",
        "has failed with exit code 5",
    ),
    "manifest refused": Fault({"spec": {"serviceAccountName": "x"}}, "manifest", "spec.serviceAccountName"),
    "CPU beyond the node": Fault({"resources": {"requests": {"cpu": "9999"}}}, "admission", "cpu"),
    "node selector": Fault({"spec": {"nodeSelector": {"disk": "gone"}}}, "admission", "NodeAffinity"),
    "memory beyond the node": Fault({"resources": {"requests": {"memory": "9999Gi"}}}, "admission", "Mi of memory"),
    "sysctl not allowed": Fault(
        {"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}},
        "admission",
        "SysctlForbidden",
    ),
    "deadline passed": Fault({"spec": {"activeDeadlineSeconds": 1}}, "admission", "was ended by the node"),
    "readiness gate": Fault({"spec": {"readinessGates": [{"conditionType": "x.test/lb"}]}}, "status", "gate x.test/lb"),
    "command ends": Fault({"command": ["true"]}, "retry", "have its command run on"),
    "postStart hook hangs": Fault({"lifecycle": {"postStart": HANG}}, "hook", "postStart hook of container app"),
    "preStop hook hangs": Fault(
        {"spec": {"terminationGracePeriodSeconds": 30}, "lifecycle": {"preStop": HANG}},
        "hook",
        "preStop hook of container app; the grace period ends it in ",
        remove=True,
    ),
    "SIGTERM ignored": Fault(
        {
            "spec": {"terminationGracePeriodSeconds": 30},
            "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
        },
        "hook",
        "container app to end within",
        remove=True,
    ),
    "SIGTERM ignored after a failed probe": Fault(
        {
            "spec": {"terminationGracePeriodSeconds": 45},
            "command": IGNORES_TERM,
            "livenessProbe": failing("broken"),
        },
        "hook",
        "; it is killed: Liveness probe failed: broken; SIGTERM has not ended it",
    ),
    "crash loop, asked without the node's name": Fault(
        {"command": ["sh", "-c", "echo starting; echo FATAL: no database >&2; exit 1"]},
        "retry",
        "exit code 1, last with 'FATAL: no database', and is restarted; ",
        "pod/{name}",
    ),
    "age of a crash loop": Fault({"command": ["false"]}, "retry", "; its restart loop began ", again=True),
    "no memory for the start": Fault(
        {"resources": {"limits": {"memory": "64Ki"}}}, "retry", "raise limits.memory", again=True
    ),
    "init container says what it waits for": Fault(
        {"spec": {"initContainers": [init(["sh", "-c", "echo waiting for db; sleep 300"])]}},
        "status",
        "has not ended, last with 'waiting for db'",
    ),
    "CPU limit behind a probe's timeout": Fault(
        {
            "command": ["sh", "-c", "while :; do :; done"],
            "resources": {"limits": {"cpu": "20m"}},
            "readinessProbe": {
                "exec": {"command": ["sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"]},
                "periodSeconds": 2,
            },
        },
        "status",
        "by limits.cpu of 20m: raise limits.cpu or timeoutSeconds",
        most_ms=2000.0,
    ),
    "liveness probe fails at times": Fault(
        {
            "livenessProbe": {
                "exec": {"command": ["sh", "-c", "[ -e /seen ] || { touch /seen; echo at times; exit 1; }"]},
                "periodSeconds": 1,
            }
        },
        "",
        "is Running and waits for nothing; but lately: Liveness probe failed: at times (",
    ),
}
EMPTY_DIR = volume({"emptyDir": {}})


def rows() -> list[dict[str, Any]]:
    """A row for each fault: what was answered in which time, and whether that is right."""
    return list(each_row())


def each_row() -> Iterator[dict[str, Any]]:
    """The same, one by one."""
    with stalled_registry() as port, embedded_agent(prepare=with_objects) as agent:
        faults = {name: _at(fault, port) for name, fault in POD_FAULTS.items()}
        for number, fault in enumerate(faults.values()):
            start(agent, f"f{number}", fault.spec)
        for number, (name, fault) in enumerate(faults.items()):
            yield pod_row(agent, name, f"f{number}", fault)
        for name, (process, code, text) in PROCESS_FAULTS.items():
            yield process_row(agent, name, process, code, text)
        for name, number, text in AGENT_FAULTS:
            yield agent_row(agent, name, number, text)


def _at(fault: Fault, port: int) -> Fault:
    """The fault with the stalled registry's port."""
    spec = {key: value.format(stalled=port) if key == "image" else value for key, value in fault.spec.items()}
    return fault._replace(spec=spec, text=fault.text.format(stalled=port) if "stalled" in fault.text else fault.text)


def with_objects(agent: Agent) -> None:
    """Give the agent a directory of objects with one ConfigMap."""
    directory = agent.dir / "objects"
    directory.mkdir()
    there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there", "namespace": "default"}, "data": {}}
    (directory / "there.yaml").write_text(yaml.safe_dump(there))
    agent.flags += ["--objects-dir", str(directory)]


@contextmanager
def stalled_registry() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def start(agent: Agent, name: str, container: dict[str, Any]) -> None:
    """Write the pod's manifest."""
    container = dict(container)
    spec = container.pop("spec", None)
    (agent.manifests / f"{name}.yaml").write_text(yaml.safe_dump(pod(name, spec, **container)))


def pod_row(agent: Agent, name: str, pod_name: str, fault: Fault) -> dict[str, Any]:
    """Ask about a pod until the first cause is right."""
    if fault.remove:
        _until(lambda: _runs(agent, pod_name), WITHIN_S)
        (agent.manifests / f"{pod_name}.yaml").unlink()
    if fault.again:
        _until(lambda: _is_held_back(agent, pod_name), WITHIN_S)
    subject = fault.subject.format(name=pod_name) or f"pod/{pod_name}-vm"
    return ask(agent, name, subject, fault.code, fault.text, fault.most_ms)


def _is_held_back(agent: Agent, name: str) -> bool:
    states = agent.pods().get(name, {}).get("status", {}).get("containerStatuses", [])
    return any(one.get("state", {}).get("waiting", {}).get("reason") == CRASH_LOOP for one in states)


def _runs(agent: Agent, name: str) -> bool:
    return bool(agent.pods().get(name, {}).get("status", {}).get("phase") == "Running")


def _until(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def ask(agent: Agent, name: str, subject: str, code: str, text: str, most_ms: float = MOST_MS) -> dict[str, Any]:
    """Ask until the answer is right and quick, or WITHIN_S is over. The quickest of three answers counts."""
    deadline = time.monotonic() + WITHIN_S
    row: dict[str, Any] = {"row": f"why: {name}", "measured": "no answer", "passed": False}
    while time.monotonic() < deadline:
        took, first, sentence = [], "", ""
        for _ in range(3):
            began = time.monotonic()
            with contextlib.suppress(CommandError, UnknownSubjectError):
                answer = explain(Path(agent.run_dir), subject)
                took.append((time.monotonic() - began) * 1000)
                first, sentence = answer.causes[0].code if answer.causes else "", answer.sentence
        if took:
            row["measured"] = f"{min(took):.0f} ms: {first}: {sentence}"
        if took and min(took) < most_ms and first == code and text in sentence:
            return row | {"passed": True}
        time.sleep(0.2)
    return row


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Stop these processes in order, and continue them."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a helper that was idle for long enough
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


PROCESS_FAULTS = {
    "volume stopped": ("volume", "actor-stopped", "waits for volume, which is stopped by a signal"),
    "pod_workers stopped": ("pod_workers", "actor-stopped", "waits for pod_workers, which is stopped by a signal"),
    "image_pull stopped": ("image_pull", "actor-stopped", "waits for image_pull, which is stopped by a signal"),
    "runtime stopped": ("runtime", "runtime-stopped", "RunPodSandbox"),
    "volume's helper stopped": ("helper", "helper-stopped", "the helper process that does"),
}
"""By fault: the process that is stopped before a new pod comes, the code and the text of the first cause."""


def _idle_helpers(agent: Agent, name: str) -> list[int]:
    """PIDs of volume's helpers once the pod has its volume and none is at work. Idle ones end after a few seconds."""
    uid = agent.pod(name).get("metadata", {}).get("uid", "")
    if not (agent.root_dir / "pods" / uid / "volumes/kubernetes.io~empty-dir/data").exists():
        return []
    with contextlib.suppress(ActorError, OSError), Client(agent.run_dir) as client:  # a thread may go meanwhile
        helpers = client.ask("volume", Describe()).state["helpers"]
        if helpers["idle"] and not helpers["busy"]:
            # The children of all threads: the kernel lists them by the thread that forked them.
            lists = Path(f"/proc/{agent.rows()['volume']['pid']}/task").glob("*/children")
            return [int(child) for one in lists for child in one.read_text().split()]
    return []


def process_row(agent: Agent, name: str, process: str, code: str, text: str) -> dict[str, Any]:
    """Stop a process, and the supervisor, which would replace it. Then ask about a new pod."""
    assert agent.process is not None
    new = name.split(maxsplit=1)[0].replace("'s", "-helper").replace("_", "-")
    if process == "helper":
        start(agent, "before", EMPTY_DIR)
        # Not until the pod runs: on a busy machine that takes longer than a helper stays idle.
        pids = wait_for(lambda: _idle_helpers(agent, "before"), WITHIN_S, "a helper of volume is idle")
    else:
        pids = [agent.rows()[process]["pid"]]
    with frozen(agent.process.pid, *pids):
        start(agent, new, EMPTY_DIR)
        return ask(agent, name, f"pod/default/{new}-vm", code, text)


AGENT_FAULTS = (
    ("agent stopped", signal.SIGTERM, "is not running (it was stopped)"),
    ("agent killed", signal.SIGKILL, "is not running (its supervisor ended without a stop)"),
)
"""Name, signal to the supervisor, text of the cause."""


def agent_row(agent: Agent, name: str, number: signal.Signals, text: str) -> dict[str, Any]:
    """End the supervisor, ask about the node, and start the next one."""
    assert agent.process is not None
    agent.process.send_signal(number)
    agent.process.wait(30)
    try:
        return ask(agent, name, "node", "agent-gone", text)
    finally:
        agent.start()


def main() -> int:
    """Print the rows; 1 when one failed."""
    failed = 0
    for row in each_row():
        print("ok  " if row["passed"] else "FAIL", row["row"], "-", row["measured"], flush=True)
        failed += not row["passed"]
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
