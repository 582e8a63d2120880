"""Traces of a running pod on the node, and their removal: cgroups by QoS, logs and log links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.agent import SLEEP, Agent, container, pod
from tests.agent.changing import UNIFIED, container_cgroup, pod_cgroup, pod_cgroups
from tests.agent.faults import expect_nothing
from tests.agent.table import Case, Seen, Table, once, ready, running
from tests.cgroups import cgroup_name
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

SMALL = {"cpu": "10m", "memory": "16Mi"}
PIDS = 300


def asking(**resources: Any) -> dict[str, Any]:
    return pod("", container("c", SLEEP, resources=resources))


def leaves_no_cgroup(seen: Seen) -> None:
    """Check one hierarchy after the other."""
    uid = seen.item["metadata"]["uid"]
    names = (f"pod{uid}", f"-pod{uid.replace('-', '_')}.slice")

    def left() -> bool:
        return any(path.name.endswith(names) for path in pod_cgroups(seen.table.agent.dir.name))

    wait_for(lambda: not left(), 20, "its cgroup goes when it is over")


def cgroup(seen: Seen, controller: str) -> Path:
    return pod_cgroup(seen.table.agent.dir.name, seen.item["metadata"]["uid"], controller)


def lies_in(parent: str, qos: str) -> Callable[[Seen], None]:
    """Its cgroup, with those of its container and, where the runtime has a process for it, its sandbox below."""

    def check(seen: Seen) -> None:
        assert seen.status["qosClass"] == qos
        for controller in ("cpu", "memory"):
            own = cgroup(seen, controller)
            root, uid = seen.table.agent.dir.name, seen.item["metadata"]["uid"]
            assert str(own).endswith(cgroup_name(root, *parent.split("/"), f"pod{uid}"))
            identity = seen.container()["containerID"].partition("://")[2]
            of_container = container_cgroup(own, identity).relative_to(own).parts[0]
            below = {one.name for one in own.iterdir() if one.is_dir()} - {of_container}
            assert all(any(box in name for box in seen.table.agent.sandboxes()) for name in below), below

    return check


def is_overhead_counted(seen: Seen) -> None:
    """RuntimeClass overhead (KEP-688) is the pod's, beside what its containers ask for."""
    assert _number(cgroup(seen, "memory"), "memory.limit_in_bytes", "memory.max") == 24 << 20
    assert _number(cgroup(seen, "cpu"), "cpu.cfs_quota_us", "cpu.max") == 3000


def has_a_limit_of_processes(seen: Seen) -> None:
    """podPidsLimit, for all processes of the pod together."""
    assert _number(cgroup(seen, "pids"), "pids.max", "pids.max") == PIDS


def _number(directory: Path, *names: str) -> int:
    """The first number in the file of cgroup v1 or v2."""
    return int((directory / names[UNIFIED]).read_text().split()[0])


def logs_in_its_directory(seen: Seen) -> None:
    meta = seen.item["metadata"]
    agent = seen.table.agent
    file = agent.dir / "logs" / f"default_{meta['name']}_{meta['uid']}" / "c" / "0.log"
    identity = seen.container()["containerID"].partition("://")[2]
    link = agent.dir / "container-logs" / f"{meta['name']}_default_c-{identity}.log"
    assert link.is_symlink()
    assert link.readlink() == file

    def lines() -> list[list[str]]:
        return [parts for line in file.read_text().splitlines() if len(parts := line.split(" ", 3)) == 4]

    # Two streams have no order between them; of a long line all parts but the last are marked. containerd may write an
    # output's last lines after the exit.
    kinds = [("stderr", "F"), ("stdout", "F"), ("stdout", "P")]
    wait_for(lambda: sorted({(stream, tag) for _, stream, tag, _ in lines()}) == kinds, what=f"{kinds} in the log")
    assert all(stamp.endswith(("Z", "+00:00")) and "." in stamp for stamp, *_ in lines())
    assert "".join(text for _, stream, _, text in lines() if stream == "stdout") == "x" * 20_000


def is_static(seen: Seen) -> None:
    """As in the kubelet, a static pod's UID is the hash of its file's pod, and so is the annotation."""
    meta = seen.item["metadata"]
    assert meta["name"] == "static-vm"
    assert meta["namespace"] == "elsewhere"
    assert len(meta["uid"]) == 32
    assert meta["annotations"]["kubernetes.io/config.hash"] == meta["uid"]
    assert meta["annotations"]["kubernetes.io/config.source"] == "file"
    assert meta["annotations"]["kubernetes.io/config.seen"].endswith("Z")
    assert meta["annotations"]["own"] == "kept"
    assert {"operator": "Exists", "effect": "NoExecute"} in seen.item["spec"]["tolerations"]
    assert seen.item["spec"]["nodeName"] == "vm"


TABLE = {
    "guaranteed": Case(asking(limits=SMALL), lies_in("kubepods", "Guaranteed"), ready),
    "burstable": Case(asking(requests=SMALL), lies_in("kubepods/burstable", "Burstable"), ready),
    "best-effort": Case(asking(), lies_in("kubepods/besteffort", "BestEffort"), ready),
    "overhead": Case(
        {**(of := asking(limits=SMALL)), "spec": {**of["spec"], "overhead": {"cpu": "20m", "memory": "8Mi"}}},
        is_overhead_counted,
        ready,
    ),
    "pids": Case(asking(), has_a_limit_of_processes, ready),
    "over": Case(once("true"), leaves_no_cgroup),
    "logs": Case(once("head -c 20000 /dev/zero | tr '\\0' x; echo; echo oops >&2"), logs_in_its_directory),
    "static": Case(
        {**asking(), "metadata": {"namespace": "elsewhere", "annotations": {"own": "kept"}}}, is_static, ready
    ),
}


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance) -> Iterator[Table]:
    with running(containerd, TABLE, limited) as one:
        yield one


def limited(agent: Agent) -> tuple[str, ...]:
    config = yaml.safe_load(agent.config.read_text())
    agent.config.write_text(yaml.safe_dump({**config, "podPidsLimit": PIDS}))
    return ()


@pytest.mark.parametrize("name", TABLE)
def test_traces(table: Table, name: str) -> None:
    table.check(name)


def test_all_of_them_go_with_their_pods(table: Table) -> None:
    for path in table.agent.manifests.glob("*.yaml"):
        path.unlink()
    expect_nothing(table.eye, 40)
