"""Random histories of a node that runs short of resources; `NODEVISOR_HISTORIES` sets their number.

Observation, thresholds, reclaim, ranking and plan run as in the actor. Effects are those of a node whose figures change
at any time, and whose reclaims and evictions free what they free.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from actors._host.node.critical import is_critical
from actors._host.node.plans import LastPlan
from actors.eviction import planning, policy, relief
from actors.eviction.policy import Observation, Progress, Reclaim
from actors.eviction.thresholds import SIGNALS, DiskLayout, Threshold, parse_thresholds, with_containerfs
from proto.node.stats import PodUsage
from proto.pods.pod_workers import PodWorkerState
from proto.v1 import Pod, from_dict
from tests.image_gc.pure.test_histories import HISTORIES, SEED, run

STEPS = 20
CAPACITY = 1000
HARD = {signal: "10%" for signal in SIGNALS if not signal.startswith(("containerfs", "allocatable"))}
SOFT = {"memory.available": "30%", "nodefs.available": "25%"}
CONFIGURED = parse_thresholds(
    HARD, SOFT, dict.fromkeys(SOFT, 30.0), {"imagefs.available": "10%"}, pods_are_limited=True
)


class Node:
    """A node, its pods, and the state of the eviction actor."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 1000.0
        self.layout: DiskLayout = rng.choice(["one disk", "images apart", "split"])
        self.available = {signal: rng.randrange(CAPACITY) for signal in SIGNALS}
        self.version = 0
        """Grows with each reclaim, and each end of a pod."""
        self.seen_version = -1
        self.seen: dict[str, Observation] = {}
        self.progress = Progress()
        self.workers: dict[str, PodWorkerState] = {}
        self.usages: dict[str, PodUsage] = {}
        self.plan = LastPlan()
        self.evicted: list[str] = []
        self.told = ""
        self.plans = 0
        self.cannot_measure = False
        self.number = 0

    # The world

    def add(self) -> None:
        self.number += 1
        uid = f"u{self.number}"
        annotations = {"kubernetes.io/config.source": self.rng.choice(["api", "api", "api", "file"])}
        requests = {"memory": str(self.rng.randrange(200)), "ephemeral-storage": str(self.rng.randrange(200))}
        spec = {
            "containers": [{"name": "c", "resources": {"requests": requests if self.rng.random() < 0.5 else {}}}],
            "priority": self.rng.choice([0, 0, 100, 2_000_000_000]),
        }
        pod = from_dict(
            Pod, {"metadata": {"name": uid, "namespace": "n", "uid": uid, "annotations": annotations}, "spec": spec}
        )
        self.workers[uid] = PodWorkerState(
            uid=uid,
            namespace="n",
            name=uid,
            stage=self.rng.choice(["sync", "sync", "sync", "terminating", "terminated"]),
            deleted=self.rng.random() < 0.1,
            rejected=self.rng.random() < 0.1,
            static=False,
            pod=pod,
        )
        self.use(uid)

    def use(self, uid: str) -> None:
        amount = self.rng.randrange(300)
        layers = self.rng.randrange(amount + 1)
        self.usages[uid] = PodUsage(
            pod_uid=uid,
            memory_working_set_bytes=amount,
            disk_bytes=amount,
            writable_layer_bytes=layers,
            inodes=amount,
            writable_layer_inodes=layers,
            tasks=amount,
        )
        if self.rng.random() < 0.1:
            del self.usages[uid]

    def change(self) -> None:
        """One change from outside."""
        kind = self.rng.randrange(6)
        if kind == 0 or not self.workers:
            self.add()
        elif kind == 1:
            self.use(self.rng.choice(list(self.workers)))
        elif kind == 2:
            self.workers.pop(self.rng.choice(list(self.workers)))
        elif kind == 3:
            self.now += self.rng.choice([1.0, 40.0])
        else:
            self.available[self.rng.choice(list(SIGNALS))] = self.rng.randrange(CAPACITY)

    # relief.Node

    async def observe(self) -> Progress:
        if self.cannot_measure:
            raise OSError("cannot measure")
        self.seen = {signal: Observation(amount, CAPACITY) for signal, amount in self.available.items()}
        self.seen_version = self.version
        thresholds = with_containerfs(CONFIGURED, self.layout)
        self.progress = self.progress.observe(thresholds, self.seen, self.now)
        return self.progress

    def amount_of(self, signal: str) -> int:
        return self.seen[signal].available

    async def pause(self) -> None:
        self.now += 1.0
        if self.rng.random() < 0.3:
            self.change()

    async def reclaim(self, step: Reclaim) -> bool:
        self.version += 1
        for signal in SIGNALS:
            if step in policy.reclaim_steps(signal, self.layout) and self.rng.random() < 0.4:
                self.available[signal] = min(CAPACITY, self.available[signal] + self.rng.randrange(400))
        if self.rng.random() < 0.2:
            self.available["memory.available"] = 0
        self.cannot_measure = self.rng.random() < 0.1
        return self.rng.random() < 0.5

    async def evict(self, threshold: Threshold) -> list[str]:
        assert self.seen_version == self.version, "figures older than the last reclaim"
        assert policy.is_met(threshold, self.seen, with_reclaim=True), "nothing is short"
        first = self.progress.first_met[threshold]
        assert self.now - first >= threshold.grace_s, "within its grace period"
        met = [one.signal for one in self.progress.acted_on]
        if "memory.available" in met:
            assert threshold.signal == "memory.available", "memory goes first"
        found = planning.candidates(self.workers.values(), self.usages, threshold.signal, self.layout)
        if not found:
            assert not self.may_go()
            return []
        refused = {}
        while found[len(refused) :] and self.rng.random() < 0.1:  # gone since they were listed
            refused[found[len(refused)].uid] = "not to be ended"
        if len(refused) == len(found):
            return []
        uid = found[len(refused)].uid
        self.told = self.plan.compare(planning.basis(found, threshold.signal, refused, uid), self.now)
        self.must_be_right(uid, threshold.signal, set(refused))
        del self.workers[uid]
        self.version += 1
        self.evicted.append(uid)
        return [uid]

    def may_go(self) -> dict[str, Pod]:
        """The rules anew: a pod that ends may go. Ended, deleted, rejected and critical ones may not."""
        return {
            one.uid: one.pod
            for one in self.workers.values()
            if one.pod is not None and not is_critical(one.pod)
            if one.stage in ("sync", "terminating") and not (one.deleted or one.rejected)
        }

    def must_be_right(self, uid: str, signal: str, refused: set[str]) -> None:
        """The rules of the documentation, written anew: no critical pod; above its request before within it."""
        pods = self.may_go()
        assert uid in pods
        others = [one for one in pods if one not in refused and one != uid]
        if signal == "memory.available" and uid in self.usages:
            assert all(one in self.usages for one in others), "unknown usage goes first"
            assert not self.above(uid, pods) < max((self.above(one, pods) for one in others), default=False)

    def above(self, uid: str, pods: dict[str, Pod]) -> bool:
        request: Any = pods[uid].spec.containers[0].resources.requests.get("memory", 0)
        return self.usages[uid].memory_working_set_bytes > int(request)

    # The actor

    def synchronize(self) -> list[str]:
        self.cannot_measure = False
        progress = run(self.observe())
        if not progress.acted_on:
            return []
        try:
            return run(relief.relieve(self, progress))
        except OSError:
            return []  # the next look decides

    def show_plan(self) -> tuple[str, ...]:
        """Plan for the first threshold that is met; return the UIDs in order."""
        progress = self.progress.observe(
            with_containerfs(CONFIGURED, self.layout),
            {signal: Observation(amount, CAPACITY) for signal, amount in self.available.items()},
            self.now,
        )
        if not progress.acted_on:
            return ()
        signal = progress.acted_on[0].signal
        found = planning.candidates(self.workers.values(), self.usages, signal, self.layout)
        self.plan.keep(planning.basis(found, signal, {}), self.now)
        return tuple(one.uid for one in found)


def one_history(seed: int) -> tuple[int, int]:
    """Run a history; return the numbers of evictions and of plans that were compared."""
    rng = random.Random(seed)
    node, compared = Node(rng), 0
    for _ in range(rng.randrange(6)):
        node.add()
    for _ in range(STEPS):
        for _ in range(rng.randrange(4)):
            node.change()
        workers = dict(node.workers)
        planned = node.show_plan() if rng.random() < 0.5 else ()
        assert node.workers == workers, "a plan ends no pod"
        for _ in range(rng.choice([0, 0, 1, 2])):
            node.change()
        node.told = ""
        evicted = node.synchronize()
        if evicted and planned:
            compared += 1
            assert bool(node.told) == (evicted[0] != planned[0]), (evicted, planned, node.told)
        node.plan = LastPlan()
    return len(node.evicted), compared


@pytest.mark.timeout(0)
def test_pods_go_by_new_figures_only_and_as_planned() -> None:
    evicted = compared = 0
    for number in range(HISTORIES):
        seed = SEED + number
        try:
            some, plans = one_history(seed)
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
        evicted, compared = evicted + some, compared + plans
    assert evicted > HISTORIES
    assert compared > HISTORIES // 4
