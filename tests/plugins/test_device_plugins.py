"""Device plugins that register in plugins_registry, at the resources process."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors._files.watch import Watch
from actors._plugins import kinds, watcher
from actors.volume.csi.policy import registration_problem
from proto.agent.actor import Describe
from proto.node.node import SetDevices
from proto.resources.resources import AdmitPod, GetGrant, SetPods
from tests.harness import ActorProcess, wait_for
from tests.resources.devices.device_plugin import Plugin
from tests.resources.devices.pods import GPU, container, pod
from tests.resources.plugin_server import Fault

QUICK = (
    "from actors.resources import registration; from actors.resources.devices import manager, plugin; "
    "registration.CALL_S = manager.MEET_S = plugin.MEET_S = 3.0\n"
)
"""Shorter deadlines, still longer than a busy machine's pauses."""
SUBJECT = pod("u", container("c"))


@contextmanager
def resources(prelude: str = "") -> Iterator[ActorProcess]:
    with ActorProcess("resources", None, ("pod_workers", "node"), prelude=prelude) as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with resources() as process:
        yield process


@pytest.fixture
def hasty() -> Iterator[ActorProcess]:
    """A manager that waits for a plugin for some seconds only."""
    with resources(QUICK) as process:
        yield process


def new_plugin(actor: ActorProcess, below: str = ".", resource: str = GPU, **fields: Any) -> Plugin:
    directory = Path(actor.settings.root_dir) / "plugins_registry" / below
    directory.mkdir(parents=True, exist_ok=True)
    return Plugin(directory, resource, **fields).serve()


def told(actor: ActorProcess, resource: str = GPU) -> tuple[int, int] | None:
    """(capacity, allocatable) as node was told last."""
    messages = actor.peers["node"].of(SetDevices)
    if not messages or resource not in messages[-1].capacity:
        return None
    return messages[-1].capacity[resource], messages[-1].allocatable[resource]


@contextmanager
def closing(*plugins: Plugin) -> Iterator[None]:
    try:
        yield
    finally:
        for one in plugins:
            one.close()


def walked(directory: Path) -> watcher.Walk:
    watch = Watch(str(directory))
    watch.ensure()
    walk = watcher.Walk(watch)
    root = os.open(directory, os.O_RDONLY)
    walk.list_sockets(root, str(directory))
    os.close(root)
    return walk


def test_directories_below_are_bounded(tmp_path: Path) -> None:
    for number in range(watcher.MOST_DIRECTORIES + 5):
        (tmp_path / f"{number}").mkdir()
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"{tmp_path}/{number}/s")
    walk = walked(tmp_path)
    assert len(walk.sockets) == len(walk.watches) == watcher.MOST_DIRECTORIES
    assert list(walk.left_out) == ["too many directories"]


