"""Random histories of pods, containers, plans and passes; `NODEVISOR_HISTORIES` sets their number."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from actors._host.node.plans import KEPT_S, LastPlan
from actors.container_gc import policy
from actors.container_gc.policy import ContainerView, Limits, Pods, SandboxView, Seen
from proto.pods.pod_workers import PodWorkerState
from tests.image_gc.pure.test_histories import HISTORIES, SEED

STEPS = 20


class Node:
    """The runtime's lists, the pod workers, and the collector."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 1_750_000_000.0
        self.limits = Limits(rng.choice([0.0, 60.0]), rng.choice([-1, 0, 1, 2]), rng.choice([-1, 0, 3]))
        self.containers: dict[str, ContainerView] = {}
        self.sandboxes: dict[str, SandboxView] = {}
        self.workers: dict[str, PodWorkerState] = {}
        self.own: set[str] = set()
        self.sources_ready = False
        self.attempts: dict[tuple[str, str], int] = {}
        self.number = 0
        self.plan = LastPlan()
        self.removed = 0

    # The world

    def pod(self) -> None:
        self.number += 1
        uid = f"u{self.number}"
        if self.rng.random() < 0.8:  # the others are another agent's
            self.own.add(uid)
            self.workers[uid] = PodWorkerState(
                uid=uid, namespace="n", name=uid, stage="sync", deleted=False, static=False
            )
        self.sandbox(uid)

    def sandbox(self, uid: str) -> None:
        self.number += 1
        attempt = sum(one.pod_uid == uid for one in self.sandboxes.values())
        id_ = f"s{self.number}"
        self.sandboxes[id_] = SandboxView(id_, uid, attempt, self.now, ready=True)

    def container(self) -> None:
        ready = [one for one in self.sandboxes.values() if one.ready]
        if not ready:
            return
        sandbox, name = self.rng.choice(ready), self.rng.choice("ab")
        self.number += 1
        attempt = self.attempts[sandbox.pod_uid, name] = self.attempts.get((sandbox.pod_uid, name), -1) + 1
        state = self.rng.choice(["created", "running", "running", "unknown"])
        self.containers[f"c{self.number}"] = ContainerView(
            f"c{self.number}", sandbox.pod_uid, name, attempt, self.now, sandbox.id, state
        )

    def end(self) -> None:
        alive = [one for one in self.containers.values() if one.state != "exited"]
        if alive:
            one = self.rng.choice(alive)
            self.containers[one.id] = replace(one, state=self.rng.choice(["exited", "exited", "running"]))

    def end_sandbox(self) -> None:
        if self.sandboxes:
            one = self.rng.choice(list(self.sandboxes.values()))
            self.sandboxes[one.id] = replace(one, ready=False)
            for container in [each for each in self.containers.values() if each.sandbox_id == one.id]:
                self.containers[container.id] = replace(container, state="exited")

    def end_pod(self) -> None:
        if self.workers:
            uid = self.rng.choice(list(self.workers))
            kind = self.rng.randrange(3)
            if kind == 0:
                del self.workers[uid]
            else:
                stage, deleted = self.rng.choice([("terminating", True), ("terminated", True), ("terminated", False)])
                evicted = self.rng.random() < 0.3
                self.workers[uid] = PodWorkerState(
                    uid=uid,
                    namespace="n",
                    name=uid,
                    stage=stage,
                    deleted=deleted,
                    static=False,
                    evicted=evicted,
                    released=stage == "terminated" and self.rng.random() < 0.5,
                )

    def change(self) -> None:
        moves = (self.pod, self.container, self.container, self.end, self.end, self.end_sandbox, self.end_pod)
        self.rng.choice(moves)()
        if self.rng.random() < 0.3:
            self.now += self.rng.choice([5.0, 130.0, 2000.0])
        if self.rng.random() < 0.2:
            self.sources_ready = True

    # The collector

    def look(self) -> tuple[Seen, Pods]:
        seen = Seen(list(self.containers.values()), list(self.sandboxes.values()), {}, {})
        return seen, Pods(dict(self.workers), self.sources_ready, frozenset(self.own))

    def run_pass(self, *, ended_too: bool) -> tuple[tuple[str, ...], str]:
        """Remove as the actor does; return the removed IDs and the difference from the plan."""
        seen, pods = self.look()
        dead = policy.containers_to_remove(seen.containers, pods, self.limits, self.now, ended_too=ended_too)
        stuck = {one.id for one in dead if self.rng.random() < 0.05}
        for one in dead:
            self.container_must_be_removable(one, ended_too=ended_too)
        gone = {one.id for one in dead} - stuck
        idle = policy.idle_sandboxes(seen, pods, gone, ended_too=ended_too)
        for box in idle:
            assert not box.ready
            assert box.pod_uid in self.own, "another agent's"
            assert not any(one.sandbox_id == box.id for one in self.containers.values() if one.id not in gone)
        for id_ in gone:
            del self.containers[id_]
        for box in idle:
            del self.sandboxes[box.id]
        self.removed += len(gone) + len(idle)
        going = [*(one for one in dead if one.id in gone), *idle]
        told = "" if ended_too else self.plan.compare(policy.basis(seen, going, pods, self.limits, self.now), self.now)
        return tuple(one.id for one in going), told

    def container_must_be_removable(self, one: ContainerView, *, ended_too: bool) -> None:
        assert one.pod_uid in self.own, "another agent's"
        assert one.state != "running"
        assert one.state != "created" or one.created <= self.now - policy.STARTING_S, "it is about to start"
        assert one.created <= self.now - self.limits.min_age_s, "it is too young"
        worker = self.workers.get(one.pod_uid)
        ended = self.sources_ready and (worker is None or worker.stage == "terminated")
        gone = ended and (worker is None or worker.deleted or (worker.evicted and worker.released))
        if gone or (ended and ended_too) or self.limits.max_containers >= 0:
            return
        same = [each for each in self.containers.values() if (each.pod_uid, each.name) == (one.pod_uid, one.name)]
        newer = sum((each.attempt, each.created) > (one.attempt, one.created) for each in same)
        assert newer >= self.limits.max_per_pod_container >= 0, "it is one of the newest of its name"


def planned_and_done(node: Node) -> None:
    """A plan removes nothing. The pass after it takes the same, or tells what changed."""
    before, made = (dict(node.containers), dict(node.sandboxes)), node.now
    seen, pods = node.look()
    dead, idle = policy.to_remove(seen, pods, node.limits, node.now)
    assert (node.containers, node.sandboxes) == before
    planned = tuple(one.id for one in [*dead, *idle])
    node.plan.keep(policy.basis(seen, [*dead, *idle], pods, node.limits, node.now), made)
    changed = node.rng.random() < 0.6
    for _ in range(node.rng.randrange(1, 4) if changed else 0):
        node.change()
    done, told = node.run_pass(ended_too=False)
    assert bool(told) == (done != planned and node.now - made <= KEPT_S), (told, planned, done)


@pytest.mark.timeout(0)
def test_only_containers_that_may_go_do_and_plans_hold() -> None:
    removed = 0
    for number in range(HISTORIES):
        rng = random.Random(SEED + number)
        node = Node(rng)
        try:
            for _ in range(STEPS):
                for _ in range(rng.randrange(6)):
                    node.change()
                if rng.random() < 0.3:
                    planned_and_done(node)
                elif rng.random() < 0.5:
                    node.run_pass(ended_too=rng.random() < 0.3)
        except AssertionError as error:
            raise AssertionError(f"history {SEED + number}: {error}") from error
        removed += node.removed
    assert removed > HISTORIES
