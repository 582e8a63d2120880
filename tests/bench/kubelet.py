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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.bench.harness.node import NAME, Figures, Node, clear, joined_agent, settled, shared, up_and_gone
from tests.bench.reporting.table import print_table
from tests.cgroups import MOUNT, remove_cgroups
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane import ControlPlane, missing_control_plane
from tests.controlplane.binaries import find
from tests.ports import free_port

ADDRESS = "10.99.99.1"
"""Of the node, on a bridge without ports: a kubelet refuses one of loopback."""
INSIDE = "NODEVISOR_BENCH_INSIDE"
SINGLES = 5
SETTINGS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)  # fmt: skip
"""Settings of a kubelet; ContainerManager of pkg/kubelet/cm."""
Start = Callable[[ControlPlane, ContainerdInstance, Path], AbstractContextManager[int]]
"""Starts a node agent named as the node; yields its pid."""


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
        node = settled(Node(pid, plane, containerd.cri))
        found = {"PSS without pods, MB": node.pss_mb()}
        singles = [up_and_gone(node, 1)[0] for _ in range(SINGLES + 1)][1:]  # the first pod is slower on each
        for what in singles[0]:
            found[f"1 pod {what}"] = statistics.median(one[what] for one in singles)
        for count in counts:
            times, others = up_and_gone(node, count, idle_s if count == counts[-1] else 0.0)
            found |= {f"{count} pods {what}": value for what, value in (times | others).items()}
    clear(plane, containerd.cri)
    return found


@contextmanager
def _agent(plane: ControlPlane, containerd: ContainerdInstance, _: Path) -> Iterator[int]:
    with joined_agent(plane, containerd, "--node-ip", ADDRESS) as agent:
        assert agent.process is not None
        yield agent.process.pid


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
        **shared({"clientCAFile": str(plane.dir / "pki/ca.crt")}),
    }


def _command(program: str, plane: ControlPlane, containerd: ContainerdInstance, directory: Path) -> list[str]:
    flags = {
        "config": directory / "config.yaml",
        "kubeconfig": plane.kubeconfig(NAME),
        "container-runtime-endpoint": containerd.endpoint,
        "root-dir": directory / "root",
        "cert-dir": directory / "pki",
        "hostname-override": NAME,
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
