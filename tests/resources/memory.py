"""Machines, states and pods of the memory manager's tables, in MiB."""

from typing import Any

from actors.resources.machine.memory import Memory, NodeMemory
from actors.resources.memory.model import Block, Node, State, Table
from proto import v1
from proto.v1 import Container, Pod

MI = 1 << 20
GI = 1024
HUGE = "hugepages-1Gi"
HUGE_2M = "hugepages-2Mi"


def machine(*nodes: tuple[int, int]) -> Memory:
    """For each node its memory and its 1 GiB pages."""
    return {number: NodeMemory(total * MI, {HUGE: huge * MI}) for number, (total, huge) in enumerate(nodes)}


def node(
    number: int, memory: tuple[int, int], huge: tuple[int, int], assignments: int = 0, group: tuple[int, ...] = ()
) -> Node:
    """`memory`, `huge`: allocatable and free. 512 MiB of memory are the system's."""
    allocatable, free = (amount * MI for amount in memory)
    pages, free_pages = (amount * MI for amount in huge)
    return Node(
        assignments,
        {
            "memory": Table(allocatable + pages + 512 * MI, 512 * MI, allocatable, allocatable - free, free),
            HUGE: Table(pages, 0, pages, pages - free_pages, free_pages),
        },
        list(group or (number,)),
    )


def blocks(nodes: str, memory: int, huge: int | None = None, huge_name: str = HUGE) -> list[Block]:
    """A container's blocks on nodes such as "01"."""
    numbers = [int(digit) for digit in nodes]
    pages = [] if huge is None else [Block(list(numbers), huge_name, huge * MI)]
    return [*pages, Block(list(numbers), "memory", memory * MI)]


def state(nodes: list[Node], **pods: list[Block]) -> State:
    """One container `c` for each pod."""
    return State(dict(enumerate(nodes)), {uid: {"c": held} for uid, held in pods.items()})


def container(name: str, memory: int, huge: int | None = None, **more: Any) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": f"{memory}Mi"} | ({} if huge is None else {HUGE: f"{huge}Mi"})
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}} | more


def pod(uid: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    whole = {"containers": list(containers), "initContainers": list(init)} | spec
    return v1.from_dict(Pod, {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": whole})


def guaranteed(uid: str, memory: int = GI, huge: int | None = GI) -> Pod:
    return pod(uid, container("c", memory, huge))


def burstable(uid: str) -> Pod:
    amounts = {"cpu": "1", "memory": "1Gi", HUGE: "1Gi"}
    resources = {"limits": amounts | {"memory": "2Gi"}, "requests": amounts}
    return pod(uid, {"name": "c", "resources": resources})


def all_containers(subject: Pod) -> list[Container]:
    return [*subject.spec.init_containers, *subject.spec.containers]
