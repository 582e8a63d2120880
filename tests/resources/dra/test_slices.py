"""ResourceSlices of drivers that are away: what the resources process asks for, with real drivers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.agent.actor import Describe
from proto.pods.objects import DeleteResourceSlices, GetObjects
from proto.resources.resources import PrepareClaims, SetPods, UnprepareClaims
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.harness import ActorProcess, wait_for
from tests.resources.dra.driver import NAME, REGISTRATION, Driver
from tests.resources.dra.pods import Server, claim, pod
from tests.resources.relay import Relay

QUICK = "from actors.resources.dra import slices; slices.GRACE_S = {grace}; slices.LOOK_S = 0.1\n"


class Api:
    """Answers for the objects actor."""

    def __init__(self) -> None:
        self.is_away = False

    def answer(self, _: DeleteResourceSlices) -> Done:
        if self.is_away:
            raise Refused("NotDeleted", "the API server is away")
        return Done()


def started(api: Api, grace_s: float, kubeconfig: str = "/kubeconfig") -> ActorProcess:
    prelude = QUICK.format(grace=grace_s)
    peers = ("pod_workers", "node", "objects")
    actor = ActorProcess("resources", None, peers, prelude=prelude, kubeconfig=kubeconfig)
    actor.peers["objects"].answers[DeleteResourceSlices] = api.answer
    return actor


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def actor(api: Api) -> Iterator[ActorProcess]:
    with started(api, 1.0) as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


def spawn(actor: ActorProcess) -> subprocess.Popen[bytes]:
    """A driver in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "tests.resources.dra.driver", actor.settings.root_dir])


@pytest.fixture
def driver(actor: ActorProcess) -> Iterator[subprocess.Popen[bytes]]:
    process = spawn(actor)
    wait_for(lambda: NAME in claims(actor)["drivers"], 30, "it is registered")
    yield process
    process.kill()
    process.wait()


def claims(actor: ActorProcess) -> dict[str, Any]:
    found: dict[str, Any] = actor.ask(Describe()).state["claims"]
    return found


def asked(actor: ActorProcess) -> list[str]:
    return [one.driver for one in actor.peers["objects"].of(DeleteResourceSlices)]


def test_slices_of_drivers_that_did_not_register_are_deleted(actor: ActorProcess) -> None:
    wait_for(lambda: asked(actor) == [""], 30)
    wait_for(lambda: claims(actor)["slices_to_delete_in_s"] == {}, 30)
    assert asked(actor) == [""]


@pytest.mark.parametrize("leaves_sockets", [False, True])
def test_slices_of_a_driver_that_is_gone_are_deleted(
    actor: ActorProcess, driver: subprocess.Popen[bytes], leaves_sockets: bool
) -> None:
    wait_for(lambda: claims(actor)["slices_to_delete_in_s"] == {}, 30, "the start is over")
    before = len(asked(actor))
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    if not leaves_sockets:
        registration = f"{actor.settings.root_dir}/plugins_registry/{NAME}-reg.sock"
        subprocess.run(["rm", registration], check=True)
    wait_for(lambda: asked(actor)[before:] == [NAME], 30)
    again = spawn(actor)
    try:
        wait_for(lambda: NAME in claims(actor)["drivers"], 30, "it is back")
        wait_for(lambda: claims(actor)["slices_to_delete_in_s"] == {}, 30)
        assert asked(actor)[before:] == [NAME]
    finally:
        again.kill()
        again.wait()


def test_slices_are_deleted_once_the_api_server_is_back(actor: ActorProcess, api: Api) -> None:
    api.is_away = True
    wait_for(lambda: len(asked(actor)) >= 1, 30)
    wait_for(lambda: "(others)" in claims(actor)["slices_to_delete_in_s"], 30)
    api.is_away = False
    wait_for(lambda: claims(actor)["slices_to_delete_in_s"] == {}, 30)


