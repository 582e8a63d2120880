"""Credentials of images whose pull was cut short: by a kill, or since its pod ended. The runtime may complete it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from proto.node.image_pull import DropPulls
from proto.pods.pleg import CancelPull
from proto.wire.errors import Refused
from tests.harness import ActorProcess, wait_for
from tests.image_pull.fake import FakeImages
from tests.image_pull.test_actor import refused
from tests.image_pull.test_credentials import INVALID, PRIVATE, of_pod, records, with_secrets

SOON = """
from actors.image_pull import actor, ledger, policy
actor.SETTLE_AGAIN_S, ledger.ARRIVES_S, policy.PRESENT_FOR_S = 0.05, {arrives_s}, 0.0
"""


@pytest.fixture
def images(tmp_path: Path) -> Iterator[FakeImages]:
    service = FakeImages(tmp_path / "cri.sock")
    service.passwords[PRIVATE] = "right"
    yield service
    service.close()


def guarded(images: FakeImages, arrives_s: float = 600.0) -> ActorProcess:
    """An actor whose registry wants u:right for PRIVATE."""
    return ActorProcess(
        "image_pull",
        peers=("events", "pleg", "objects"),
        prelude=SOON.format(arrives_s=arrives_s),
        container_runtime_endpoint=images.endpoint,
    )


def interrupted(actor: ActorProcess, images: FakeImages) -> None:
    """Have the runtime complete a pull after a kill of the actor, which then starts again."""
    gate = images.hold(PRIVATE)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(actor.ask, of_pod("a", "good"), 3.0)
        wait_for(lambda: images.calls["PullImage", PRIVATE])
        actor.kill()
        gate.set()
        wait_for(lambda: PRIVATE in images.present)
        actor.start()
        with pytest.raises(AssertionError):
            lost.result()


def test_failed_pull_of_another_pod_does_not_open_the_image_of_an_interrupted_one(images: FakeImages) -> None:
    with guarded(images) as actor:
        with_secrets(actor, good="right")
        images.list_gate.clear()
        interrupted(actor, images)
        for pod in ("c", "d"):
            assert refused(actor, of_pod(pod)) == ("ErrImagePull", "401 Unauthorized")
        assert [one["image"] for one in records(actor, "pulling")] == [PRIVATE]
        images.list_gate.set()
        wait_for(lambda: not records(actor, "pulling"), what="the interrupted pull is settled")
        assert [one["credentialMapping"] for one in records(actor, "pulled")] == [{}]
        assert refused(actor, of_pod("e"))[0] == "ErrImagePull"
        assert actor.ask(of_pod("b", "good")).pulled


def test_failed_pull_ends_the_wait_for_an_interrupted_one(images: FakeImages) -> None:
    """As in the kubelet a failed pull removes the intent; here the earlier pull is cancelled and has time to end."""
    with guarded(images, arrives_s=0.2) as actor, ThreadPoolExecutor(1) as pool:
        with_secrets(actor, good="right")
        gate = images.hold(PRIVATE)
        lost = pool.submit(actor.ask, of_pod("a", "good"), 3.0)
        wait_for(lambda: images.calls["PullImage", PRIVATE])
        actor.kill()
        images.failures[PRIVATE] = (grpc.StatusCode.UNAVAILABLE, "no route to host")
        gate.set()
        actor.start()
        with pytest.raises(AssertionError):
            lost.result()
        del images.failures[PRIVATE]
        assert refused(actor, of_pod("c"))[0] == "ErrImagePull"
        wait_for(lambda: not records(actor, "pulling"), what="the intent goes")
        assert actor.peers["pleg"].of(CancelPull) == [CancelPull(image=PRIVATE, pod_uid=None)]
        images.add(PRIVATE)
        assert not actor.ask(of_pod("d")).pulled, "it was preloaded"
        assert records(actor, "pulled") == []


def test_interrupted_pull_goes_on_while_another_pulls_its_image(images: FakeImages) -> None:
    with guarded(images) as actor, ThreadPoolExecutor(1) as pool:
        with_secrets(actor, good="right")
        images.list_gate.clear()
        interrupted(actor, images)
        gate = images.gates[PRIVATE]
        gate.clear()
        pulling = pool.submit(actor.ask, of_pod("b", "good", policy="Always"))
        wait_for(lambda: images.calls["PullImage", PRIVATE] == 2, what="a pull with other credentials")
        with_secrets(actor, good="right", invalid=INVALID)
        assert refused(actor, of_pod("c", "invalid", policy="Always"))[0] == "ErrImagePull"
        gate.set()
        assert pulling.result(30).pulled
        assert actor.peers["pleg"].of(CancelPull) == []


def test_image_of_an_interrupted_pull_is_settled_while_it_is_pulled_again(images: FakeImages) -> None:
    with guarded(images) as actor, ThreadPoolExecutor(1) as pool:
        with_secrets(actor, good="right")
        images.list_gate.clear()
        interrupted(actor, images)
        gate = images.gates[PRIVATE]
        gate.clear()
        failing = pool.submit(refused, actor, of_pod("c"))
        wait_for(lambda: images.calls["PullImage", PRIVATE] == 2, what="the second pull")
        images.list_gate.set()
        wait_for(lambda: records(actor, "pulled"), what="the interrupted pull is settled")
        gate.set()
        assert failing.result()[0] == "ErrImagePull"
        wait_for(lambda: not records(actor, "pulling"), what="the second pull drops the intent")
        assert refused(actor, of_pod("d"))[0] == "ErrImagePull"


def withdrawn(actor: ActorProcess, images: FakeImages, policy: str = "IfNotPresent") -> None:
    """Begin a pull of PRIVATE for a pod that ends meanwhile. The runtime holds it."""
    images.hold(PRIVATE)
    before = images.calls["PullImage", PRIVATE]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(actor.ask, of_pod("a", "good", policy=policy))
        wait_for(lambda: images.calls["PullImage", PRIVATE] > before)
        actor.tell(DropPulls(pod_uid="a"))
        with pytest.raises(Refused, match="is withdrawn: its pod ends"):
            asked.result(30)


@pytest.mark.parametrize("policy", ["IfNotPresent", "Always"])
def test_image_that_arrives_in_spite_of_its_cancellation_is_verified(images: FakeImages, policy: str) -> None:
    with guarded(images) as actor:
        with_secrets(actor, good="right")
        withdrawn(actor, images, policy)
        images.gates[PRIVATE].set()
        wait_for(lambda: PRIVATE in images.present, what="the runtime completes it")
        assert refused(actor, of_pod("c"))[0] == "ErrImagePull"
        wait_for(lambda: records(actor, "pulled"), what="it is found")
        assert refused(actor, of_pod("d"))[0] == "ErrImagePull"
        wait_for(lambda: not records(actor, "pulling"), what="nothing is left of it")
        assert actor.ask(of_pod("b", "good")).pulled


def test_preloaded_image_stays_free_after_a_withdrawn_pull_of_it(images: FakeImages) -> None:
    images.add(PRIVATE)
    with guarded(images) as actor:
        with_secrets(actor, good="right")
        withdrawn(actor, images, "Always")
        wait_for(lambda: images.calls["ListImages", ""] > 1, what="it is looked for")
        assert not actor.ask(of_pod("c")).pulled
        assert records(actor, "pulled") == []


def test_intent_of_a_withdrawn_pull_does_not_stay_for_ever(images: FakeImages) -> None:
    with guarded(images, arrives_s=0.2) as actor:
        with_secrets(actor, good="right")
        withdrawn(actor, images)
        wait_for(lambda: not records(actor, "pulling"), what="its image does not arrive any more")
        assert records(actor, "pulled") == []


def test_image_with_another_id_than_its_pull_told_is_verified(images: FakeImages) -> None:
    """The runtime tells no user after the pull, and its answer to the pull is no ID."""
    images.forgets.add(PRIVATE)
    with guarded(images) as actor:
        with_secrets(actor, good="right")
        assert refused(actor, of_pod("a", "good"))[0] == "CreateContainerConfigError"
        images.forgets.clear()
        images.add(PRIVATE)
        assert refused(actor, of_pod("c"))[0] == "ErrImagePull"


def test_image_that_came_back_by_a_withdrawn_pull_is_verified(images: FakeImages) -> None:
    """It was preloaded, and removed between two withdrawn pulls of it."""
    images.add(PRIVATE)
    with guarded(images) as actor:
        with_secrets(actor, good="right")
        withdrawn(actor, images, "Always")
        images.present.clear()
        withdrawn(actor, images)
        images.gates[PRIVATE].set()
        wait_for(lambda: PRIVATE in images.present, what="the runtime completes one")
        assert refused(actor, of_pod("c"))[0] == "ErrImagePull"
        wait_for(lambda: records(actor, "pulled"), what="it is found")
        assert refused(actor, of_pod("d"))[0] == "ErrImagePull"
