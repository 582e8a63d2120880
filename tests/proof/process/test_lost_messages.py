"""A connection that loses everything for a time: after it, API server, agent and runtime agree again.

`chaos.py` chooses connections at random and meets few of them. Here each that carries the state of pods has its turn,
on one node, while pods come and go.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proto.agent.actor import Describe, Evaluate
from proto.agent.faults import Fault
from proto.agent.supervisor import EndFaults, InjectFault
from supervisor.sockets.client import Client
from tests.agent.joined import Joined, embedded_node
from tests.harness import wait_for
from tests.proof import chaos
from tests.proof.chaos import Churn

LINKS = [
    ("config", "pod_workers"),
    ("config", "status"),
    ("pod_workers", "status"),
    ("pod_workers", "probe"),
    ("pod_workers", "pleg"),
    ("pod_workers", "resources"),
    ("pod_workers", "volume"),
    ("pleg", "pod_workers"),
    ("probe", "pod_workers"),
    ("status", "server"),
]
LOSS_S = 1.5
"""At least."""
CHANGES = 4


class World(NamedTuple):
    """A node, and pods that come and go on it."""

    node: Joined
    churn: Churn


@pytest.fixture(scope="module")
def world(own_control_plane: None) -> Iterator[World]:
    with (
        tempfile.TemporaryDirectory(prefix="nvc-", dir="/tmp") as host,
        embedded_node(prepare=chaos.without_degraded) as node,
    ):
        churn = Churn(node, Path(host), seed=1)
        churn.fill()
        wait_for(lambda: chaos.settled(node, churn), 120, f"the pods of the beginning; log: {node.agent.log}")
        yield World(node, churn)
        assert chaos.doubled(churn) == []
        assert chaos.left_behind(node, churn) == []


def lost(node: Joined, sender: str) -> int:
    """Messages of this actor that no peer has received."""
    return node.eye.client.ask(sender, Describe(), 5.0).dropped.get("lost", 0)


def told(node: Joined, sender: str, receiver: str) -> int:
    """Tells of this actor to that one so far, and asks that wait for an answer."""
    asks = f"actor.bus._waiting_for({receiver!r})"
    with Client(node.agent.run_dir, role="debug") as client:
        count = client.ask(sender, Evaluate(expression=f"actor.bus._sent[{receiver!r}].count + len({asks})"), 5.0)
    return int(count.text or 0)


@pytest.mark.timeout(300)
@pytest.mark.needs("cgroups")
@pytest.mark.parametrize(("sender", "receiver"), LINKS, ids=map("-".join, LINKS))
def test_all_agree_after_a_connection_has_lost_everything(world: World, sender: str, receiver: str) -> None:
    node, churn = world
    client, steady, before = node.eye.client, chaos.kept(node), lost(node, sender)
    fault = Fault(kind="lose", actor=sender, peer=receiver, value=1.0)
    client.ask("supervisor", InjectFault(fault=fault, duration_s=60.0), 5.0)
    began, told_before = time.monotonic(), told(node, sender, receiver)
    for _ in range(CHANGES):
        churn.step()
    wait_for(lambda: told(node, sender, receiver) > told_before, 30, f"{sender} tells {receiver} something")
    time.sleep(max(0.0, began + LOSS_S - time.monotonic()))  # this is the loss
    client.ask("supervisor", EndFaults(), 5.0)
    wait_for(lambda: lost(node, sender) > before, 30, f"{sender} notices the loss; log: {node.agent.log}")
    try:
        wait_for(lambda: chaos.settled(node, churn), chaos.BUSY_S)
    except AssertionError:
        raise AssertionError(f"{chaos.unsettled(node, churn)}; {node.evidence()}") from None
    assert chaos.kept(node) == steady