def test_registered_drivers_keep_their_slices_over_a_kill(api: Api) -> None:
    with started(api, 8.0) as actor:
        process = spawn(actor)
        try:
            wait_for(lambda: NAME in claims(actor)["drivers"], 30)
            actor.restart()
            wait_for(lambda: asked(actor), 60)
            assert [one.kept for one in actor.peers["objects"].of(DeleteResourceSlices)] == [(NAME,)]
        finally:
            process.kill()
            process.wait()


def test_registered_driver_that_never_listens_loses_its_slices(actor: ActorProcess) -> None:
    wait_for(lambda: claims(actor)["slices_to_delete_in_s"] == {}, 30, "the start is over")
    silent = Driver(Path(actor.settings.root_dir))
    silent.socket.parent.mkdir(parents=True, exist_ok=True)
    silent.listen(silent.socket, REGISTRATION)
    try:
        wait_for(lambda: NAME in asked(actor), 30)
        wait_for(lambda: claims(actor)["slices_to_delete_in_s"] == {}, 30)
        assert asked(actor).count(NAME) == 1
        assert NAME in claims(actor)["drivers"]
    finally:
        silent.close()


def test_registration_begins_the_grace_time_anew(api: Api) -> None:
    def seconds_left() -> float:
        return float(claims(actor)["slices_to_delete_in_s"].get(NAME, 0.0))

    def latest_end() -> float:
        return seconds_left() + time.monotonic()

    def earliest_end() -> float:
        return time.monotonic() + seconds_left()

    with started(api, 1000.0) as actor:
        silent = Driver(Path(actor.settings.root_dir))
        silent.socket.parent.mkdir(parents=True, exist_ok=True)
        silent.listen(silent.socket, REGISTRATION)
        wait_for(lambda: 0.0 < seconds_left() < 997.0, 30, "it is away for three seconds")
        end = latest_end()
        silent.close()
        silent.socket.unlink(missing_ok=True)
        wait_for(lambda: NAME not in claims(actor)["drivers"], 30)
        again = Driver(Path(actor.settings.root_dir))
        again.listen(again.socket, REGISTRATION)
        try:
            wait_for(lambda: earliest_end() > end + 1.0, 30, "the grace time ends later")
        finally:
            again.close()


def test_driver_is_connected_to_when_it_registers() -> None:
    """No look and no stream of health does it."""
    with ActorProcess("resources", None, ("pod_workers", "node"), resource_health_status=False) as actor:
        root = Path(actor.settings.root_dir)
        root.mkdir(parents=True, exist_ok=True)
        with Relay(root / "relay.sock", Driver(root).endpoint) as relay:
            driver = Driver(root, info={"endpoint": str(relay.path)}).start()
            try:
                wait_for(lambda: relay.accepted == 1, 30)
            finally:
                driver.close()


def test_one_connection_carries_all_calls_and_watches_a_driver(actor: ActorProcess) -> None:
    actor.peers["objects"].answers[GetObjects] = Server(claim("gpu", "u", "v")).answer
    root = Path(actor.settings.root_dir)
    with Relay(root / "relay.sock", Driver(root).endpoint) as relay:
        driver = Driver(root, info={"endpoint": str(relay.path)}).start()
        try:
            wait_for(lambda: NAME in claims(actor)["drivers"], 30, "it is registered")
            wait_for(lambda: driver.watchers() == 1, 30, "its health is followed")
            for uid in "uv":
                actor.ask(PrepareClaims(pod=pod(uid, "gpu")))
                actor.ask(UnprepareClaims(pod_uid=uid))
            wait_for(lambda: claims(actor)["slices_to_delete_in_s"] == {}, 30, "ten looks are over")
            assert [name for name, _ in driver.calls if name.startswith("NodePrepare")] == ["NodePrepareResources"] * 2
            assert relay.accepted == 1
        finally:
            driver.close()


def test_without_an_api_server_nothing_is_deleted(api: Api) -> None:
    with started(api, 0.0, kubeconfig="") as actor:
        assert claims(actor)["slices_to_delete_in_s"] == {}
        assert asked(actor) == []
