"""`make test-upstream`: `python -m tests.upstream [--runtime embedded] [--focus REGEX] [--report DIR]`.

With `--suite node` it runs upstream's suite of one node (tests/upstream/node) instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import yaml

from tests.agent.agent import Agent
from tests.agent.embedded import embedded_agent
from tests.agent.joined import node_ready
from tests.containerd import ContainerdInstance
from tests.containerd.images import busybox, write_archive
from tests.containerd.machine import CannotBuild
from tests.controlplane import ControlPlane
from tests.controlplane.binaries import CACHE, own_kubectl
from tests.harness import wait_for
from tests.upstream import node, specs
from tests.upstream.images import PROGRAMS, curl, images
from tests.upstream.node.machine import run_of_node
from tests.upstream.report import read

BUILD = Path(__file__).resolve().parents[2] / ".ci/kubernetes"
NODE = "upstream"
KUBELET_PORT = 10250
"""Some specs take it for given."""
BINDING = {
    "metadata": {"name": "upstream:kubelet-api"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "kubelet-clients"}],
}
"""The API server's certificate is of this group; see ControlPlane."""


def main() -> int:
    """1 when a spec has failed or none has run."""
    options = _parser().parse_args()
    of_node = options.suite == "node"
    try:
        curl()
    except CannotBuild as error:  # before the build, which takes ten minutes
        print(error, file=sys.stderr)
        return 1
    programs = (*PROGRAMS, *node.PROGRAMS) if of_node else PROGRAMS
    if missing := [program for program in programs if not (CACHE / program).exists()]:
        subprocess.run([BUILD, *missing], check=True)
    report: Path = options.report or Path(tempfile.mkdtemp(prefix="nv-upstream-"))
    report.mkdir(parents=True, exist_ok=True)
    for older in report.rglob("junit_*.xml"):  # it would count as this run's
        older.unlink()
    if of_node:
        print(f"Running; output: {report}/output", flush=True)
        run_of_node(report, options.focus, options.skip)
    else:
        _run_on_cluster(options, report)
    found = read(report)
    for name, text in sorted(found.failures.items()):
        print(f"FAILED {name}: {text}")
    print(f"The suite's output, JUnit files and the agent's log: {report}")
    print(f"{found.passed} passed, {len(found.failures)} failed")
    return int(bool(found.failures) or not found.passed)


def _run_on_cluster(options: argparse.Namespace, report: Path) -> None:
    with ControlPlane(controllers=True) as plane:
        plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", BINDING)
        start = _on_embedded if options.runtime == "embedded" else _on_containerd
        with start(plane) as agent:
            try:
                wait_for(lambda: node_ready(plane, NODE), 90, f"the node is Ready; log: {report}/agent.log")
                _run(plane, options, report)
            finally:
                shutil.copy(agent.log, report / "agent.log")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description="run upstream's specs on an agent")
    parser.add_argument("--suite", choices=("e2e", "node"), default="e2e", help="node: test/e2e_node, on containerd")
    parser.add_argument("--runtime", choices=("containerd", "embedded"), default="containerd")
    parser.add_argument("--focus", help="regular expression of Go; default: see specs.py of the suite")
    parser.add_argument("--skip", help="the same of those to leave out")
    parser.add_argument("--nodes", type=int, default=6, help="specs side by side")
    parser.add_argument("--report", type=Path, help="directory for the results; default: a new one in /tmp")
    return parser


def _run(plane: ControlPlane, options: argparse.Namespace, report: Path) -> None:
    """Run the suite. Its output and its JUnit files go to the report directory."""
    command = [
        CACHE / "ginkgo", f"-nodes={options.nodes}", "-noColor", f"-focus={options.focus or specs.focus()}",
        f"-skip={options.skip or specs.skip()}", CACHE / "e2e.test", "--",
        f"--kubeconfig={plane.admin}", f"--kubectl-path={own_kubectl()}", f"--report-dir={report}",
        "--provider=skeleton", "--num-nodes=1", "--allowed-not-ready-nodes=0", "--minStartupPods=0",
        "--disable-log-dump", "--container-runtime=remote",
    ]  # fmt: skip
    print(f"Running; output: {report}/output", flush=True)
    with (report / "output").open("wb") as output:
        subprocess.run(
            [str(part) for part in command], stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=report,
            env={**os.environ, "KUBECONFIG": str(plane.admin), "TMPDIR": str(report)}, check=False,
        )  # fmt: skip


@contextmanager
def _on_containerd(plane: ControlPlane) -> Iterator[Agent]:
    directory = Path(tempfile.mkdtemp(prefix="nv-upstream-"))
    with (
        ContainerdInstance(directory, images(), host_ports=True) as containerd,
        closing(Agent(containerd, NODE)) as agent,
    ):
        _join(agent, plane)
        agent.start(wait=False)
        yield agent


@contextmanager
def _on_embedded(plane: ControlPlane) -> Iterator[Agent]:
    def prepare(agent: Agent) -> None:
        agent.node = NODE
        write_archive(agent.dir / "images" / "images.tar", [busybox(), *images()])
        _join(agent, plane)

    with embedded_agent(prepare=prepare, wait=False) as agent:
        yield agent


def _join(agent: Agent, plane: ControlPlane) -> None:
    """Configure the agent as a node of the control plane, whose server reaches it as a cluster's would."""
    agent.port = KUBELET_PORT
    agent.flags += ["--kubeconfig", str(plane.kubeconfig(NODE)), "--fail-swap-on=false"]
    config = yaml.safe_load(agent.config.read_text()) | {
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(plane.dir / "pki/ca.crt")}},
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
    }
    agent.config.write_text(yaml.safe_dump(config))


if __name__ == "__main__":
    sys.exit(main())