def test_a_socket_is_the_same_after_a_chmod_or_a_link(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
        os.utime(path, ns=(1, 1))  # bound in the past
        before = walked(tmp_path).sockets
        path.chmod(0o700)
        (tmp_path / ".other").hardlink_to(path)
        (tmp_path / ".other").unlink()
        one.listen()
        assert walked(tmp_path).sockets == before
    path.unlink()
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(str(path))
        assert walked(tmp_path).sockets != before, "also with the same inode"


def test_a_refused_plugin_gets_the_kubelets_text() -> None:
    assert kinds.invalid("x") == "RegisterPlugin error -- plugin validation failed with err: x"
    assert registration_problem(kinds.CSI, "", ["1.0.0"], "/s", {}).startswith(kinds.invalid("plugin name"))


@pytest.mark.parametrize("below", ["a", "a/b/c"])
def test_a_plugin_registers_in_a_directory_below(actor: ActorProcess, below: str) -> None:
    plugin = new_plugin(actor, below)
    with closing(plugin):
        wait_for(lambda: len(plugin.of("NotifyRegistrationStatus")) == 1, 20, "it has come after the start")
        actor.restart()
        wait_for(lambda: len(plugin.of("NotifyRegistrationStatus")) == 2, 20, "it was there before the start")
        wait_for(lambda: healthy(actor) == 2, 20, "this incarnation has its list; the one before may have told node")
        shutil.rmtree(plugin.directory)
        wait_for(lambda: told(actor) == (2, 0), 20, "its directory has gone")


def test_a_socket_of_a_new_directory_is_found_at_once(actor: ActorProcess) -> None:
    """Not with the next full scan, which would take a minute."""
    first = new_plugin(actor)
    with closing(first):
        wait_for(lambda: told(actor) == (2, 2), 20)
        later = new_plugin(actor, "new/below", "vendor.test/later")
        with closing(later):
            wait_for(lambda: told(actor, "vendor.test/later") == (2, 2), 20)
            second = new_plugin(actor, "new/below", "vendor.test/second", endpoint="second.sock")
            with closing(second):
                wait_for(lambda: told(actor, "vendor.test/second") == (2, 2), 20)


def test_links_and_deep_directories_are_left_out(actor: ActorProcess, tmp_path: Path) -> None:
    registry = Path(actor.settings.root_dir) / "plugins_registry"
    outside = Plugin(tmp_path, "vendor.test/outside").serve()
    deep = new_plugin(actor, "a/b/c/d", "vendor.test/deep")
    hidden = new_plugin(actor, ".hidden", "vendor.test/hidden")
    with closing(outside, deep, hidden):
        (registry / "link").symlink_to(tmp_path)
        seen = new_plugin(actor, "z")
        with closing(seen):
            wait_for(lambda: told(actor) == (2, 2), 20)
            wait_for(lambda: list(known(actor)["registered"]) == [str(seen.socket)], 20)
        assert [one.of("GetInfo") for one in (outside, deep, hidden)] == [[], [], []]


def test_the_newest_and_the_oldest_socket_alternate() -> None:
    tries: watcher.FirstTries[str] = watcher.FirstTries()
    tries.waiting.update({f"/{age}": watcher.Entry((7, -age)) for age in (3, 1, 5, 2, 4)})
    assert [tries.take()[0] for _ in range(3)] == ["/1", "/5", "/2"]
    tries.waiting["/0"] = watcher.Entry((7, 0))
    assert [tries.take()[0] for _ in range(3)] == ["/4", "/0", "/3"]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_new_plugin_waits_for_no_queue_of_silent_ones(before: bool) -> None:
    """Each silent one takes its seconds, so that all of them would take minutes."""
    with resources() as actor, ExitStack() as stack:
        directory = Path(actor.settings.root_dir) / "plugins_registry"
        directory.mkdir(parents=True, exist_ok=True)

        def silence() -> None:
            for number in range(240):
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(str(directory / f"silent-{number}.sock"))
                listener.listen()

        if before:
            silence()
            wait_for(lambda: len(known(actor)["refused"]) >= watcher.AT_ONCE, 60, "the first ones were tried")
        began = time.monotonic()
        plugin = new_plugin(actor)
        stack.callback(plugin.close)
        if not before:
            silence()
        wait_for(lambda: str(plugin.socket) in known(actor)["registered"], 60)
        assert time.monotonic() - began < 60


def healthy(actor: ActorProcess, resource: str = GPU) -> int:
    """Healthy devices that the present incarnation knows of."""
    devices: dict[str, dict[str, int]] = actor.ask(Describe()).state["devices"]
    return devices.get(resource, {}).get("healthy", 0)


def known(actor: ActorProcess) -> dict[str, Any]:
    plugins: dict[str, Any] = actor.ask(Describe()).state["plugins"]
    return plugins


def test_its_devices_are_given_until_its_socket_goes(actor: ActorProcess) -> None:
    plugin = new_plugin(actor)
    wait_for(lambda: told(actor) == (2, 2), 20)
    wait_for(lambda: plugin.of("NotifyRegistrationStatus"), 20, "it is notified")
    assert plugin.of("NotifyRegistrationStatus")[-1].plugin_registered
    actor.ask(AdmitPod(pod=SUBJECT))
    grant = actor.ask(GetGrant(pod=SUBJECT, container="c")).grant
    assert grant.environment == {"DEVICES": "d0"}
    plugin.socket.unlink()  # and it goes on serving
    wait_for(lambda: told(actor) == (2, 0), 20)
    plugin.close()
    plugin.serve()
    wait_for(lambda: told(actor) == (2, 2), 20)
    plugin.close()


def test_a_plugin_registers_again_when_bound_anew_only(actor: ActorProcess) -> None:
    plugin, later = new_plugin(actor), new_plugin(actor, "later", "vendor.test/later")
    with closing(plugin, later):
        wait_for(lambda: told(actor) == (2, 2) and told(actor, "vendor.test/later") == (2, 2), 20)
        plugin.socket.chmod(0o770)
        later.close()
        later.serve()
        wait_for(lambda: len(later.of("NotifyRegistrationStatus")) == 2, 20, "the sockets were listed again")
        assert len(plugin.of("GetInfo")) == 1
        plugin.close()
        plugin.serve()
        wait_for(lambda: len(plugin.of("NotifyRegistrationStatus")) == 2, 20)
        assert len(plugin.of("GetInfo")) == 2


def test_a_new_incarnation_registers_present_plugins(actor: ActorProcess) -> None:
    plugin = new_plugin(actor)
    wait_for(lambda: told(actor) == (2, 2), 20)
    wait_for(lambda: plugin.of("NotifyRegistrationStatus"), 20, "it is notified")
    actor.restart()
    wait_for(lambda: len(plugin.of("NotifyRegistrationStatus")) == 2, 20)
    wait_for(lambda: told(actor) == (2, 2), 20)
    plugin.close()


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ({"supported_versions": ["v1"]}, "manager version, v1beta1, is not among plugin supported versions [v1]"),
        ({"name": "gpu"}, 'the ResourceName "gpu" is invalid'),
        ({"name": ""}, "the plugin name '' is invalid"),
        ({"endpoint": "a.sock"}, "the endpoint 'a.sock' is not the absolute path of a socket"),
        ({"endpoint": "/nowhere/a.sock"}, "plugin registration failed with err: /nowhere/a.sock is not a socket"),
        ({"supported_versions": ["v1beta1"] * 65}, "it has 65 versions, more than 64"),
    ],
)
def test_a_refused_plugin_is_told_the_reason(hasty: ActorProcess, info: dict[str, Any], problem: str) -> None:
    plugin = new_plugin(hasty, info=info)
    try:
        wait_for(lambda: plugin.of("NotifyRegistrationStatus"), 20)
        status = plugin.of("NotifyRegistrationStatus")[0]
        assert not status.plugin_registered
        assert problem in status.error
        wait_for(lambda: problem in known(hasty)["refused"].get(str(plugin.socket), ""), 20)
    finally:
        plugin.close()


