"""Random histories of images, containers, plans and collections; `NODEVISOR_HISTORIES` sets their number.

The collection runs as in the actor. Its effects are those of a disk whose images share layers, and of containers that
start while it runs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from actors._host.node.plans import KEPT_S, LastPlan
from actors.image_gc import collection, policy
from actors.image_gc.collection import Look, Tally
from actors.image_gc.policy import ImageView, Limits, Protection, Seen, Victim
from proto.node.stats import FsStats
from proto.wire.errors import Refused

HISTORIES = int(os.environ.get("NODEVISOR_HISTORIES", "300"))
SEED = int(os.environ.get("NODEVISOR_HISTORIES_SEED", "0"))
STEPS = 25
CAPACITY = 1000
T = TypeVar("T")


def run(work: Coroutine[Any, None, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise AssertionError("it waited")


class Node:
    """A node with its runtime and its collector."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 1_750_000_000.0
        self.began = self.now
        self.limits = Limits(80, rng.choice([40, 70, 80]), rng.choice([0.0, 120.0]), rng.choice([0.0, 900.0]))
        self.protection = Protection(("keep*",) if rng.random() < 0.5 else (), local=rng.random() < 0.7)
        self.images: dict[str, ImageView] = {}
        self.layers: dict[str, set[int]] = {}
        self.pulled: dict[str, float] = {}
        self.used_at: dict[str, float] = {}
        """The last look at which a container used it: no collector knows of shorter lives."""
        self.containers: list[str] = []
        """The name of the image of each."""
        self.keeps_all = False
        self.stuck: set[str] = set()
        self.others = 0
        """Bytes of other files."""
        self.seen: dict[str, Seen] = {}
        self.initialized = False
        self.plan = LastPlan()
        self.changing = False
        """The world changes while a collection runs."""
        self.number = 0
        self.removed: list[str] = []

    # The world

    def pull(self) -> None:
        self.number += 1
        name = self.rng.choice(["keep", "web", "db"]) + str(self.number)
        id_ = f"sha256:{self.number}"
        layers = {self.rng.randrange(6) for _ in range(2)} | {100 + self.number}
        local = self.rng.random() < 0.2
        names = frozenset({id_, name} if local else {id_, name, f"{name}@{id_}"})
        size = sum(map(self.layer_size, layers))
        self.images[id_] = ImageView(id_, names, size, pinned=self.rng.random() < 0.1, local=local)
        self.layers[id_], self.pulled[id_] = layers, self.now

    @staticmethod
    def layer_size(layer: int) -> int:
        return 20 + layer % 7 * 10

    def used_bytes(self) -> int:
        return self.others + sum(map(self.layer_size, set().union(*self.layers.values())))

    def start(self) -> None:
        if self.images:
            image = self.rng.choice(list(self.images.values()))
            self.containers.append(self.rng.choice(sorted(image.names)))

    def end(self) -> None:
        if self.containers:
            self.containers.remove(self.rng.choice(self.containers))

    def pin(self) -> None:
        if self.images:
            id_ = self.rng.choice(list(self.images))
            one = self.images[id_]
            self.images[id_] = ImageView(one.id, one.names, one.size_bytes, not one.pinned, local=one.local)

    def in_use(self, image: ImageView) -> bool:
        return policy.is_used(image, frozenset(self.containers))

    def pass_time(self) -> None:
        self.now += self.rng.choice([1.0, 60.0, 500.0, 2000.0])

    def kill(self) -> None:
        """The collector starts again, with its checkpoint and without its plan."""
        self.plan = LastPlan()

    def change(self) -> None:
        """One change from outside."""
        moves = (self.pull, self.pull, self.start, self.start, self.end, self.pin, self.pass_time, self.pass_time)
        self.rng.choice(moves)()
        if self.rng.random() < 0.2:
            self.others = self.rng.choice([0, 300, 600])
        if self.rng.random() < 0.1:
            self.keeps_all = not self.keeps_all
        if self.rng.random() < 0.2:
            self.stuck = {one for one in self.images if self.rng.random() < 0.2}

    # collection.Node

    async def look(self) -> Look:
        images, in_use = list(self.images.values()), frozenset(self.containers)
        detected = self.now if self.initialized else policy.LONG_AGO
        self.seen = policy.observe(self.seen, images, in_use, detected, self.now)
        if not self.initialized:
            self.pulled = dict.fromkeys(self.images, policy.LONG_AGO)  # no collector can know better
        self.initialized = True
        self.used_at |= {one.id: self.now for one in images if self.in_use(one)}
        unused = policy.candidates(self.seen, images, in_use, frozenset(), self.protection)
        if self.keeps_all:
            return Look(self.now, images, (), dict.fromkeys(self.images, "another agent"))
        stays = {one.id: policy.why_stays(one, in_use, frozenset(), self.protection) for one in images}
        return Look(self.now, images, unused, stays)

    async def imagefs(self) -> FsStats:
        return FsStats(
            path="/",
            device=1,
            capacity_bytes=CAPACITY,
            available_bytes=max(0, CAPACITY - self.used_bytes()),
            inodes=1,
            inodes_free=1,
        )

    async def remove(self, victim: Victim) -> str:
        if self.changing and self.rng.random() < 0.3:
            self.start()
        image = victim.image
        if self.in_use(image):
            return "in use"
        if image.id in self.stuck:
            return "stuck"
        self.must_be_removable(victim)
        del self.images[image.id], self.layers[image.id]
        self.seen.pop(image.id)
        self.removed.append(image.id)
        return ""

    def must_be_removable(self, victim: Victim) -> None:
        image = self.images[victim.image.id]
        assert not self.in_use(image)
        assert not image.pinned
        assert not self.protection.covers(image)
        assert not self.keeps_all
        if victim.rule == "space":
            assert self.now - self.pulled[image.id] >= self.limits.min_age_s, "it is too young"
        else:
            assert self.now - self.used_at.get(image.id, 0.0) > self.limits.max_age_s > 0, "it was used not long ago"
            assert self.now - self.began > self.limits.max_age_s

    # The collector

    def collect(self, *, by_thresholds: bool) -> tuple[Tally, str]:
        """Run a collection as the actor does; return its result and how it differs from the plan."""
        look, tally = run(self.look()), Tally()
        work = collection.by_thresholds if by_thresholds else collection.all_unused
        with suppress(Refused):  # too few images may go
            run(work(self, look, self.limits, self.began, tally))
        told = self.plan.compare(tally.basis(look), self.now) if by_thresholds else ""
        return tally, told


