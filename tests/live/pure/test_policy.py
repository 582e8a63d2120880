"""The decisions about changed configurations, without files, processes or sleep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.agent.settings import Settings
from supervisor.config.kubeletconfig.mapping import EFFECTIVE
from supervisor.config.reload import policy, readers
from supervisor.config.reload.candidate import Candidate, Resolved, as_started, needs_restart
from supervisor.config.reload.policy import (
    AskHeartbeat,
    Health,
    Instruction,
    Machine,
    PutInForce,
    Report,
    Resolve,
    Save,
)

ACTORS = ("status", "image_pull", "pod_workers", "image_gc")
RUNNING = Health(incarnation=1, deaths=0, ready=True, ponged=0.0)


def candidate(digest: str, at_start: dict[str, Any] | None = None, **settings: Any) -> Candidate:
    shown = {"configuration": settings, "sources": {name: f"kubelet.yaml:{at}" for at, name in enumerate(settings, 3)}}
    return Candidate(
        settings=msgspec.structs.replace(Settings(), **settings),
        at_start=at_start or {},
        configuration=msgspec.Raw(msgspec.json.encode(shown)),
        digest=digest,
    )


A = candidate("a", image_gc_high_threshold_percent=85)
B = candidate("b", image_gc_high_threshold_percent=90)
C = candidate("c", image_gc_high_threshold_percent=85, max_pods=20)
WITH_COMMENT = candidate("a with a comment", image_gc_high_threshold_percent=85)


class World:
    """A machine with the time and the actors that it is shown."""

    def __init__(self, in_force: Candidate = A, good: Candidate | None = A, **more: Any) -> None:
        self.now = 100.0
        self.actors = dict.fromkeys(ACTORS, RUNNING)
        self.machine = Machine(ACTORS, in_force, good, **more)
        self.out = self.machine.begin(self.now, self.actors)

    def files_say(self, what: Candidate | str) -> list[Instruction]:
        assert Resolve() in self.machine.files_changed()
        result = (
            Resolved(digest=what, error="kubelet.yaml:3: wrong")
            if isinstance(what, str)
            else Resolved(digest=what.digest, candidate=what)
        )
        self.out = list(self.machine.resolved(result, self.now, self.actors))
        return self.out

    def restarted(self, *names: str) -> None:
        for name in names:
            old = self.actors[name]
            self.actors[name] = msgspec_replace(old, incarnation=old.incarnation + 1, ready=True, ponged=None)

    def set(self, name: str, **values: Any) -> None:
        self.actors[name] = msgspec_replace(self.actors[name], **values)

    def after(self, seconds: float) -> list[Instruction]:
        """Let time pass in the steps that the machine asks for, answering heartbeats. Everything that came out."""
        end, found = self.now + seconds, []
        while True:
            for one in self.machine.tick(self.now, self.actors):
                found.append(one)
                if isinstance(one, AskHeartbeat):
                    for name in one.actors:
                        if self.actors[name].ponged != float("-inf"):
                            self.set(name, ponged=self.now + 0.001)
            wakeup = self.machine.next_wakeup(self.now)
            if wakeup is None or wakeup > end:
                self.now = end
                return found + list(self.machine.tick(end, self.actors))
            self.now = max(wakeup, self.now + 0.01)


def msgspec_replace(health: Health, **values: Any) -> Health:
    fields = {name: getattr(health, name) for name in Health.__dataclass_fields__}
    return Health(**(fields | values))


def verdicts(instructions: Iterable[Instruction]) -> list[str]:
    return [one.entry.verdict for one in instructions if isinstance(one, Report)]


def put(instructions: Iterable[Instruction]) -> list[PutInForce]:
    return [one for one in instructions if isinstance(one, PutInForce)]


# Changes


@pytest.mark.parametrize(
    ("change", "actors"),
    [
        ({"image_gc_high_threshold_percent": 90}, ("image_gc",)),
        ({"max_pods": 5}, ("pod_workers",)),
        ({"registry_burst": 1, "max_pods": 5}, ("image_pull", "pod_workers")),
        ({"log_format": "json"}, ACTORS),
        ({"eviction_pressure_transition_period_s": 1.0}, ()),  # no actor here reads it
    ],
)
def test_change_restarts_the_actors_that_read_it(change: dict[str, Any], actors: tuple[str, ...]) -> None:
    world = World()
    changed = candidate("new", **({"image_gc_high_threshold_percent": 85} | change))
    assert put(world.files_say(changed)) == [PutInForce(changed, actors)]
    assert world.machine.in_force == changed
    assert (world.machine.trial is None) == (not actors)


def test_trial_is_on_disk_before_anything_is_restarted() -> None:
    world = World()
    kinds = [type(one) for one in world.files_say(B)]
    assert kinds.index(Save) < kinds.index(PutInForce)


def test_change_of_no_setting_is_good_at_once() -> None:
    world = World()
    assert put(world.files_say(WITH_COMMENT)) == [PutInForce(WITH_COMMENT, ())]
    assert verdicts(world.out) == ["no effect"]
    assert world.machine.good == WITH_COMMENT


def test_unchanged_files_are_not_reported() -> None:
    assert World().files_say(A) == []


@pytest.mark.parametrize(
    "change",
    [
        *({name: "/other"} for name in readers.FIXED if isinstance(getattr(Settings(), name), str)),
        {"at_start": {"x": 1}},
        {"make_iptables_util_chains": False},
        {"page_address": "127.0.0.1:10260"},
    ],
)
def test_change_that_needs_a_new_agent_is_not_applied_in_part(change: dict[str, Any]) -> None:
    world = World()
    out = world.files_say(candidate("new", max_pods=3, **change))
    assert verdicts(out) == ["needs a restart"]
    assert not put(out)
    assert world.machine.in_force == A
    assert world.files_say(candidate("new", max_pods=3, **change)) == []


def test_invalid_file_changes_nothing_and_is_logged_once() -> None:
    world = World()
    assert verdicts(world.files_say("x")) == ["invalid"]
    assert world.files_say("x") == []
    assert verdicts(world.files_say("y")) == ["invalid"]
    assert verdicts(world.files_say(A)) == ["no effect"]
    assert world.machine.in_force == A


def test_files_that_change_while_they_are_read_are_read_again() -> None:
    machine = World().machine
    assert machine.files_changed() == [Resolve()]
    assert machine.files_changed() == []
    assert machine.files_changed() == []
    assert machine.resolved(Resolved(digest="b", candidate=B), 0.0, {}) == [Resolve()]
    assert machine.in_force == A


# The trial


def test_healthy_actor_confirms_the_configuration() -> None:
    world = World()
    world.files_say(B)
    world.restarted("image_gc")
    out = world.after(policy.STABLE_S + policy.ANSWER_S - 0.1)
    assert AskHeartbeat(("image_gc",)) in out
    assert verdicts(out) == []
    assert world.machine.good == A
    out = world.after(0.3)
    assert verdicts(out) == ["good"]
    assert (world.machine.good, world.machine.trial) == (B, None)
    assert world.machine.next_wakeup(world.now) is None


def test_history_names_the_missing_file_of_a_good_change() -> None:
    without = msgspec.structs.replace(B, missing=("k.yaml:3: resolvConf: /x is not there now",))
    world = World()
    out = world.files_say(without)
    world.restarted("image_gc")
    world.after(policy.STABLE_S + policy.ANSWER_S - 0.1)
    out += world.after(0.3)
    entries = [one.entry for one in out if isinstance(one, Report)]
    assert [one.verdict for one in entries] == ["on trial", "good"]
    assert all(one.message.endswith("; k.yaml:3: resolvConf: /x is not there now") for one in entries)


@pytest.mark.parametrize("at", [0.0, 1.0, policy.STABLE_S + 0.1])
def test_death_rolls_back_at_once(at: float) -> None:
    world = World()
    world.files_say(B)
    world.restarted("image_gc")
    world.after(at)
    world.set("image_gc", deaths=1, ready=False, last_death="exit 70: boom")
    out = world.after(0.0)
    assert verdicts(out) == ["rolled back"]
    assert put(out) == [PutInForce(A, ("image_gc",), policy.END_WITHIN_S)]
    assert world.machine.in_force == A
    report = next(one for one in out if isinstance(one, Report))
    assert "boom" in report.entry.message
    assert report.entry.changes == ("image_gc_high_threshold_percent: 85 -> 90 (kubelet.yaml:3)",)


def test_death_of_another_actor_does_not_fail_the_trial() -> None:
    world = World()
    world.files_say(B)
    world.restarted("image_gc")
    world.set("status", deaths=3, ready=False)
    assert verdicts(world.after(20)) == ["good"]


def test_actor_that_never_gets_ready_is_rolled_back() -> None:
    world = World()
    world.files_say(B)
    world.set("image_gc", incarnation=2, ready=False)
    assert verdicts(world.after(policy.READY_WITHIN_S - 0.1)) == []
    assert verdicts(world.after(0.2)) == ["rolled back"]


def test_old_ready_incarnation_does_not_count() -> None:
    world = World()
    world.files_say(B)
    assert verdicts(world.after(policy.READY_WITHIN_S + 0.1)) == ["rolled back"]


def test_missing_heartbeat_is_rolled_back_within_10_s() -> None:
    world = World()
    world.files_say(B)
    world.restarted("image_gc")
    world.set("image_gc", ponged=float("-inf"))
    assert verdicts(world.after(10.2)) == ["rolled back"]


def test_continued_supervisor_asks_before_it_rolls_back() -> None:
    world = World()
    world.files_say(B)
    world.restarted("image_gc")
    world.after(0.0)
    world.now += 1000
    assert verdicts(world.after(0.0)) == []
    assert verdicts(world.after(policy.ANSWER_S + 0.1)) == ["good"]


def test_failed_configuration_is_not_tried_before_a_change() -> None:
    world = World()
    world.files_say(B)
    world.set("image_gc", deaths=1)
    world.after(0.0)
    assert world.files_say(B) == []
    assert verdicts(world.files_say(A)) == ["no effect"]
    assert verdicts(world.files_say(B)) == ["refused"]
    assert put(world.files_say(msgspec.structs.replace(B, digest="b again")))


def test_change_during_a_trial_is_applied_and_can_roll_back() -> None:
    world = World()
    world.files_say(B)
    world.restarted("image_gc")
    out = world.files_say(C)
    assert verdicts(out) == ["superseded", "on trial"]
    assert put(out) == [PutInForce(C, ("pod_workers", "image_gc"))]
    world.restarted("image_gc", "pod_workers")
    world.set("pod_workers", deaths=1, last_death="exit 70")
    out = world.after(0.0)
    assert put(out) == [PutInForce(A, ("pod_workers",), policy.END_WITHIN_S)]


def test_earlier_trial_s_actor_still_counts_in_the_next() -> None:
    world = World()
    world.files_say(C)
    world.restarted("pod_workers")
    world.files_say(candidate("d", image_gc_high_threshold_percent=90, max_pods=20))
    world.restarted("image_gc")
    world.set("pod_workers", deaths=1)
    assert verdicts(world.after(0.0)) == ["rolled back"]
    assert world.machine.in_force == A


def test_reverting_the_files_ends_the_trial() -> None:
    world = World()
    world.files_say(B)
    world.restarted("image_gc")
    assert put(world.files_say(A)) == [PutInForce(A, ("image_gc",))]
    assert (world.machine.trial, world.machine.good) == (None, A)


# At a start


def test_last_known_good_is_not_on_trial() -> None:
    world = World(A, A)
    assert world.machine.trial is None
    assert world.out == [Save()]


def test_new_configuration_at_boot_is_on_a_longer_trial() -> None:
    world = World(B, A)
    assert verdicts(world.after(policy.BOOT_WITHIN_S - 1)) == []
    world.restarted(*ACTORS)
    assert verdicts(world.after(20)) == ["good"]


def test_configuration_that_fails_at_boot_is_rolled_back() -> None:
    world = World(B, A)
    world.set("image_gc", deaths=1)
    assert put(world.after(0.0)) == [PutInForce(A, ("image_gc",), policy.END_WITHIN_S)]


def test_roll_back_with_fixed_settings_waits_for_a_restart() -> None:
    world = World(candidate("b", cgroup_root="/x"), A)
    world.set("image_gc", deaths=1)
    out = world.after(0.0)
    assert verdicts(out) == ["failed"]
    assert not put(out)
    assert world.machine.bad == ("b",)


def test_failure_without_last_known_good_is_reported_once() -> None:
    world = World(B, None)
    world.restarted(*ACTORS)
    for death in range(1, 10):
        world.set("image_gc", deaths=death, ready=False)
        assert verdicts(world.after(1.0)) == (["failed"] if death == 1 else [])
        assert world.machine.bad == ()
    world.restarted("image_gc")
    assert verdicts(world.after(100)) == ["good"]
    assert world.machine.good == B


STEPS = st.one_of(
    st.tuples(st.just("files"), st.sampled_from([A, B, C, WITH_COMMENT, "invalid"])),
    st.tuples(st.just("dies"), st.sampled_from(ACTORS)),
    st.tuples(st.just("restarts"), st.sampled_from(ACTORS)),
    st.tuples(st.just("time"), st.sampled_from([0.0, 0.5, 5.0, 30.0])),
)


@given(st.lists(STEPS, max_size=30))
def test_configuration_in_force_is_good_or_on_trial(steps: list[Any]) -> None:
    world = World()
    for kind, what in steps:
        match kind:
            case "files":
                world.files_say(what)
            case "dies":
                world.set(what, deaths=world.actors[what].deaths + 1, ready=False)
                world.after(0.0)
            case "restarts":
                world.restarted(what)
            case "time":
                world.after(what)
        machine = world.machine
        assert machine.good is not None
        assert machine.trial is not None or machine.in_force == machine.good
        assert machine.good.digest not in machine.bad
        assert machine.trial is None or machine.next_wakeup(world.now) is not None


def test_settings_that_no_file_has_keep_their_values() -> None:
    """The host was renamed, say. Neither is the agent to be started again, nor do the name's readers restart."""
    attributes = {effect.attribute for effect in EFFECTIVE.values()}
    assert attributes.isdisjoint(readers.FROM_FLAGS)
    assert set(readers.FROM_FLAGS) <= readers.FIXED.keys()
    renamed = candidate("new", max_pods=3, node_name="other", run_dir="/other")
    found = as_started(Resolved(digest="new", candidate=renamed), Settings()).candidate
    assert found is not None
    assert needs_restart(candidate("old"), found) == ()
    assert readers.changed(Settings(), found.settings) == ("max_pods",)
    assert as_started(Resolved(digest="bad", error="wrong"), Settings()).error == "wrong"
