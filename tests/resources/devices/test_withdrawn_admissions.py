"""Admissions under way of pods that pod_workers no longer has: it was killed, and the manifest went meanwhile.

Each pod asks for all CPUs and all devices, and the plugin works until a test lets it answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.resources.devices import checkpoint
from proto.agent.actor import Describe
from proto.resources.resources import AdmitPod, ReleasePod, SetPods
from proto.v1 import Pod
from proto.wire.errors import Refused
from tests.harness import ActorProcess, wait_for
from tests.resources.devices.device_plugin import Plugin
from tests.resources.devices.pods import GPU, container, pod
from tests.resources.devices.test_device_manager import (
    admit,
    admit_soon,
    admitting,
    directory,
    grant,
    new_plugin,
    refusal,
    restart,
    told,
)
from tests.resources.plugin_server import Fault
from tests.resources.provider import PRELUDE

PATIENT = f"{PRELUDE}from actors.resources.devices import plugin; plugin.ALLOCATE_S = 60.0\n"
NOBODY = SetPods(pods=(), full=True)


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    """It has 8 CPUs, and waits for plugins as long as a test lets them hang."""
    with ActorProcess("resources", None, ("pod_workers", "node", "status"), prelude=PATIENT) as process:
        process.tell(NOBODY)
        yield process


@pytest.fixture
def plugin(actor: ActorProcess) -> Iterator[Plugin]:
    one = new_plugin(actor, faults={"Allocate": Fault(hang=True)}).start()
    wait_for(lambda: told(actor) == (2, 2), 20, "its devices are known")
    yield one
    one.close()


def greedy(uid: str) -> Pod:
    amounts = {GPU: "2", "cpu": "8"}
    return pod(uid, container("c", resources={"limits": amounts, "requests": amounts}))


@contextmanager
def under_way(actor: ActorProcess, plugin: Plugin, subject: Pod) -> Iterator[Future[None]]:
    """The plugin works for the pod until the block lets it answer; it answers later calls at once."""
    with admitting(actor, subject) as asked:
        try:
            wait_for(lambda: plugin.of("Allocate"), 20, "the plugin is asked")
            plugin.faults.clear()
            yield asked
        finally:
            plugin.release.set()


def devices(actor: ActorProcess) -> dict[str, int]:
    found: dict[str, int] = actor.ask(Describe()).state["devices"].get(GPU, {})
    return found


def devices_in_use(actor: ActorProcess) -> int:
    return devices(actor)["in_use"]


def holders(actor: ActorProcess) -> tuple[set[str], set[str]]:
    """UIDs in the state file of CPUs, and in the checkpoint of devices."""
    cpus = json.loads(Path(actor.settings.root_dir, "test_state").read_text())
    # Without this boot's ID every holding is read as one of an earlier boot: only whose it is counts.
    held, _ = checkpoint.decode((directory(actor) / checkpoint.FILE).read_bytes(), "")
    return set(cpus), {one.pod_uid for one in held}


def expect_held_by(actor: ActorProcess, subject: Pod) -> None:
    """The pod has all CPUs and devices, here and on disk, and keeps them when another pod asks."""
    found = grant(actor, subject)
    assert (found.cpus, found.environment["DEVICES"]) == ("0,1,2,3,4,5,6,7", "d0,d1")
    assert not refusal(actor, greedy("late")).retry
    uid = subject.metadata.uid
    wait_for(lambda: holders(actor) == ({uid}, {uid}), 20, "the files name this pod only")


def test_admission_of_an_unlisted_pod_keeps_nothing(actor: ActorProcess, plugin: Plugin) -> None:
    with under_way(actor, plugin, greedy("gone")) as asked:
        actor.tell(NOBODY)
        assert devices_in_use(actor) == 0
        plugin.release.set()
        with pytest.raises(Refused, match="released") as refused:
            asked.result(20)
    assert refused.value.retry
    admit(actor, greedy("next"))
    expect_held_by(actor, greedy("next"))


def test_what_it_took_is_free_while_the_plugin_works(actor: ActorProcess, plugin: Plugin) -> None:
    with under_way(actor, plugin, greedy("gone")) as asked:
        actor.tell(NOBODY)
        admit(actor, greedy("next"))
        expect_held_by(actor, greedy("next"))
        assert not asked.done()
        plugin.release.set()
        with pytest.raises(Refused, match="released"):
            asked.result(20)
    expect_held_by(actor, greedy("next"))


def test_admission_of_a_listed_pod_goes_on(actor: ActorProcess, plugin: Plugin) -> None:
    """As when pod_workers has asked, and then sends all its pods."""
    with under_way(actor, plugin, greedy("new")) as asked:
        actor.tell(SetPods(pods=(greedy("new"),), full=True))
        actor.tell(SetPods(pods=(), full=False))
        assert devices_in_use(actor) == 2
        plugin.release.set()
        asked.result(20)
    expect_held_by(actor, greedy("new"))


@pytest.mark.parametrize("gone", [NOBODY, ReleasePod(pod_uid="again")])
def test_next_admission_of_the_pod_is_not_withdrawn(
    actor: ActorProcess, plugin: Plugin, gone: SetPods | ReleasePod
) -> None:
    """The manifest comes back, and pod_workers asks while the plugin still works for its predecessor."""
    with under_way(actor, plugin, greedy("again")) as first, ThreadPoolExecutor(1) as pool:
        actor.tell(gone)
        wait_for(lambda: devices_in_use(actor) == 0, 20, "the first has lost them")
        second = pool.submit(admit, actor, greedy("again"))
        wait_for(lambda: devices_in_use(actor) == 2, 20, "the second has them")
        plugin.release.set()
        with pytest.raises(Refused, match="released"):
            first.result(20)
        second.result(20)
    expect_held_by(actor, greedy("again"))


@pytest.mark.parametrize("told_before", [True, False])
def test_kill_within_it_leaves_nothing(actor: ActorProcess, plugin: Plugin, told_before: bool) -> None:
    actor.tell(AdmitPod(pod=greedy("gone")))
    wait_for(lambda: plugin.of("Allocate"), 20, "the plugin is asked")
    if told_before:
        actor.tell(NOBODY)
    restart(actor)
    plugin.close()
    plugin.faults.clear()
    plugin.start()
    wait_for(lambda: devices(actor).get("healthy") == 2, 20, "its devices are known again")
    admit_soon(actor, greedy("next"))
    expect_held_by(actor, greedy("next"))