@pytest.mark.parametrize("rpc", ["GetInfo", "GetDevicePluginOptions"])
@pytest.mark.parametrize("fault", [Fault(code="INTERNAL"), Fault(hang=True)])
def test_a_plugin_that_fails_is_tried_again(hasty: ActorProcess, rpc: str, fault: Fault) -> None:
    plugin = new_plugin(hasty, faults={rpc: fault})
    try:
        wait_for(lambda: known(hasty)["refused"], 20)
        plugin.faults.clear()
        plugin.release.set()
        wait_for(lambda: told(hasty) == (2, 2) and str(plugin.socket) in known(hasty)["registered"], 30)
    finally:
        plugin.close()


@pytest.mark.parametrize("fault", [Fault(code="INTERNAL"), Fault(hang=True)])
def test_a_plugin_that_takes_no_notification_is_registered(hasty: ActorProcess, fault: Fault) -> None:
    plugin = new_plugin(hasty, faults={"NotifyRegistrationStatus": fault})
    try:
        wait_for(lambda: told(hasty) == (2, 2) and str(plugin.socket) in known(hasty)["registered"], 30)
        assert known(hasty)["refused"] == {}
        assert [len(plugin.of(rpc)) for rpc in ("GetInfo", "NotifyRegistrationStatus", "ListAndWatch")] == [1, 1, 1]
    finally:
        plugin.close()


def test_a_csi_driver_is_left_to_the_volume_actor(actor: ActorProcess) -> None:
    plugin = new_plugin(actor, info={"type": "CSIPlugin"})
    try:
        wait_for(lambda: plugin.of("GetInfo"), 20)
        other = new_plugin(actor, endpoint="other.sock")
        wait_for(lambda: told(actor) == (2, 2), 20)
        wait_for(lambda: str(other.socket) in known(actor)["registered"], 20, "the other one has taken the notice")
        other.close()
        assert plugin.of("NotifyRegistrationStatus") == []
        assert len(plugin.of("GetInfo")) == 1
        assert known(actor)["refused"] == {}
    finally:
        plugin.close()
