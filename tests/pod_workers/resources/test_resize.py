"""Resizes: decisions and their order, plans, and saved records."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from actors._cgroup.limits import Limits
from actors._cgroup.quantities.resources import LinuxResources, PodLimits
from actors._cgroup.quantities.swap import SwapRules
from actors._host.files.checkpoint import RETRY_S
from actors._metrics.kubelet import RESIZES_ACCEPTED_LATE
from actors.pod_workers.admission import NodeInfo, Preempt, Share
from actors.pod_workers.decide.resize import (
    Amounts,
    as_pod_limits,
    cpu_steps,
    memory_steps,
    merged,
    plan,
    shrinking_limits,
    without_overhead,
)
from actors.pod_workers.model.allocation import PodResourceInfo, equal, resources_of, with_resources
from actors.pod_workers.model.view import ContainerView, PodView, ResourcesView
from actors.pod_workers.policy import Actions, with_restarts
from actors.pod_workers.resources import resize_events, resize_steps
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.resources.allocator import Allocator
from actors.pod_workers.resources.resize_conditions import Pending, Progress, resize_conditions
from actors.pod_workers.resources.resize_steps import Resizer
from actors.pod_workers.resources.resizing import ManagerPolicies, NodeState, Refusal, ResizeRequest, decide, in_order
from actors.pod_workers.shared import resource_state
from actors.pod_workers.shared.managed_resources import ManagedResources
from actors.pod_workers.shared.resource_state import DamagedError, ResourceState, decode, encode
from proto.agent.settings import Settings, Taint
from proto.pods.pod_workers import PodUpdate
from proto.resources.resources import ExclusiveCpus, HasExclusiveCpus
from proto.v1 import Pod, from_dict
from proto.wire.errors import Refused
from tests.pod_workers.admission.test_admission_queue import QueueHarness

GIB, MIB = 1 << 30, 1 << 20
NODE = NodeInfo("vm", {}, {"cpu": 4000, "memory": 4 * GIB, "pods": 110})
STATIC = {"annotations": {"kubernetes.io/config.source": "file"}}


def needs(cpu: str = "", memory: str = "", limit_cpu: str = "", limit_memory: str = "") -> dict[str, Any]:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    limits = {name: amount for name, amount in (("cpu", limit_cpu), ("memory", limit_memory)) if amount}
    return {"requests": requests, "limits": limits}


def pod(*resources: dict[str, Any], uid: str = "u", meta: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """Containers `a`, `b`, ... with these resources; a key `policy` is their resizePolicy for memory and cpu."""
    containers = []
    for name, one in zip("abcd", resources, strict=False):
        policy = [{"resourceName": what, "restartPolicy": "RestartContainer"} for what in one.get("policy", ())]
        own = {key: value for key, value in one.items() if key != "policy"}
        containers.append({"name": name, "image": "i", "resources": own, "resizePolicy": policy})
    metadata = {"name": "p", "namespace": "ns", "uid": uid, "generation": 2, **(meta or {})}
    return from_dict(Pod, {"metadata": metadata, "spec": {"containers": containers, **spec}})


def view(*names: str, state: Any = "running", resources: ResourcesView | None = None) -> PodView:
    return PodView.of([], [ContainerView(id=f"{name}1", name=name, state=state, resources=resources) for name in names])


# Records


def test_pod_has_its_allocated_resources() -> None:
    desired, granted = pod(needs("2", "1Gi")), resources_of(pod(needs("1", "1Gi")))
    assert with_resources(desired, granted).spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}
    assert with_resources(desired, None) is desired
    same = resources_of(pod(needs("2000m", "1024Mi")))
    assert equal(same, resources_of(desired))
    assert with_resources(desired, same) is desired


def test_init_container_has_its_allocated_resources() -> None:
    init = {"name": "first", "image": "i"}
    desired = pod(needs("1"), initContainers=[init | {"resources": needs("2")}])
    granted = resources_of(pod(needs("1"), initContainers=[init | {"resources": needs("1")}]))
    assert not equal(granted, resources_of(desired))
    assert with_resources(desired, granted).spec.init_containers[0].resources.requests == {"cpu": "1"}


def test_a_container_without_a_record_keeps_its_own() -> None:
    subject = pod(needs("2"), needs("3"))
    granted = PodResourceInfo({"a": resources_of(pod(needs("1"))).containers["a"]})
    assert [one.resources.requests["cpu"] for one in with_resources(subject, granted).spec.containers] == ["1", "3"]


def test_resources_of_the_pod_itself_are_part_of_it() -> None:
    desired = pod(needs(), resources=needs("2", "1Gi"))
    granted = resources_of(pod(needs(), resources=needs("1", "1Gi")))
    assert not equal(granted, resources_of(desired))
    found = with_resources(desired, granted).spec.resources
    assert found is not None
    assert found.requests["cpu"] == "1"


KUBELETS = (
    r'{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":'
    r'{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}'
)
"""As a kubelet wrote it."""


def test_state_file_has_the_kubelets_format() -> None:
    entries = decode(KUBELETS.encode())
    assert entries["pod1"].containers["container1"].requests == {"cpu": "1Ki", "memory": "1Ki"}
    assert decode(encode(entries)) == entries
    with_null = json.loads(encode(entries))
    assert json.loads(with_null["data"])["entries"]["pod1"]["PodLevelResources"] is None


@pytest.mark.parametrize("content", [b"", b"{}", KUBELETS.replace("1Ki", "2Ki").encode(), b'{"data":"x","checksum":1}'])
def test_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(content)


def test_a_state_is_written_when_it_changes_and_read_again(tmp_path: Any) -> None:
    changes: list[int] = []
    state = ResourceState(f"{tmp_path}/s", lambda: changes.append(1))
    state.load()
    state.set("u", resources_of(pod(needs("1"))))
    state.set("u", resources_of(pod(needs("1"))))
    assert len(changes) == 1
    state.save()
    again = ResourceState(f"{tmp_path}/s")
    again.load()
    assert again.get("u") == state.get("u")
    again.keep({"v"})
    assert again.get("u") is None


def test_carried_out_resize_is_noted_beside_the_record(tmp_path: Any) -> None:
    noted: list[str] = []
    state = ResourceState(f"{tmp_path}/s", on_resize=noted.append)
    small, large = resources_of(pod(needs("1"))), resources_of(pod(needs("2")))
    assert state.held("u", small) is None
    state.note_resize("u", large)
    assert noted == [], "nothing of it runs"
    state.set("u", large)
    assert state.held("u", small) == large
    assert state.held("u", None) == large
    assert state.held("u", resources_of(pod(needs("2000m")))) is None
    state.note_resize("u", large)
    assert noted == []
    state.note_resize("u", None)
    assert (noted, state.held("u", large)) == (["u"], large)
    state.note_resize("u", small)
    assert (noted, state.held("u", small)) == (["u", "u"], None)
    state.remove("u")
    state.set("u", large)
    assert state.held("u", small) == large, "a new pod of the same UID"
    state.note_resize("u", small)
    state.keep({"v"})
    state.set("u", large)
    assert state.held("u", small) == large


def test_state_without_a_change_is_not_encoded_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    monkeypatch.setattr(resource_state, "encode", lambda entries: encoded.append(1) or encode(entries))
    state = ResourceState(f"{tmp_path}/s")
    state.set("u", resources_of(pod(needs("1"))))
    for _ in range(3):
        state.save()
    state.keep({"u"})
    state.save()
    assert len(encoded) == 1
    state.remove("u")
    state.save()
    assert decode((tmp_path / "s").read_bytes()) == {}


def test_damaged_state_file_is_renamed(tmp_path: Any) -> None:
    (tmp_path / "s").write_text("{")
    state = ResourceState(f"{tmp_path}/s")
    state.load()
    assert (state.get("u"), (tmp_path / "s.damaged").read_text()) == (None, "{")


def test_state_that_cannot_be_replaced_leaves_no_file(tmp_path: Any) -> None:
    state = ResourceState(f"{tmp_path}/s")
    (tmp_path / "s").mkdir()
    state.set("u", resources_of(pod(needs("1"))))
    with pytest.raises(IsADirectoryError):
        state.save()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM])
def test_state_file_that_cannot_be_read_now_stays(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    state = ResourceState(f"{tmp_path}/s")
    state.set("u", resources_of(pod(needs("1"))))
    state.save()

    def fail(*_: Any) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(resource_state, "read_regular", fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            ResourceState(f"{tmp_path}/s").load()
    again = ResourceState(f"{tmp_path}/s")
    again.load()
    assert again.get("u") == state.get("u")


@pytest.mark.parametrize("kind", ["directory", "pipe", "huge", "aside"])
def test_state_file_of_another_kind_is_renamed(tmp_path: Any, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    path = tmp_path / "s"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
        case _:
            (path / "full").mkdir(parents=True)
    if kind == "aside":
        (tmp_path / "s.damaged/of before").mkdir(parents=True)
    state = ResourceState(str(path))
    state.load()
    state.set("u", resources_of(pod(needs("1"))))
    assert f"cannot use {path}: " in caplog.text
    if kind == "aside":
        assert f"cannot rename it: {os.strerror(errno.ENOTEMPTY)}; remove it" in caplog.text
        return
    assert f"it is now {path}.damaged" in caplog.text
    state.save()
    assert decode(path.read_bytes()).keys() == {"u"}


def test_records_that_a_full_disk_refused_are_written_later(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    root, timers = tmp_path / "root", []
    root.write_bytes(b"")  # no directory: each write fails

    async def at_once(_: float, write: Callable[[], None]) -> None:
        write()

    actor = Mock(settings=Settings(root_dir=str(root)), blocking=at_once, post=lambda function: function())
    actor.after = lambda delay_s, function: timers.append((delay_s, function))
    actor.spawn = lambda coroutine, _: list(coroutine.__await__())
    manager = AllocationManager(
        actor, Mock(), desired=Mock(), admission_queue=Mock(), workers={}, is_complete=lambda: True
    )
    manager.allocated.set("u", resources_of(pod(needs("1"))))
    timers.pop()[1]()
    assert [delay_s for delay_s, _ in timers] == [RETRY_S]
    timers.pop()[1]()
    timers.pop()[1]()
    assert len([record for record in caplog.records if "cannot write" in record.message]) == 1
    root.unlink()
    root.mkdir()
    while timers:
        timers.pop()[1]()
    assert decode((root / "allocated_pods_state").read_bytes()).keys() == {"u"}
    assert [path.name for path in root.iterdir()] == ["allocated_pods_state"]


# Decisions

SWAPPING = SwapRules(
    "LimitedSwap", unified=True, accounting=True, memory_capacity_bytes=4 * GIB, swap_capacity_bytes=GIB
)
SWAP = Refusal("Infeasible", "In-place resize of containers with swap is not supported.", "swap_limitation")
TOO_SMALL = "insufficient_node_allocatable"
OTHER = Share.of(pod(needs("1", "1Gi"), uid="other"))


@pytest.mark.parametrize(
    ("desired", "allocated", "swap", "refusal"),
    [
        (pod(needs("3", "3Gi")), pod(needs("1", "1Gi")), SwapRules(), None),
        (
            pod(needs("3001m", "1Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal("Deferred", "Node didn't have enough resource: cpu, requested: 3001, used: 1000, capacity: 4000"),
        ),
        (
            pod(needs("1", "4Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal(
                "Deferred",
                f"Node didn't have enough resource: memory, requested: {4 * GIB}, used: {GIB}, capacity: {4 * GIB}",
            ),
        ),
        (
            pod(needs("5", "1Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal("Infeasible", "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000", TOO_SMALL),
        ),
        (
            pod(needs("5", "5Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal(
                "Infeasible",
                f"Node didn't have enough capacity: memory, requested: {5 * GIB}, capacity: {4 * GIB}",
                TOO_SMALL,
            ),
        ),
        (
            pod(needs("2"), meta=STATIC),
            pod(needs("1"), meta=STATIC),
            SwapRules(),
            Refusal("Infeasible", "In-place resize of static-pods is not supported", "static_pod"),
        ),
        (pod(needs("1", "2Gi")), pod(needs("1", "1Gi")), SWAPPING, SWAP),
        (pod(needs("2", "1Gi")), pod(needs("1", "1Gi")), SWAPPING, None),
        (
            pod({**needs("1", "2Gi"), "policy": ["memory"]}),
            pod({**needs("1", "1Gi"), "policy": ["memory"]}),
            SWAPPING,
            None,
        ),
    ],
)
def test_resize_decisions(desired: Pod, allocated: Pod, swap: SwapRules, refusal: Refusal | None) -> None:
    assert decide(ResizeRequest(desired, allocated), [OTHER], NodeState(NODE), swap) == refusal


@pytest.mark.parametrize(
    ("memory", "reason", "message"),
    [
        ("3000Mi", "", ""),
        (
            "4050Mi",
            "Deferred",
            f"Node didn't have enough resource: memory, requested: {4050 * MIB}, used: 0, capacity: {3996 * MIB}",
        ),
        (
            "4500Mi",
            "Infeasible",
            f"Node didn't have enough capacity: memory, requested: {4500 * MIB}, capacity: {4096 * MIB}",
        ),
    ],
)
def test_only_a_resize_beyond_reservations_is_infeasible(memory: str, reason: str, message: str) -> None:
    """The eviction threshold and huge pages may change."""
    allocatable = NODE.allocatable | {"memory": 3996 * MIB}
    node = NodeState(replace(NODE, allocatable=allocatable, enforced={"cpu": 4000, "memory": 4096 * MIB}))
    refusal = decide(ResizeRequest(pod(needs("1", memory)), pod(needs("1", "1Gi"))), [], node, SwapRules())
    found = (refusal.reason, refusal.message) if isinstance(refusal, Refusal) else ("", "")
    assert found == (reason, message)


NO_EXECUTE = (Taint(key="x", effect="NoExecute"),)


@pytest.mark.parametrize(
    ("node", "spec", "message"),
    [
        (NodeState(NODE, ("DiskPressure",)), {}, "The node had condition: [DiskPressure]. "),
        (NodeState(NODE, ("DiskPressure",)), {"priority": 2_000_000_000}, ""),
        (NodeState(NODE, ("MemoryPressure",)), {}, ""),
        (NodeState(NODE, shutting_down=True), {}, "Pod was rejected as the node is shutting down."),
        (
            NodeState(replace(NODE, taints=NO_EXECUTE)),
            {},
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        ),
        (
            NodeState(NODE),
            {"nodeSelector": {"zone": "a"}},
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
    ],
)
def test_a_resize_passes_the_checks_of_a_new_pod(node: NodeState, spec: dict[str, Any], message: str) -> None:
    desired = pod(needs("2", "1Gi"), **spec)
    refusal = decide(ResizeRequest(desired, pod(needs("1", "1Gi"))), [OTHER], node, SwapRules())
    assert refusal == (Refusal("Deferred", message) if message else None)


def test_a_critical_pod_preempts_for_its_resize() -> None:
    other = Share.of(pod(needs("3"), uid="other"))
    desired = pod(needs("2"), priority=2_000_000_000)
    verdict = decide(ResizeRequest(desired, pod(needs("1"))), [other], NodeState(NODE), SwapRules())
    assert verdict == Preempt((other,), "cpu")
    shut = NodeState(NODE, shutting_down=True)
    refusal = decide(ResizeRequest(desired, pod(needs("1"))), [other], shut, SwapRules())
    assert isinstance(refusal, Refusal), "the machine's end makes no room"


def request(uid: str, cpu: str, since: float = 0.0, priority: int = 0, qos: str = "Burstable") -> ResizeRequest:
    desired = pod(needs(cpu), uid=uid, priority=priority)
    status = msgspec.structs.replace(desired.status, qos_class=qos)
    return ResizeRequest(msgspec.structs.replace(desired, status=status), pod(needs("1"), uid=uid), since)


def test_static_policies_make_resizes_of_guaranteed_pods_infeasible():
    small, more_cpu, more_memory = (
        pod(needs(cpu, memory, cpu, memory)) for cpu, memory in (("1", "1Gi"), ("2", "1Gi"), ("1", "2Gi"))
    )

    def detail(desired: Pod, policies: ManagerPolicies) -> str:
        refusal = decide(ResizeRequest(desired, small), [], NodeState(NODE), SwapRules(), policies)
        return refusal.detail if isinstance(refusal, Refusal) else ""

    both = ManagerPolicies(cpus=True, memory=True)
    assert detail(more_cpu, both) == "guaranteed_pod_cpu_manager_static_policy"
    assert detail(more_memory, both) == "guaranteed_pod_memory_manager_static_policy"
    assert detail(more_memory, ManagerPolicies(cpus=True)) == detail(more_cpu, ManagerPolicies()) == ""


def test_order_of_resizes() -> None:
    requests = [
        request("new", "2"),
        request("late", "2", since=20),
        request("early", "2", since=10),
        request("guaranteed", "2", since=30, qos="Guaranteed"),
        request("important", "2", since=40, priority=100),
        request("shrinks", "500m"),
    ]
    order = [one.desired.metadata.uid for one in in_order(requests)]
    assert order == ["shrinks", "important", "guaranteed", "early", "late", "new"]


def allocated(path: Any, *pods: Pod) -> tuple[Allocator, QueueHarness]:
    """An allocator and a queue, with these pods admitted. The node has 2 CPUs and 4 GiB. The queue logs events."""
    queue = QueueHarness()
    queue.want(*pods)
    allocator = Allocator(ResourceState(str(path / "s")), queue, SwapRules())  # type: ignore[arg-type]
    for one in pods:
        allocator.admitted(one)
    queue.said()
    return allocator, queue


def sized(uid: str, cpu: str, memory: str, priority: int = 0) -> Pod:
    return pod(needs(cpu, memory), uid=uid, meta={"name": uid}, priority=priority)


@pytest.mark.parametrize(
    ("resizes", "changed", "late", "waiting"),
    [
        # Each row: (uid, priority, before, after). Higher priorities are decided on first.
        (
            [("a", 9, ("500m", "1Gi"), ("500m", "3Gi")), ("b", 0, ("500m", "3Gi"), ("600m", "1Gi"))],
            ["a", "b"],
            {("pod_resized",): 1},
            set(),
        ),
        (
            [
                ("a", 9, ("1", "1Gi"), ("1400m", "1Gi")),
                ("b", 5, ("500m", "1Gi"), ("250m", "2Gi")),
                ("c", 0, ("250m", "2Gi"), ("300m", "512Mi")),
            ],
            ["a", "b", "c"],
            {("pod_resized",): 2},
            set(),
        ),
        (
            [("a", 9, ("500m", "1Gi"), ("500m", "3Gi")), ("b", 0, ("500m", "3Gi"), ("600m", "3Gi"))],
            ["a", "b"],
            {},
            {"a"},
        ),
        (
            [("a", 9, ("500m", "1Gi"), ("500m", "3Gi")), ("b", 0, ("500m", "3Gi"), ("500m", "1Gi"))],
            ["b", "a"],
            {},
            set(),
        ),
    ],
)
def test_pods_without_containers_free_resources_with_the_grant(
    tmp_path: Any, resizes: Any, changed: list[str], late: dict[tuple[str, ...], float], waiting: set[str]
) -> None:
    allocator, queue = allocated(tmp_path, *(sized(uid, *before, priority) for uid, priority, before, _ in resizes))
    desired = {uid: sized(uid, *after, priority) for uid, priority, _, after in resizes}
    for one in desired.values():
        allocator.enqueue(one)
    RESIZES_ACCEPTED_LATE.replace(())
    assert allocator.retry_pending_resizes(desired, desired, queue.admission_queue, "pod_updated") == changed
    assert {labels: numbers[0] for labels, numbers in RESIZES_ACCEPTED_LATE.take().items()} == late
    assert allocator.pending_resizes == allocator.pending.keys() == waiting
    for uid, one in desired.items():
        assert (allocator.allocated.get(uid) == resources_of(one)) == (uid not in waiting)


class Node:
    """An allocation manager, its queue and a worker for each pod, in one thread. It has 2 CPUs and 4 GiB.

    `actuates` does a worker's part. A node of the same directory is the next process.
    """

    def __init__(self, path: Any, *pods: Pod) -> None:
        self.queue = QueueHarness()
        self.told: list[tuple[str, bool]] = []
        """Each update of a worker: the UID, and whether the resize waits."""
        posted = lambda function, *arguments: function(*arguments)  # noqa: E731
        actor = Mock(settings=Settings(root_dir=str(path)), post=posted, blocking=self._at_once)
        actor.spawn = lambda coroutine, _: list(coroutine.__await__())
        workers = {one.metadata.uid: Mock(termination=None, update=self._update) for one in pods}
        self.manager = AllocationManager(
            actor,
            self.queue,  # type: ignore[arg-type]
            desired=self.queue.desired,
            admission_queue=self.queue.admission_queue,
            workers=workers,
            is_complete=lambda: True,
        )
        self.queue.connect(
            self.manager.current, self.manager.still_held, lambda: self.manager.retry_pending_resizes("pods_removed")
        )
        self.queue.want(*pods, running=tuple(workers))
        for one in pods:
            self.manager.admitted(one)

    async def _at_once(self, _: float, write: Callable[[], None]) -> None:
        write()

    def _update(self, allocated: Pod, _: Pod, pending: Pending | None) -> None:
        self.told.append((allocated.metadata.uid, pending is not None))

    def actuates(self, *uids: str) -> None:
        """The containers hold what is allocated, and the workers say so."""
        for uid in uids:
            info = resources_of(self.manager.current(self.queue.desired.pods[uid]))
            self.manager.actuated.set(uid, info)
            self.manager.actuated.note_resize(uid, info)

    def asks(self, *pods: Pod) -> None:
        """The source wants other resources."""
        self.queue.desired.apply(PodUpdate(source="api", op="UPDATE", pods=pods))
        for one in pods:
            self.manager.update(one.metadata.uid)
        self.manager.retry_pending_resizes("pod_updated")

    def reason(self, uid: str) -> str:
        """Why the pod's resize waits; empty if it does not."""
        pending = self.manager.allocator.pending.get(uid)
        return "" if pending is None else f"{pending.reason} {pending.message}"

    def held(self) -> dict[str, int]:
        """GiB of memory by pod."""
        shares = self.queue.admission_queue.shares()
        return {one.pod.metadata.uid: one.held["memory"] // GIB for one in shares}


USED = f"Deferred Node didn't have enough resource: memory, requested: {2 * GIB}, used: {3 * GIB}, capacity: {4 * GIB}"


def shrinking(path: Any) -> Node:
    """A node whose pod `a` is to give 2 of its 3 GiB back, and whose pod `b` waits for one of them."""
    node = Node(path, sized("a", "500m", "3Gi"), sized("b", "500m", "1Gi"))
    node.actuates("a", "b")
    RESIZES_ACCEPTED_LATE.replace(())
    node.asks(sized("a", "500m", "1Gi"), sized("b", "500m", "2Gi"))
    return node


def late() -> dict[tuple[str, ...], float]:
    return {labels: numbers[0] for labels, numbers in RESIZES_ACCEPTED_LATE.take().items()}


def test_room_of_a_shrinking_pod_is_given_away_once_it_has_shrunk(tmp_path: Any) -> None:
    node = shrinking(tmp_path)
    assert (node.reason("a"), node.reason("b")) == ("", USED)
    assert node.held() == {"a": 3, "b": 1}
    assert [one.requests["memory"] // GIB for one in node.queue.admission_queue.shares()] == [1, 1]
    node.manager.actuated.note_resize("a", None)  # an attempt failed
    node.manager.retry_pending_resizes("periodic_retry")
    assert node.reason("b") == USED
    node.actuates("a")
    assert node.reason("b") == ""
    assert node.told[-1] == ("b", False)
    assert node.held() == {"a": 1, "b": 2}
    assert late() == {("pod_resized",): 1}


def test_a_part_of_a_resize_frees_its_part(tmp_path: Any) -> None:
    node = shrinking(tmp_path)
    node.manager.actuated.set("a", resources_of(sized("a", "500m", "2Gi")))
    node.manager.actuated.note_resize("a", None)
    assert (node.held(), node.reason("b")) == ({"a": 2, "b": 2}, "")


def test_notes_that_come_together_are_decided_on_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of them would give every resize that waits another message, and its pod another step."""
    node = Node(tmp_path, *(sized(uid, "100m", "1Gi") for uid in "abc"))
    node.actuates("a", "b", "c")
    node.asks(sized("a", "100m", "512Mi"), sized("b", "100m", "512Mi"), sized("c", "100m", "3Gi"))
    assert node.reason("c").startswith("Deferred")
    posted: list[tuple[Callable[..., None], Any]] = []
    monkeypatch.setattr(node.manager._actor, "post", lambda function, *arguments: posted.append((function, arguments)))
    monkeypatch.setattr(node.manager, "retry_pending_resizes", Mock(side_effect=node.manager.retry_pending_resizes))
    node.actuates("a", "b")
    while posted:
        function, arguments = posted.pop(0)
        function(*arguments)
    assert (node.reason("c"), node.manager.retry_pending_resizes.call_count) == ("", 1)


def test_note_of_a_former_allocation_frees_nothing(tmp_path: Any) -> None:
    """The worker said so before it learned of the grant."""
    node = shrinking(tmp_path)
    node.manager.actuated.note_resize("a", resources_of(sized("a", "500m", "3072Mi")))
    assert (node.held(), node.reason("b")) == ({"a": 3, "b": 1}, USED)


def test_a_growing_pod_holds_its_room_before_it_has_grown(tmp_path: Any) -> None:
    node = Node(tmp_path, sized("a", "500m", "1Gi"), sized("b", "500m", "1Gi"))
    node.actuates("a", "b")
    node.asks(sized("a", "500m", "3Gi"))
    assert node.held() == {"a": 3, "b": 1}
    node.asks(sized("b", "500m", "2Gi"))
    assert node.reason("b").startswith("Deferred")


def test_a_restart_keeps_the_room_of_a_shrinking_pod(tmp_path: Any) -> None:
    before = shrinking(tmp_path)
    before.manager.allocated.save()
    before.manager.actuated.save()
    node = Node(tmp_path, sized("a", "500m", "1Gi"), sized("b", "500m", "2Gi"))
    node.manager.retry_pending_resizes("pods_added")
    assert (node.held(), node.reason("b")) == ({"a": 3, "b": 1}, USED)
    node.actuates("a")
    assert (node.held(), node.reason("b")) == ({"a": 1, "b": 2}, "")


def test_container_that_does_not_run_holds_nothing_of_its_record(tmp_path: Any) -> None:
    """It starts with what is allocated. Until its worker has looked, it may run."""
    node = shrinking(tmp_path)
    node.manager.actuated.note_resize("a", resources_of(sized("a", "500m", "1Gi")))
    assert (node.held(), node.reason("b")) == ({"a": 1, "b": 2}, "")


def test_pods_without_a_record_hold_what_is_allocated(tmp_path: Any) -> None:
    """At the first start of all, and after a kubelet without the file."""
    node = Node(tmp_path, sized("a", "500m", "3Gi"), sized("b", "500m", "1Gi"))
    assert node.held() == {"a": 3, "b": 1}
    node.manager.finished("a")
    assert node.manager.still_held("a") is None


def test_resizes_wait_while_victims_of_a_critical_pod_end(tmp_path: Any) -> None:
    node = Node(
        tmp_path, sized("k", "500m", "1Gi", 2_000_000_000), sized("victim", "500m", "2Gi"), sized("b", "500m", "512Mi")
    )
    node.actuates("k", "victim", "b")
    node.queue.said()
    node.asks(sized("k", "500m", "3Gi", 2_000_000_000), sized("b", "500m", "1Gi"))
    assert node.queue.said() == ["save", "event victim Preempting", "end victim: Preempting"]
    node.manager.retry_pending_resizes("periodic_retry")
    assert (node.reason("k"), node.told[-1], node.queue.said()) == ("", ("b", False), [])
    assert node.manager.allocator.pending_resizes == {"k", "b"}
    node.queue.admission_queue.pod_terminated("victim")
    assert node.queue.said() == ["event k ResizeStarted", "event b ResizeStarted"]
    assert node.held() == {"k": 3, "b": 1}


@pytest.mark.parametrize("in_time", [True, False])
def test_a_critical_pod_grows_beside_victims_that_do_not_end(tmp_path: Any, in_time: bool) -> None:
    node = Node(tmp_path, sized("k", "500m", "1Gi", 2_000_000_000), sized("victim", "500m", "2Gi"))
    node.actuates("k", "victim")
    node.asks(sized("k", "500m", "3Gi", 2_000_000_000))
    node.queue.said()
    if in_time:
        node.queue.admission_queue.pod_terminated("victim")
    node.queue.timers[0][1]()
    assert node.queue.said() == ["event k ResizeStarted"]
    assert not node.queue.admission_queue.has_room("k")


# Plans


def names(updates: Any) -> str:
    return "".join(update.container.name for update in updates)


LESS, MORE = needs("1", "1Gi", "2", "2Gi"), needs("2", "2Gi", "3", "3Gi")
CPU_ONLY, MEMORY_ONLY = needs("2", "1Gi", "3", "2Gi"), needs("1", "2Gi", "2", "3Gi")


@pytest.mark.parametrize(
    ("wanted", "was", "restarts", "memory", "cpu"),
    [
        ((LESS,), (LESS,), "", "", ""),
        ((MORE,), (LESS,), "", "a", "a"),
        ((CPU_ONLY,), (LESS,), "", "", "a"),
        ((MEMORY_ONLY,), (LESS,), "", "a", ""),
        ((LESS, LESS), (MORE, MORE), "", "ba", "ba"),
        ((MORE, LESS), (LESS, MORE), "", "ba", "ba"),  # what shrinks goes first
        (({**MORE, "policy": ["memory"]},), (LESS,), "a", "", ""),
        (({**CPU_ONLY, "policy": ["memory"]},), (LESS,), "", "", "a"),
        (({**MORE, "policy": ["cpu"]}, MORE), (LESS, LESS), "a", "b", "b"),
        ((needs("1m", "1Gi"),), (needs("2m", "1Gi"),), "", "", ""),  # too small to make a difference
        ((needs("1m", "1Gi", "5m"),), (needs("1m", "1Gi", "10m"),), "", "", ""),
        ((needs("1", "2Gi"),), (needs("1", "1Gi"),), "", "a", ""),  # a request alone
    ],
)
def test_resize_plans(wanted: Any, was: Any, restarts: str, memory: str, cpu: str) -> None:
    subject = pod(*wanted)
    found = plan(subject, view("a", "b"), resources_of(pod(*was)))
    assert "".join(one.name for one, _ in found.restarts) == restarts
    assert (names(found.memory), names(found.cpu)) == (memory, cpu)
    assert bool(found) == bool(restarts or memory or cpu)


def test_containers_that_do_not_run_need_no_update() -> None:
    was = resources_of(pod(LESS))
    assert not plan(pod(MORE), view("a", state="exited"), was)
    assert not plan(pod(MORE), view(), was)
    assert not plan(pod(MORE, meta=STATIC), view("a"), was)


def test_resize_without_a_record_compares_with_the_runtime() -> None:
    shown = ResourcesView(milli_cpu_request=1000, milli_cpu_limit=2000, memory_limit_bytes=2 * GIB)
    assert not plan(pod({**MORE, "policy": ["cpu", "memory"]}), view("a"), None)
    assert not plan(pod(LESS), view("a", resources=shown), None)
    assert names(plan(pod(MORE), view("a", resources=shown), None).cpu) == "a"


def test_the_pods_own_resources_change_without_its_containers() -> None:
    subject = pod(needs(), resources=needs("2", "2Gi"))
    found = plan(subject, view("a"), resources_of(pod(needs(), resources=needs("1", "1Gi"))))
    assert (found.pod, found.memory, found.cpu) == (True, (), ())
    assert not plan(subject, view("a"), resources_of(subject))


def own(cpu: str, memory: str) -> dict[str, Any]:
    """The pod's own limits."""
    return {"limits": {"cpu": cpu, "memory": memory}}


@pytest.mark.parametrize(
    ("resources", "memory", "cpu"),
    [
        (needs("1", "1Gi"), "a", "a"),
        (needs("1", "1Gi", "1"), "a", ""),
        (needs("1", "1Gi", "", "1Gi"), "", "a"),
        (needs("1", "1Gi", "1", "1Gi"), "", ""),
    ],
)
def test_containers_follow_the_pods_limits_that_they_inherit(resources: Any, memory: str, cpu: str) -> None:
    subject, before = pod(resources, resources=own("3", "3Gi")), pod(resources, resources=own("2", "2Gi"))
    found = plan(subject, view("a"), resources_of(before))
    assert (found.pod, names(found.memory), names(found.cpu)) == (True, memory, cpu)
    for update in found.memory:
        assert (update.current.memory_limit, update.desired.memory_limit) == (2 * GIB, 3 * GIB)
    for update in found.cpu:
        assert (update.current.cpu_limit, update.desired.cpu_limit) == (2000, 3000)


def test_inherited_limits_in_a_record_are_those_the_container_has() -> None:
    """As the kubelet records them. A resize that broke off has changed the container and not the pod."""
    subject = pod(needs("1", "1Gi"), resources=own("3", "3Gi"))
    half = resources_of(pod(needs("1", "1Gi", "3", "3Gi"), resources=own("2", "2Gi")))
    found = plan(subject, view("a"), half)
    assert (found.pod, found.memory, found.cpu) == (True, (), ())


def test_inherited_limits_restart_a_container_whose_policy_says_so() -> None:
    given = {**needs("1", "1Gi"), "policy": ["memory"]}
    subject, before = pod(given, resources=own("2", "3Gi")), pod(given, resources=own("2", "2Gi"))
    assert [one.name for one, _ in plan(subject, view("a"), resources_of(before)).restarts] == ["a"]


def test_a_lost_record_restarts_no_container_that_inherits_limits() -> None:
    subject = pod({"policy": ["cpu", "memory"]}, resources=own("2", "2Gi"))
    shown = ResourcesView(milli_cpu_request=2000, milli_cpu_limit=2000, memory_limit_bytes=2 * GIB)
    assert not plan(subject, view("a", resources=shown), None)


def test_one_resource_at_a_time_is_asked_for() -> None:
    (update,) = plan(pod(MORE), view("a"), resources_of(pod(LESS))).memory
    assert update.amounts("memory", False) == Amounts(1000, 2000, 2 * GIB, 3 * GIB)
    assert update.amounts("cpu", True) == Amounts(2000, 3000, 2 * GIB, 3 * GIB)
    assert update.amounts("cpu", False) == Amounts(2000, 3000, GIB, 2 * GIB)


def test_a_restart_is_a_kill_and_a_start() -> None:
    subject = pod({**MORE, "policy": ["cpu"]}, MORE)
    planned = plan(subject, view("a", "b"), resources_of(pod(LESS, LESS)))
    actions = with_restarts(Actions(), planned, subject)
    assert [(kill.container.id, kill.message) for kill in actions.kill] == [
        ("a1", "Container a resize requires restart")
    ]
    assert [one.name for one in actions.start] == ["a"]
    assert not planned.without(["a1", "b1"]).restarts


def test_limits_that_shrink() -> None:
    planned = plan(pod(LESS, MORE, LESS), view("a", "b", "c"), resources_of(pod(MORE, LESS, needs("1", "1Gi", "2"))))
    assert shrinking_limits(planned.memory) == {"a1": 2 * GIB, "c1": 2 * GIB}  # c had none


NOW = Limits(cpu_shares=1024, cpu_quota_us=100_000, cpu_period_us=100_000, memory_bytes=100 * MIB)


@pytest.mark.parametrize(
    ("now", "wanted", "before", "after"),
    [
        (100, 200, [200], []),
        (200, 100, [], [100]),
        (100, 100, [], []),
        (None, 100, [], [100]),
        (100, None, [], []),  # a limit is not taken away again, as by the kubelet
    ],
)
def test_memory_of_the_pod(now: int | None, wanted: int | None, before: list[int], after: list[int]) -> None:
    found = memory_steps(Limits(2, None, 100_000, now), PodLimits(memory_bytes=wanted))
    assert [step.memory_bytes for step in found.before] == before
    assert [step.memory_bytes for step in found.after] == after


@pytest.mark.parametrize(
    ("shares", "quota", "before", "after"),
    [
        (2048, 200_000, ["quota", "shares"], []),
        (512, 50_000, [], ["shares", "quota"]),
        (2048, 50_000, ["shares"], ["quota"]),
        (512, 200_000, ["quota"], ["shares"]),
        (1024, 100_000, [], []),
        (1024, -1, ["quota"], []),  # cpuCFSQuota off
        (1024, None, [], []),
    ],
)
def test_cpu_of_the_pod(shares: int, quota: int | None, before: list[str], after: list[str]) -> None:
    found = cpu_steps(NOW, PodLimits(cpu_shares=shares, cpu_quota_us=quota, cpu_period_us=100_000))
    assert ["shares" if step.cpu_shares else "quota" for step in found.before] == before
    assert ["shares" if step.cpu_shares else "quota" for step in found.after] == after


class PinnedNode:
    """The context of a Resizer on a node with static CPUs; keeps writes to the pod's cgroup, and reasons of events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quota_us: int | None, exclusive: bool | Refused) -> None:
        self.written: list[PodLimits] = []
        self.reasons: list[str] = []
        self._exclusive = exclusive
        found = Limits(cpu_shares=2048, cpu_quota_us=quota_us, cpu_period_us=100_000, memory_bytes=GIB)
        monkeypatch.setattr(resize_steps, "read_limits", lambda *_: found)
        settings = Settings(cpu_manager_policy="static")
        self.context: Any = SimpleNamespace(
            settings=settings,
            managed=ManagedResources(settings),
            resources=SimpleNamespace(ask=self._ask),
            blocking=self._write,
            events=SimpleNamespace(pod=lambda _pod, _type, reason, _message: self.reasons.append(reason)),
            actuated=SimpleNamespace(
                get=lambda _: resources_of(PINNED), set_pod=lambda *_: None, note_resize=lambda *_: None
            ),
        )

    async def _ask(self, request: HasExclusiveCpus, _: float) -> ExclusiveCpus:
        assert request.pod == LARGER
        if isinstance(self._exclusive, Refused):
            raise self._exclusive
        return ExclusiveCpus(exclusive=self._exclusive)

    async def _write(self, _deadline: float, _ensure: Any, _name: str, limits: PodLimits, *_: Any) -> None:
        self.written.append(limits)

    def resize(self) -> bool:
        """Restart the container for more memory; True when the pod's cgroup is resized."""

        async def reread(_: str) -> None:
            """No container is updated."""

        resizer, found = Resizer(self.context, reread), view("a")
        planned = resizer.plan(LARGER, found)
        assert planned.restarts
        with pytest.raises(StopIteration) as done:  # nothing in it waits
            resizer.carry_out(planned.without(["a1"]), LARGER, "").send(None)
        return bool(done.value.value)


PINNED = pod({**needs("2", "1Gi", "2", "1Gi"), "policy": ["memory"]})
LARGER = pod({**needs("2", "2Gi", "2", "2Gi"), "policy": ["memory"]})


@pytest.mark.parametrize(
    ("before", "exclusive", "quotas"),
    [(None, True, []), (200_000, True, [-1]), (None, False, [200_000])],
)
def test_resized_pod_with_exclusive_cpus_has_no_quota(
    monkeypatch: pytest.MonkeyPatch, before: int | None, exclusive: bool, quotas: list[int]
) -> None:
    node = PinnedNode(monkeypatch, before, exclusive)
    assert node.resize()
    assert [limits.memory_bytes for limits in node.written if limits.memory_bytes] == [2 * GIB]
    assert [limits.cpu_quota_us for limits in node.written if limits.cpu_quota_us] == quotas


def test_a_worker_notes_whether_a_resize_is_carried_out() -> None:
    notes: list[PodResourceInfo | None] = []
    records = {"u": resources_of(pod(LESS))}
    actuated = SimpleNamespace(get=records.get, note_resize=lambda _, done: notes.append(done))
    events = SimpleNamespace(pod=lambda *_: None)
    resizer = Resizer(SimpleNamespace(actuated=actuated, events=events), lambda _: None)  # type: ignore[arg-type]
    assert resizer.plan(pod(MORE), view("a"))
    assert not resizer.plan(pod(MORE), view("a", state="exited"))
    records["u"] = resources_of(pod(MORE))
    assert not resizer.plan(pod(MORE), view("a"))
    assert notes == [None, resources_of(pod(MORE)), resources_of(pod(MORE))]


def test_refused_question_about_cpus_fails_the_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    node = PinnedNode(monkeypatch, None, Refused("NotYet", "it starts"))
    assert not node.resize()
    assert (node.written, node.reasons) == ([], ["ResizeError"])


def test_the_runtime_is_told_limits_without_overhead() -> None:
    plain, heavy = pod(needs()), pod(needs(), overhead={"cpu": "100m", "memory": "64Mi"})
    limits = PodLimits(cpu_shares=306, cpu_quota_us=30_000, cpu_period_us=100_000, memory_bytes=320 * MIB)
    assert without_overhead(limits, plain) == LinuxResources(100_000, 30_000, 306, 320 * MIB)
    assert without_overhead(limits, heavy) == LinuxResources(100_000, 20_000, 203, 256 * MIB)
    assert without_overhead(PodLimits(2, -1, 100_000), heavy) == LinuxResources(100_000, -1, 2)


def test_limits_after_a_step_are_those_that_it_does_not_name_and_its_own() -> None:
    now = as_pod_limits(Limits(1024, None, 100_000, 100 * MIB))
    assert now == PodLimits(1024, -1, 100_000, 100 * MIB)
    assert merged(now, PodLimits(memory_bytes=MIB)) == PodLimits(1024, -1, 100_000, MIB)
    assert merged(now, PodLimits(cpu_quota_us=5_000, cpu_period_us=50_000)) == PodLimits(1024, 5_000, 50_000, 100 * MIB)
    assert merged(now, PodLimits(memory_min_bytes=MIB)) == now


# Conditions and events


@pytest.mark.parametrize(
    ("pending", "progress", "expected"),
    [
        (None, None, []),
        (Pending(), None, []),
        (Pending("Deferred", "no", 3), None, [("PodResizePending", "Deferred", "no", 3)]),
        (None, Progress(2), [("PodResizeInProgress", None, None, 2)]),
        (
            Pending("Infeasible", "no", 3),
            Progress(2, "why"),
            [("PodResizePending", "Infeasible", "no", 3), ("PodResizeInProgress", "Error", "why", 2)],
        ),
    ],
)
def test_conditions(pending: Any, progress: Any, expected: Any) -> None:
    found = resize_conditions(pending, progress)
    assert [(one.type, one.reason, one.message, one.observed_generation) for one in found] == expected
    assert all(one.status == "True" for one in found)


def test_messages_of_events() -> None:
    subject = pod(needs("1", "1Gi"))
    summary = '{"containers":[{"name":"a","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}],"generation":2'
    assert resize_events.started(subject) == f"Pod resize started: {summary}}}"
    assert resize_events.completed(subject, 2) == f"Pod resize completed: {summary}}}"
    assert resize_events.failed(subject, "no") == f'Pod resize error: {summary},"error":"no"}}'
    assert resize_events.pending(subject, "Deferred", "no") == f'Pod resize Deferred: {summary},"error":"no"}}'
