"""Pods of a real API server on the agent and on a real kubelet, in turns, on one containerd: `make bench-kubelet`.

The kubelet is KUBELET=PATH, or Debian's, which `.ci/kubernetes kubelet` builds. All of it runs in network and mount
namespaces of its own, since a kubelet writes iptables rules and fixed directories. Kernel settings that it changes are
set back.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from actors._cri.client import Cri
from tests.agent.agent import Agent
from tests.bench import pods, usage
from tests.bench.table import print_table
from tests.cgroups import MOUNT, remove_cgroups
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane import ControlPlane, missing_control_plane
from tests.controlplane.binaries import find
from tests.harness import wait_for
from tests.ports import free_port

PODS = "/api/v1/namespaces/default/pods"
ADDRESS = "10.99.99.1"
"""Of the node, on a bridge without ports: a kubelet refuses one of loopback."""
INSIDE = "NODEVISOR_BENCH_INSIDE"
SINGLES = 5
DEADLINE_S = 180.0
SETTINGS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)  # fmt: skip
"""What a kubelet sets; ContainerManager of pkg/kubelet/cm."""
Figures = dict[str, float]
Start = Callable[[ControlPlane, ContainerdInstance, Path], AbstractContextManager[int]]
"""Starts a node agent named as the node; yields its pid."""


class Node(NamedTuple):
    """A node of the control plane with its agent at work."""

    name: str
    pid: int
    plane: ControlPlane
    cri: Cri

    def create(self, name: str) -> None:
        """Create a pod that is bound to the node."""
        pod = json.loads(pods.manifest(name))
        spec = {**pod["spec"], "nodeName": self.name, "tolerations": [{"operator": "Exists"}]}
        self.plane.call("POST", PODS, pod | {"spec": spec})

    def ready(self) -> int:
        """The number of Ready pods."""
        return sum(map(_is_ready, self.plane.call("GET", PODS)["items"]))

    def gone(self) -> bool:
        """True when the API server has no pod."""
        return not self.plane.call("GET", PODS)["items"]

    def cpu_s(self) -> float:
        """CPU seconds of the agent with its processes so far."""
        return sum(usage.cpu_s(self.pid).values())

    def pss_mb(self) -> float:
        """Its memory."""
        return sum(usage.pss_mb(self.pid).values())


def main() -> int:
    """Run it; 1 when the machine lacks what it needs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kubelet", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pods", default="50,100", help="numbers of pods; one pod is always measured")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    kubelet = os.environ.get("KUBELET") or find("kubelet")
    if problem := missing_requirements() or missing_control_plane():
        print(problem, file=sys.stderr)
        return 1
    if kubelet is None:
        print(
            "cannot find a kubelet: name one with KUBELET=PATH, or build Debian's: .ci/kubernetes kubelet",
            file=sys.stderr,
        )
        return 1
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "yes"
        os.execvp(
            "unshare", ["unshare", "--net", "--mount", sys.executable, "-m", "tests.bench.kubelet", *sys.argv[1:]]
        )
    counts = [int(part) for part in options.pods.split(",")]
    version = _version(kubelet)
    with _own_machine():
        found = measure(kubelet, counts, options.rounds, options.idle_seconds)
    if options.json:
        print(json.dumps({"kubelet": version, "ours": found[0], "theirs": found[1]}, indent=2))
        return 0
    print(f"\nMedians of {options.rounds} rounds; the kubelet is {version}")
    rows = [(name, *_medians(name, found)) for name in found[0]]
    print_table(("FIGURE", "OURS", "KUBELET", "OURS BY KUBELET"), rows)
    return 0


def _medians(name: str, found: Sequence[dict[str, list[float]]]) -> tuple[float, float, float]:
    ours, theirs = (statistics.median(one[name]) for one in found)
    return ours, theirs, ours / theirs if theirs else float("nan")


