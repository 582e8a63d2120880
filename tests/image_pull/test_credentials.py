"""Credentials of pulled images: their records, and pods that may use a present image by them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.image_pull.policy import NOT_UTF8
from actors.image_pull.records import file_name
from proto.agent.actor import Describe
from proto.node.image_pull import EnsureImage, ImagesPresent
from proto.pods.objects import ApiObject, GetObjects, Objects
from tests.harness import ActorProcess, actor_process, stop_process, wait_for
from tests.image_pull.fake import FakeImages
from tests.image_pull.test_actor import CHECKED, REQUESTS, actor, counts, ensure, images, pulls, refused

__all__ = ["actor", "images"]  # fixtures


def packed(password: str) -> str:
    return base64.b64encode(f"u:{password}".encode("latin-1")).decode()


INVALID = "no base64"
"""Password of a Secret that cannot be used."""


def with_secrets(actor: ActorProcess, **passwords: str) -> None:
    """Pull Secrets of that name for registry.example, with that password of the user u, in Latin-1."""

    def answer(request: GetObjects) -> Objects:
        found = {ref: passwords[ref.name] for ref in request.refs if ref.name in passwords}
        return Objects(
            found=tuple(
                ApiObject(
                    ref=ref,
                    resource_version="1",
                    uid=f"uid-{ref.name}",
                    secret_type="kubernetes.io/dockerconfigjson",
                    data={
                        ".dockerconfigjson": json.dumps(
                            {"auths": {"registry.example": {"auth": "!" if password is INVALID else packed(password)}}}
                        ).encode()
                    },
                )
                for ref, password in found.items()
            ),
            missing=tuple(set(request.refs) - set(found)),
        )

    actor.peers["objects"].answers[GetObjects] = answer


PRIVATE = "registry.example/team/app:1"


@pytest.fixture
def guarded(images: FakeImages) -> Iterator[ActorProcess]:
    """An actor, and PRIVATE in a registry that wants u:right."""
    images.passwords[PRIVATE] = "right"
    peers = ("events", "pleg", "objects")
    with actor_process("image_pull", peers, container_runtime_endpoint=images.endpoint) as process:
        with_secrets(process, good="right", copy="right", bad="wrong")
        yield process


def of_pod(pod: str, *secrets: str, policy: Any = "IfNotPresent") -> EnsureImage:
    return msgspec.structs.replace(ensure(PRIVATE, policy, pod), pull_secrets=secrets)


def records(actor: ActorProcess, kind: str) -> list[dict[str, Any]]:
    directory = Path(actor.settings.root_dir) / "image_manager" / kind
    found = []
    for one in directory.iterdir():
        if one.suffix == ".tmp":  # being written
            continue
        with contextlib.suppress(FileNotFoundError):  # settled since it was listed
            found.append(json.loads(one.read_text()))
    return found


def test_image_pulled_with_a_secret_is_for_pods_with_that_secret(guarded: ActorProcess, images: FakeImages) -> None:
    assert guarded.ask(of_pod("a", "good")).pulled is True
    assert guarded.ask(of_pod("b", "good")).pulled is False
    assert guarded.ask(of_pod("c", "copy")).pulled is False
    before = pulls(images)
    assert refused(guarded, of_pod("d"))[0] == "ErrImagePull"
    assert refused(guarded, of_pod("e", "bad"))[0] == "ErrImagePull"
    assert pulls(images) == before + 2
    (record,) = records(guarded, "pulled")
    allowed = record["credentialMapping"]["registry.example/team/app"]["kubernetesSecrets"]
    assert [(one["name"], one["uid"]) for one in allowed] == [("copy", "uid-copy"), ("good", "uid-good")]
    assert "right" not in json.dumps(record)
    assert records(guarded, "pulling") == []


def test_credentials_that_are_not_utf8_leave_the_others(guarded: ActorProcess, images: FakeImages) -> None:
    with_secrets(guarded, odd="für", good="right")
    assert refused(guarded, of_pod("a", "odd")) == ("ErrImagePull", NOT_UTF8)
    assert images.pulls == []
    assert guarded.ask(of_pod("b", "odd", "good")).pulled


def test_policy_never_hides_images_pulled_with_other_credentials(guarded: ActorProcess) -> None:
    guarded.ask(of_pod("a", "good"))
    assert guarded.ask(of_pod("b", "good", policy="Never")).pulled is False
    message = f'Container image "{PRIVATE}" is not present with pull policy of Never'
    assert refused(guarded, of_pod("c", policy="Never")) == ("ErrImageNeverPull", message)


def test_checks_of_a_present_image_are_counted(guarded: ActorProcess) -> None:
    with_secrets(guarded, good="right", invalid=INVALID)
    assert guarded.ask(of_pod("a", "good")).pulled is True
    assert refused(guarded, of_pod("b", policy="Never"))[0] == "ErrImageNeverPull"
    assert counts(guarded, CHECKED) == {("mustAuthenticate",): 1}
    assert refused(guarded, of_pod("c", "good", "invalid"))[0] == "ErrImagePull"
    assert counts(guarded, CHECKED) == {("mustAuthenticate",): 1, ("error",): 1}
    assert counts(guarded, REQUESTS) == {
        ("ifnotpresent", "false", "true"): 1,
        ("never", "true", "true"): 1,
        ("ifnotpresent", "true", "unknown"): 1,
    }


def test_image_without_credentials_counts_by_its_record(actor: ActorProcess, images: FakeImages) -> None:
    images.add("preloaded:1")
    actor.ask(ensure("preloaded:1"))
    assert counts(actor, CHECKED) == {("credentialPolicyAllowed",): 1}
    actor.ask(ensure("busybox"))
    actor.ask(ensure("busybox"))
    assert counts(actor, CHECKED) == {("credentialPolicyAllowed",): 1, ("credentialRecordFound",): 1}


def test_pull_records_survive_a_kill(guarded: ActorProcess) -> None:
    guarded.ask(of_pod("a", "good"))
    guarded.restart()
    assert guarded.ask(of_pod("b", "good")).pulled is False
    assert refused(guarded, of_pod("c"))[0] == "ErrImagePull"


@pytest.mark.parametrize("unreadable", ["a record", "the directory"])
def test_records_that_cannot_be_read_allow_no_pod_until_they_are(guarded: ActorProcess, unreadable: str) -> None:
    guarded.ask(of_pod("a", "good"))
    directory = Path(guarded.settings.root_dir) / "image_manager" / "pulled"
    path = directory if unreadable == "the directory" else next(directory.iterdir())
    aside = path.with_name("aside")
    guarded.kill()
    path.rename(aside)
    path.touch() if aside.is_dir() else path.mkdir()
    guarded.start()
    assert refused(guarded, of_pod("c"))[0] == "ErrImagePull"
    stop_process(guarded.pid)  # between the two it would find nothing, which is no error
    path.unlink() if aside.is_dir() else path.rmdir()
    aside.rename(path)
    os.kill(guarded.pid, signal.SIGCONT)
    # The pauses between its tries grow with the time that the test has taken.
    wait_for(lambda: guarded.ask(Describe()).state["verification"]["pulled"] == 1, 60, "it is read again")
    assert guarded.ask(of_pod("b", "good")).pulled is False
    assert refused(guarded, of_pod("d"))[0] == "ErrImagePull"


@contextlib.contextmanager
def unwritable(actor: ActorProcess, kind: str) -> Iterator[None]:
    """There is a file in place of the directory of these records."""
    directory = Path(actor.settings.root_dir) / "image_manager" / kind
    kept = directory.with_name("kept")
    directory.rename(kept)
    directory.touch()
    yield
    directory.unlink()
    kept.rename(directory)


def test_pull_whose_intent_cannot_be_written_does_not_start(guarded: ActorProcess, images: FakeImages) -> None:
    """A kill during the pull would leave an image that counts as preloaded."""
    with unwritable(guarded, "pulling"):
        reason, message = refused(guarded, of_pod("a", "good"))
        assert reason == "ErrImagePull"
        assert message.startswith(f'Failed to record image pull intent for container image "{PRIVATE}": ')
        assert images.pulls == []
    assert guarded.ask(of_pod("a", "good")).pulled is True
    assert records(guarded, "pulling") == []


@pytest.mark.parametrize("killed", [False, True])
def test_intent_stays_until_the_record_is_written(guarded: ActorProcess, images: FakeImages, *, killed: bool) -> None:
    with unwritable(guarded, "pulled"):
        assert guarded.ask(of_pod("a", "good")).pulled is True
        assert guarded.ask(of_pod("b", "good")).pulled is False, "it is known in memory"
        here = ImagesPresent(image_ids=(images.present[PRIVATE].id,), time=time.time())
        idle = guarded.ask(Describe()).tasks
        guarded.tell(here)
        wait_for(lambda: images.calls["ListImages", ""], what="another try to write it")
        wait_for(lambda: guarded.ask(Describe()).tasks == idle, what="its end")
        assert [one["image"] for one in records(guarded, "pulling")] == [PRIVATE]
        if killed:
            guarded.kill()
    if killed:
        guarded.start()
    else:
        guarded.tell(here)
    wait_for(lambda: not records(guarded, "pulling"), what="the record is written")
    (record,) = records(guarded, "pulled")
    assert bool(record["credentialMapping"]) is not killed, "with its credentials, as far as they are known"
    assert refused(guarded, of_pod("c"))[0] == "ErrImagePull"


def test_damaged_intent_stays_until_a_pull_succeeds(guarded: ActorProcess, images: FakeImages) -> None:
    guarded.kill()
    images.add(PRIVATE)
    directory = Path(guarded.settings.root_dir) / "image_manager" / "pulling"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / file_name(PRIVATE)).touch()
    guarded.start()
    for pod in ("c", "d"):
        assert refused(guarded, of_pod(pod))[0] == "ErrImagePull"
    assert counts(guarded, CHECKED) == {("error",): 2}
    assert guarded.ask(of_pod("b", "good")).pulled is True
    assert list(directory.iterdir()) == []


def test_image_of_an_interrupted_pull_is_verified_for_all_pods(guarded: ActorProcess, images: FakeImages) -> None:
    gate = images.hold(PRIVATE)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(guarded.ask, of_pod("a", "good"), 3.0)
        wait_for(lambda: images.calls["PullImage", PRIVATE])
        guarded.kill()
        gate.set()
        wait_for(lambda: PRIVATE in images.present)
        guarded.start()
        with pytest.raises(AssertionError):
            lost.result()
    wait_for(lambda: not records(guarded, "pulling"), what="the pull of the last incarnation is settled")
    assert [one.get("credentialMapping") for one in records(guarded, "pulled")] == [{}]
    assert refused(guarded, of_pod("c"))[0] == "ErrImagePull"
    assert guarded.ask(of_pod("b", "good")).pulled is True


def test_preloaded_image_is_for_all_pods_unless_verified(images: FakeImages) -> None:
    images.add(PRIVATE)
    images.passwords[PRIVATE] = "right"
    for policy, expected in (("NeverVerifyPreloadedImages", ""), ("AlwaysVerify", "ErrImagePull"), ("", "")):
        with actor_process(
            "image_pull", ("pleg",), container_runtime_endpoint=images.endpoint, image_pull_verification=policy
        ) as actor:
            if expected:
                assert refused(actor, of_pod("a"))[0] == expected
            else:
                assert actor.ask(of_pod("a")).pulled is False


def test_a_record_goes_once_its_image_has_gone(guarded: ActorProcess, images: FakeImages) -> None:
    guarded.ask(of_pod("a", "good"))
    identity = images.present[PRIVATE].id
    guarded.tell(ImagesPresent(image_ids=(identity,), time=time.time() + 60))
    guarded.tell(ImagesPresent(image_ids=(), time=time.time() - 60))
    guarded.ask(Describe())
    assert len(records(guarded, "pulled")) == 1
    guarded.tell(ImagesPresent(image_ids=(), time=time.time() + 60))
    wait_for(lambda: not records(guarded, "pulled"))
