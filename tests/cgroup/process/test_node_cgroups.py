"""CPU shares of the QoS classes' cgroups before and after every source has reported its pods; on this machine's own."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._cgroup import fs, tiers
from actors._cgroup.hierarchy import Hierarchy, hierarchy
from actors._cgroup.limits import read_limits
from actors._cgroup.names import qos_cgroup
from actors._cgroup.quantities.qos import QosClass
from actors._cgroup.quantities.resources import PodLimits, shares_to_weight
from actors._host.machine import Machine
from actors.pod_workers.admission import Share
from actors.pod_workers.resources.node_cgroups import NodeCgroups
from proto.agent.settings import Settings
from proto.common.until import Until
from proto.v1 import Pod
from proto.v1.codec import from_dict
from tests.cgroups import make_files

pytestmark = pytest.mark.needs("cgroups")

GI = 1 << 30
PAGE = os.sysconf("SC_PAGE_SIZE")
MACHINE = Machine(cpus=4, memory_bytes=8 * GI, pids=1000)


class Node:
    """An actor that runs at once all that it is given, and what it knows of its pods."""

    def __init__(self, root: str) -> None:
        self.settings = Settings(cgroup_root=root)
        self.pods: list[Share] = []
        self.is_complete = False
        self.periodic: Callable[[], Coroutine[Any, Any, None]]
        self.cgroups = self.started()

    def started(self) -> NodeCgroups:
        """The limits of a new process of pod_workers."""
        events: Any = SimpleNamespace(node=lambda *_: None)
        actor: Any = SimpleNamespace(
            settings=self.settings, blocking=_at_once, after=lambda _, work: work(), spawn=lambda work, _: _run(work),
            every=self._every,
        )  # fmt: skip
        return NodeCgroups(actor, events, lambda: self.pods, lambda: self.is_complete)

    def _every(self, until: Until, work: Callable[[], Coroutine[Any, Any, None]], _: str) -> None:
        assert until == Until(60.0)
        self.periodic = work
        self.pass_a_minute()

    def pass_a_minute(self) -> None:
        """Run what runs every minute."""
        _run(self.periodic())

    def file(self, qos: QosClass, controller: str, name: str) -> Path:
        """A file of the cgroup of a class."""
        where = hierarchy().path(controller, qos_cgroup("cgroupfs", self.settings.cgroup_root, qos))
        assert where
        return Path(where, name)

    def shares(self, qos: QosClass) -> int:
        """As of cgroup v1; 0 for no cgroup."""
        found = read_limits(qos_cgroup("cgroupfs", self.settings.cgroup_root, qos), hierarchy())
        return found.cpu_shares if found else 0

    def is_set(self, qos: QosClass, shares: int) -> bool:
        """On v2 the weight has fewer steps."""
        found = self.shares(qos)
        return shares_to_weight(found) == shares_to_weight(shares) if hierarchy().unified else found == shares


async def _at_once(_: float, work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


def _run(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(StopIteration):
        while True:
            work.send(None)  # every awaited future is complete


def noting(names: list[str], apply: Callable[..., None]) -> Callable[..., None]:
    """`tiers.apply` that adds each cgroup to `names`."""

    def noted(name: str, *args: Any) -> None:
        names.append(name)
        apply(name, *args)

    return noted


def asking(cpu: str) -> Share:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return Share.of(from_dict(Pod, {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}}))


@pytest.fixture
def node() -> Iterator[Node]:
    root = f"/nvtest-{uuid.uuid4().hex[:8]}"
    fs.create(root, PodLimits(), hierarchy())
    yield Node(root)
    assert fs.remove(root, hierarchy())
    assert not any(os.path.exists(path) for path in hierarchy().paths(root))


def test_best_effort_has_the_least_weight_from_the_start(node: Node) -> None:
    node.cgroups.begin(MACHINE, 8 * GI)
    assert node.is_set("BestEffort", 2)
    assert node.shares("Burstable") > 0


def test_burstable_grows_before_all_sources_have_answered(node: Node) -> None:
    node.cgroups.begin(MACHINE, 8 * GI)
    for cpu, shares in (("1500m", 1536), ("500m", 2048)):
        node.pods.append(asking(cpu))
        node.cgroups.pods_changed()
        assert node.is_set("Burstable", shares)


def test_incomplete_sum_does_not_lower_burstable(node: Node) -> None:
    node.is_complete, node.pods = True, [asking("2")]
    node.cgroups.begin(MACHINE, 8 * GI)
    assert node.is_set("Burstable", 2048)
    node.is_complete, node.pods = False, [asking("100m")]
    node.cgroups = node.started()
    node.cgroups.begin(MACHINE, 8 * GI)
    assert node.is_set("Burstable", 2048)
    node.is_complete = True
    node.cgroups.pods_changed()
    assert node.is_set("Burstable", 102)
    assert node.is_set("BestEffort", 2)


def test_class_that_something_else_changed_is_set_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(tiers, "apply", noting(written, tiers.apply))
    node.is_complete, node.pods = True, [asking("2")]
    node.cgroups.begin(MACHINE, 8 * GI)
    written.clear()
    node.pass_a_minute()
    assert not written, "nothing has changed"
    shares = "cpu.weight" if hierarchy().unified else "cpu.shares"
    for qos in ("Burstable", "BestEffort"):
        file = node.file(qos, "cpu", shares)
        before = file.read_text()
        file.write_text("100")
        node.pass_a_minute()
        assert file.read_text() == before
    assert len(written) == 2, "only the changed one is written"


def test_class_whose_cgroup_is_gone_is_made_again(node: Node) -> None:
    node.is_complete, node.pods = True, [asking("2")]
    node.cgroups.begin(MACHINE, 8 * GI)
    assert fs.remove(qos_cgroup("cgroupfs", node.settings.cgroup_root, "Burstable"), hierarchy())
    node.pass_a_minute()
    assert node.is_set("Burstable", 2048)


def test_class_is_set_each_minute_until_the_sources_answer(node: Node) -> None:
    node.cgroups.begin(MACHINE, 8 * GI)
    node.file("BestEffort", "cpu", "cpu.weight" if hierarchy().unified else "cpu.shares").write_text("100")
    node.pass_a_minute()
    assert node.is_set("BestEffort", 2)


def test_class_that_could_not_be_set_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, refused = tiers.apply, True

    def busy(name: str, *args: Any) -> None:
        if refused and name.endswith("burstable"):
            raise OSError("busy")
        apply(name, *args)

    monkeypatch.setattr(tiers, "apply", busy)
    node.is_complete, node.pods = True, [asking("2")]
    node.cgroups.begin(MACHINE, 8 * GI)
    assert not node.shares("Burstable")
    assert node.is_set("BestEffort", 2)
    refused = False
    node.pass_a_minute()
    assert node.is_set("Burstable", 2048)


@pytest.mark.parametrize(
    ("file", "text", "kept"),
    [
        ("cpu.weight", "1\n", True),
        ("cpu.weight", "0\n", False),
        ("cpu.weight", "2\n", False),
        ("memory.max", f"{2 * PAGE}\n", True),  # the kernel counts whole pages
        ("memory.max", f"{PAGE}\n", False),
        ("memory.max", "max\n", False),
        ("memory.min", "0\n", True),
        ("memory.min", f"{PAGE}\n", False),
        ("memory.min", None, True),  # an old kernel has none
        ("cpu.weight", None, False),
        ("hugetlb.2MB.max", "4611686018427387904\n", True),
        ("hugetlb.2MB.max", "max\n", False),
        ("hugetlb.2MB.max", None, True),
    ],
)
def test_limits_are_compared_with_the_files(monkeypatch, tmp_path, file, text, kept):
    monkeypatch.setattr("actors._cgroup.tiers.huge_page_sizes", lambda: ("2MB",))
    tree = Hierarchy(unified=True, mounts={"": str(tmp_path)})
    good = {"cpu.weight": "1\n", "memory.max": f"{2 * PAGE}\n", "memory.min": "0\n", file: text}
    make_files(tmp_path / "kubepods")
    for name, content in good.items():
        if content is not None:
            (tmp_path / "kubepods" / name).write_text(content)
    assert tiers.has_limits("/kubepods", PodLimits(2, memory_bytes=2 * PAGE + 1, memory_min_bytes=0), tree) is kept