def _version(kubelet: str) -> str:
    said = subprocess.run([kubelet, "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().removeprefix("Kubernetes ")


@contextmanager
def _own_machine() -> Iterator[None]:
    """A network with one address, and empty directories where a kubelet writes. Sets the kernel's settings back."""
    script = (
        "ip link set lo up && ip link add nvnode type bridge && ip address add {0}/24 dev nvnode && "
        "ip link set nvnode up && ip route add default dev nvnode && "
        "mount -t tmpfs logs /var/log && mount -t tmpfs state /var/lib && mkdir /var/lib/kubelet"
    )
    subprocess.run(["sh", "-c", script.format(ADDRESS)], check=True)
    before = {name: Path("/proc/sys", name).read_text() for name in SETTINGS}
    try:
        yield
    finally:
        for name, value in before.items():
            Path("/proc/sys", name).write_text(value)


def measure(kubelet: str, counts: list[int], rounds: int, idle_s: float) -> tuple[dict[str, list[float]], ...]:
    """The figures of each round, ours and the kubelet's."""
    starts: tuple[tuple[str, Start], ...] = (("ours", _agent), ("theirs", _kubelet_of(kubelet)))
    found: tuple[dict[str, list[float]], ...] = ({}, {})
    with (
        tempfile.TemporaryDirectory(prefix="nvbk-") as directory,
        ContainerdInstance(Path(directory, "containerd")) as containerd,
        ControlPlane() as plane,
    ):
        for number in range(rounds):
            for which, (name, start) in enumerate(starts):
                _progress(f"round {number + 1} of {rounds}: {name} ...")
                for figure, value in _turn(start, plane, containerd, counts, idle_s).items():
                    found[which].setdefault(figure, []).append(value)
    return found


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _turn(
    start: Start, plane: ControlPlane, containerd: ContainerdInstance, counts: list[int], idle_s: float
) -> Figures:
    """One agent's life: single pods, then each number of pods, up, at rest, and gone."""
    with tempfile.TemporaryDirectory(prefix="nvbk-") as name, start(plane, containerd, Path(name)) as pid:
        node = Node("bench", pid, plane, containerd.cri)
        wait_for(lambda: _is_ready(plane.get("/api/v1/nodes/bench") or {}), DEADLINE_S, "the node is Ready")
        time.sleep(2.0)  # what the agent does after its start is not a pod's cost
        found = {"PSS without pods, MB": node.pss_mb()}
        singles = [_up_and_gone(node, 1)[0] for _ in range(SINGLES + 1)][1:]  # the first pod is slower on each
        for what in singles[0]:
            found[f"1 pod {what}"] = statistics.median(one[what] for one in singles)
        for count in counts:
            times, others = _up_and_gone(node, count, idle_s if count == counts[-1] else 0.0)
            found |= {f"{count} pods {what}": value for what, value in (times | others).items()}
    _clear(plane, containerd.cri)
    return found


def _up_and_gone(node: Node, count: int, idle_s: float = 0.0) -> tuple[Figures, Figures]:
    """Seconds until `count` pods are Ready, and gone from the API server; then the agent's own figures."""
    poll_s = 0.01 if count == 1 else 0.2
    names = [f"bench-{number}" for number in range(count)]
    cpu_0, began = node.cpu_s(), time.monotonic()
    for name in names:
        node.create(name)
    _until(lambda: node.ready() == count, poll_s)
    up_s, cpu_1 = time.monotonic() - began, node.cpu_s()
    others: Figures = {}
    if idle_s:
        others = {"PSS, MB": node.pss_mb(), "idle, % of a core": _idle(node, idle_s)}
    cpu_2, began = node.cpu_s(), time.monotonic()
    for name in names:
        node.plane.call("DELETE", f"{PODS}/{name}", {})
    _until(node.gone, poll_s)
    gone_s, cpu_3 = time.monotonic() - began, node.cpu_s()
    times = {"create to Ready, s": up_s, "delete to gone, s": gone_s}
    return times, {"CPU up, s": cpu_1 - cpu_0, "CPU gone, s": cpu_3 - cpu_2} | others


def _idle(node: Node, seconds: float) -> float:
    time.sleep(3.0)  # the last status writes
    before = node.cpu_s()
    time.sleep(seconds)
    return 100 * (node.cpu_s() - before) / seconds


def _until(condition: Callable[[], bool], poll_s: float) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the pods take more than {DEADLINE_S:g} s")
        time.sleep(poll_s)


def _is_ready(one: dict[str, Any]) -> bool:
    conditions = one.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _clear(plane: ControlPlane, cri: Cri) -> None:
    """Remove what the agent leaves for later: dead sandboxes, and the Node."""
    for sandbox in cri.list_pod_sandbox().result():
        cri.stop_pod_sandbox(sandbox.id).result()
        cri.remove_pod_sandbox(sandbox.id).result()
    plane.call("DELETE", "/api/v1/nodes/bench")


@contextmanager
def _agent(plane: ControlPlane, containerd: ContainerdInstance, _: Path) -> Iterator[int]:
    with closing(Agent(containerd, "bench")) as agent:
        config = {"clientCAFile": str(plane.dir / "pki/ca.crt")}
        whole = yaml.safe_load(agent.config.read_text()) | _shared(config)
        agent.config.write_text(yaml.safe_dump(whole))
        agent.start("--kubeconfig", str(plane.kubeconfig("bench")), "--node-ip", ADDRESS)
        assert agent.process is not None
        yield agent.process.pid


def _shared(x509: dict[str, str]) -> dict[str, Any]:
    """Fields of the KubeletConfiguration of both."""
    return {
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}, "x509": x509},
        "authorization": {"mode": "AlwaysAllow"},
        "maxPods": 1000,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }


def _kubelet_of(program: str) -> Start:
    """A kubelet with directories and a cgroup root of its own."""

    @contextmanager
    def start(plane: ControlPlane, containerd: ContainerdInstance, directory: Path) -> Iterator[int]:
        cgroup = directory.name
        _make_cgroups(cgroup)
        config = directory / "config.yaml"
        config.write_text(json.dumps(_configuration(plane, directory, cgroup)))
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(_command(program, plane, containerd, directory), stdout=log, stderr=log)
        try:
            yield process.pid
        except BaseException:
            print((directory / "log").read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(30)
            _unmount_below(directory)
            remove_cgroups(cgroup)

    return start


def _configuration(plane: ControlPlane, directory: Path, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "port": free_port(),
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "volumePluginDir": str(directory / "plugins"),
        **_shared({"clientCAFile": str(plane.dir / "pki/ca.crt")}),
    }


def _command(program: str, plane: ControlPlane, containerd: ContainerdInstance, directory: Path) -> list[str]:
    flags = {
        "config": directory / "config.yaml",
        "kubeconfig": plane.kubeconfig("bench"),
        "container-runtime-endpoint": containerd.endpoint,
        "root-dir": directory / "root",
        "cert-dir": directory / "pki",
        "hostname-override": "bench",
        "node-ip": ADDRESS,
    }
    minor = re.search(r"v1\.(\d+)", _version(program))
    if minor is not None and int(minor[1]) < 24:
        flags |= {"container-runtime": "remote", "image-service-endpoint": containerd.endpoint}
    if minor is not None and int(minor[1]) < 31:  # it refuses fields that it does not know
        config = json.loads((directory / "config.yaml").read_text())
        del config["failCgroupV1"]
        (directory / "config.yaml").write_text(json.dumps(config))
    return [program, *(f"--{name}={value}" for name, value in flags.items())]


def _make_cgroups(name: str) -> None:
    """The cgroup root, which a kubelet does not make. Of cgroup v1's cpuset, a new one has no CPUs."""
    for hierarchy in (one for one in MOUNT.iterdir() if one.is_dir() and not one.is_symlink()):
        (hierarchy / name).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / file).exists():
                (hierarchy / name / file).write_text((hierarchy / file).read_text())


def _unmount_below(directory: Path) -> None:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    for path in sorted((line.split()[4] for line in lines), reverse=True):
        if path.startswith(f"{directory}/"):
            subprocess.run(["umount", "--lazy", path], check=True)


if __name__ == "__main__":
    sys.exit(main())