def one_history(seed: int) -> tuple[int, int]:
    """Run a history; return the numbers of removed images and of plans that were compared."""
    rng = random.Random(seed)
    node = Node(rng)
    compared = 0
    for _ in range(rng.randrange(5)):
        node.pull()
    for _ in range(STEPS):
        for _ in range(rng.randrange(4)):
            node.change()
        if rng.random() < 0.1:
            node.kill()
        act = rng.choice(["look", "unused", "thresholds", "thresholds", "planned"])
        if act == "look":
            run(node.look())
        elif act == "unused":
            node.changing = rng.random() < 0.5
            node.collect(by_thresholds=False)
        elif act == "thresholds":
            node.changing = rng.random() < 0.5
            node.collect(by_thresholds=True)
        else:
            compared += 1
            planned_and_done(node)
    return len(node.removed), compared


def planned_and_done(node: Node) -> None:
    """A plan removes nothing. The act after it takes the same images, or tells what changed."""
    images, made = dict(node.images), node.now
    _, going, basis = run(collection.plan(node, node.limits, node.began, None))
    assert node.images == images
    node.plan.keep(basis, made)
    planned = tuple(one.image.id for one in going)
    node.changing = False
    changed = node.rng.random() < 0.6
    for _ in range(node.rng.randrange(1, 4) if changed else 0):
        node.change()
    stuck = bool(node.stuck)
    tally, told = node.collect(by_thresholds=True)
    differs = tally.removed != planned and node.now - made <= KEPT_S
    assert bool(told) == differs, (told, planned, tally.removed)
    if not changed and not stuck:
        assert tally.removed[: len(planned)] == planned, "in that order"
        if differs:
            assert "images that have to go" in told or "bytes freed" in told, (
                "shared layers free less than the sizes of the images"
            )


@pytest.mark.timeout(0)
def test_only_images_that_may_go_do_and_plans_hold() -> None:
    removed = compared = 0
    for number in range(HISTORIES):
        seed = SEED + number
        try:
            some, plans = one_history(seed)
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
        removed, compared = removed + some, compared + plans
    assert removed > HISTORIES, "histories without removals show nothing"
    assert compared > HISTORIES
