"""The image_pull process with a controlled image service."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from actors.image_pull.policy import PRESENT_FOR_S
from proto.agent.actor import Describe, GetMetrics
from proto.agent.supervisor import Exited, Started
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage, ExpectImages, ImageEnsured
from proto.pods.events import RecordEvent
from proto.v1 import ObjectReference
from proto.wire.errors import Refused
from tests.harness import ActorProcess, actor_process, wait_for
from tests.image_pull.fake import FakeImages

IMAGE = "busybox:latest"


@pytest.fixture
def images(tmp_path: Path) -> Iterator[FakeImages]:
    service = FakeImages(tmp_path / "cri.sock")
    yield service
    service.close()


@pytest.fixture
def actor(images: FakeImages) -> Iterator[ActorProcess]:
    with actor_process("image_pull", ("events", "pleg"), container_runtime_endpoint=images.endpoint) as process:
        yield process


def said(actor: ActorProcess, count: int) -> list[tuple[str, str, str]]:
    """(type, reason, message) of the first `count` events."""
    wait_for(lambda: len(actor.peers["events"].received) >= count, what=f"{count} events")
    return [(one.type, one.reason, one.message) for one in actor.peers["events"].of(RecordEvent)]


def ensure(image: str, policy: Any = "IfNotPresent", pod: str = "u1") -> EnsureImage:
    return EnsureImage(
        pod_uid=pod,
        pod_namespace="default",
        pod_name="web",
        container="c",
        image=image,
        policy=policy,
        field_path="spec.containers{c}",
    )


def pulls(images: FakeImages) -> int:
    """Of all images together."""
    return sum(count for (rpc, _), count in list(images.calls.items()) if rpc == "PullImage")


def test_expected_image_is_looked_for_once(actor: ActorProcess, images: FakeImages) -> None:
    ref = images.add(IMAGE)
    images.status_gate.clear()
    actor.tell(ExpectImages(images=("not/VALID", "busybox")))
    wait_for(lambda: images.calls["ImageStatus", IMAGE] == 1, what="the look")
    looking = actor.ask(Describe()).tasks
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(actor.ask, ensure("busybox"))
        wait_for(lambda: actor.ask(Describe()).tasks > looking, what="an asker waits for the same look")
        images.status_gate.set()
        assert waiting.result().image_ref == ref
    assert images.calls["ImageStatus", IMAGE] == 1
    assert [reason for _, reason, _ in said(actor, 1)] == ["Pulled"]


def test_expected_image_is_not_pulled(actor: ActorProcess, images: FakeImages) -> None:
    images.hold("absent:latest")
    idle = actor.ask(Describe()).tasks
    actor.tell(ExpectImages(images=("absent",)))
    wait_for(lambda: images.calls["ImageStatus", "absent:latest"] == 1, what="the look")
    wait_for(lambda: actor.ask(Describe()).tasks == idle, what="nothing goes on, not even a pull that is held")
    assert images.calls["PullImage", "absent:latest"] == 0


def refused(actor: ActorProcess, request: EnsureImage) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        actor.ask(request)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize("policy", ["IfNotPresent", "Never"])
def test_an_image_that_is_there_is_not_pulled(actor: ActorProcess, images: FakeImages, policy: str) -> None:
    ref = images.add(IMAGE, uid=pb.Int64Value(value=1000))
    assert actor.ask(ensure("busybox", policy)) == ImageEnsured(image_ref=ref, pulled=False, user="1000")
    present = 'Container image "busybox" already present on machine and can be accessed by the pod'
    assert said(actor, 1) == [("Normal", "Pulled", present)]
    (event,) = actor.peers["events"].of(RecordEvent)
    assert event.involved == ObjectReference(
        kind="Pod", namespace="default", name="web", uid="u1", api_version="v1", field_path="spec.containers{c}"
    )
    assert images.calls["PullImage", IMAGE] == 0


def test_a_hundred_pods_of_one_image_cost_few_calls(actor: ActorProcess, images: FakeImages) -> None:
    images.add(IMAGE)
    images.status_delay_s = 0.1
    began = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda pod: actor.ask(ensure("busybox", pod=str(pod))), range(100)))
    assert {answer.image_ref for answer in answers} == {f"sha256:{IMAGE}"}
    looked_again = (time.monotonic() - began) / PRESENT_FOR_S
    assert images.calls["ImageStatus", IMAGE] <= 3 + looked_again


def test_pull_of_an_image_that_was_seen_a_moment_ago_does_not_look_for_it(
    actor: ActorProcess, images: FakeImages
) -> None:
    """It only notes which image was there before."""
    images.add(IMAGE)
    began = time.monotonic()
    actor.ask(ensure("busybox"))
    assert actor.ask(ensure("busybox", "Always")).pulled
    assert images.calls["ImageStatus", IMAGE] == 1 or time.monotonic() - began > PRESENT_FOR_S


def test_an_absent_image_is_pulled_once_for_all_who_want_it(actor: ActorProcess, images: FakeImages) -> None:
    gate = images.hold(IMAGE)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(actor.ask, ensure("busybox", pod=str(pod))) for pod in range(8)]

        def all_wait() -> bool:
            seen = actor.ask(Describe())
            return seen.tasks == 10 and list(seen.state["pulls"]) == [IMAGE] and not seen.state["inspections"]

        wait_for(all_wait, what="eight askers wait for one pull")
        gate.set()
        answers = [future.result() for future in waiting]
    assert images.calls["PullImage", IMAGE] == 1
    assert all(answer.pulled and answer.user == "0" for answer in answers)
    events = said(actor, 16)
    assert events.count(("Normal", "Pulling", 'Pulling image "busybox"')) == 8
    pulled = [message for _, reason, message in events if reason == "Pulled"]
    assert len(pulled) == 8
    assert pulled[0].startswith('Successfully pulled image "busybox" in ')
    assert pulled[0].endswith(" including waiting). Image size: 7 bytes.")
    assert actor.ask(ensure("busybox")).pulled is False


def test_policy_always_pulls_what_is_there(actor: ActorProcess, images: FakeImages) -> None:
    images.add(IMAGE)
    assert actor.ask(ensure("busybox", "Always")).pulled
    assert actor.ask(ensure("busybox", "Always")).pulled
    assert images.calls["PullImage", IMAGE] == 2


def test_policy_never_says_so(actor: ActorProcess) -> None:
    assert refused(actor, ensure("example.invalid/none:2", "Never")) == (
        "ErrImageNeverPull",
        'Container image "example.invalid/none:2" is not present with pull policy of Never',
    )
    assert said(actor, 1)[0][:2] == ("Warning", "ErrImageNeverPull")


def test_a_failed_pull_backs_off_for_that_pod_only(actor: ActorProcess, images: FakeImages) -> None:
    image = "example.invalid/none:1"
    images.failures[image] = (grpc.StatusCode.UNKNOWN, "no such host")
    assert refused(actor, ensure(image, "Always")) == ("ErrImagePull", "no such host")
    backing_off = ("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: no such host')
    assert refused(actor, ensure(image, "Always")) == backing_off
    assert images.calls["PullImage", image] == 1
    assert refused(actor, ensure(image, "Always", pod="u2")) == ("ErrImagePull", "no such host")
    assert said(actor, 5) == [
        ("Normal", "Pulling", f'Pulling image "{image}"'),
        ("Warning", "Failed", f'Failed to pull image "{image}": no such host'),
        ("Normal", "BackOff", f'Back-off pulling image "{image}"'),
        ("Normal", "Pulling", f'Pulling image "{image}"'),
        ("Warning", "Failed", f'Failed to pull image "{image}": no such host'),
    ]


def test_error_of_a_shared_pull_names_each_image_as_written(actor: ActorProcess, images: FakeImages) -> None:
    error = "SignatureValidationFailed: bar"
    images.failures["typo:latest"] = (grpc.StatusCode.UNKNOWN, error)
    gate = images.hold("typo:latest")
    with ThreadPoolExecutor(2) as pool:
        written = {
            name: pool.submit(refused, actor, ensure(name, "Always", pod=name)) for name in ("typo", "typo:latest")
        }
        wait_for(lambda: actor.ask(Describe()).state["requests"] == 2, what="both wait for the pull")
        gate.set()
        for name, one in written.items():
            message = f"image pull failed for {name} because the signature validation failed: bar"
            assert one.result() == ("SignatureValidationFailed", message)
    assert images.calls["PullImage", "typo:latest"] == 1
    failed = {message for _, reason, message in said(actor, 4) if reason == "Failed"}
    assert failed == {f'Failed to pull image "{name}": {error}' for name in written}
    backing_off = 'Back-off pulling image "typo": SignatureValidationFailed: image pull failed for typo because'
    assert refused(actor, ensure("typo", "Always", pod="typo"))[1].startswith(backing_off)


def test_back_off_ends(images: FakeImages) -> None:
    images.failures[IMAGE] = (grpc.StatusCode.UNAVAILABLE, "later")
    with actor_process(
        "image_pull", ("pleg",), container_runtime_endpoint=images.endpoint, image_pull_initial_back_off_s=0.2
    ) as actor:
        assert refused(actor, ensure(IMAGE, "Always"))[0] == "ErrImagePull"
        del images.failures[IMAGE]

        def pulled() -> bool:
            try:
                return actor.ask(ensure(IMAGE, "Always")).pulled
            except Refused:
                return False

        wait_for(pulled, 20)


def counts(actor: ActorProcess, name: str) -> dict[tuple[str, ...], float]:
    """Values of a counter, by labels."""
    return {tuple(labels): value for labels, (value,) in actor.ask(GetMetrics()).samples.get(name, ())}


REQUESTS = "kubelet_image_manager_ensure_image_requests_total"
CHECKED = "kubelet_imagemanager_image_mustpull_checks_total"


def test_requests_that_fail_early_are_counted(actor: ActorProcess, images: FakeImages) -> None:
    """By pull policy, presence, and whether a pull is required."""
    images.failures["broken:1"] = (grpc.StatusCode.INTERNAL, "boom")
    assert refused(actor, ensure("Bad Name", "Always"))[0] == "InvalidImageName"
    assert refused(actor, ensure("broken:1"))[0] == "ImageInspectError"
    assert refused(actor, ensure("none:1", "Never"))[0] == "ErrImageNeverPull"
    assert counts(actor, REQUESTS) == {
        ("always", "unknown", "unknown"): 1,
        ("ifnotpresent", "unknown", "unknown"): 1,
        ("never", "false", "unknown"): 1,
    }


def test_runtime_failure_is_inspect_error_and_retried(actor: ActorProcess, images: FakeImages) -> None:
    images.failures[IMAGE] = (grpc.StatusCode.INTERNAL, "boom")
    assert refused(actor, ensure("busybox")) == (
        "ImageInspectError",
        f'Failed to inspect image "{IMAGE}": rpc error: code = Internal desc = boom',
    )
    del images.failures[IMAGE]
    images.add(IMAGE)
    assert not actor.ask(ensure("busybox")).pulled


def test_image_whose_user_is_not_told_after_its_pull_is_not_used(actor: ActorProcess, images: FakeImages) -> None:
    images.failures[f"sha256:{IMAGE}"] = (grpc.StatusCode.UNAVAILABLE, "busy")
    problem = f'Failed to inspect image "{IMAGE}": rpc error: code = Unavailable desc = busy'
    assert refused(actor, ensure("busybox")) == ("CreateContainerConfigError", problem)
    assert [reason for _, reason, _ in said(actor, 2)] == ["Pulling", "Pulled"]
    images.failures.clear()
    images.add(IMAGE, uid=pb.Int64Value(value=1000))
    assert actor.ask(ensure("busybox")) == ImageEnsured(image_ref=f"sha256:{IMAGE}", pulled=False, user="1000")


def test_image_that_the_runtime_does_not_know_after_its_pull_is_not_used(
    actor: ActorProcess, images: FakeImages
) -> None:
    images.forgets.add(IMAGE)
    reason, message = refused(actor, ensure("busybox"))
    assert reason == "CreateContainerConfigError"
    assert "the runtime does not know it right after its pull" in message


def test_pull_without_a_reference_is_a_failed_pull(actor: ActorProcess, images: FakeImages) -> None:
    images.unnamed.add(IMAGE)
    problem = f'imageRef of image "{IMAGE}" is not set'
    assert refused(actor, ensure("busybox")) == ("ErrImagePull", problem)
    assert refused(actor, ensure("busybox"))[0] == "ImagePullBackOff"
    assert ("Warning", "Failed", f'Failed to pull image "busybox": {problem}') in said(actor, 3)
    assert not images.calls["ImageStatus", ""]


@pytest.mark.parametrize("image", [pb.Image(size=5), pb.Image(id="sha256:x")], ids=["no ID", "no size"])
def test_image_without_id_or_size_is_an_inspect_error(actor: ActorProcess, images: FakeImages, image: pb.Image) -> None:
    images.present[IMAGE] = image
    problem = f'Failed to inspect image "{IMAGE}": Id or size of image "{IMAGE}" is not set'
    assert refused(actor, ensure("busybox")) == ("ImageInspectError", problem)
    assert not images.calls["PullImage", IMAGE]
    images.add(IMAGE)
    assert not actor.ask(ensure("busybox")).pulled


def test_an_invalid_name_reaches_no_runtime(actor: ActorProcess, images: FakeImages) -> None:
    reason, message = refused(actor, ensure("Bad Name"))
    assert reason == "InvalidImageName"
    assert message.startswith('Failed to apply default image tag "Bad Name": couldn\'t parse image name "Bad Name": ')
    assert not images.calls


def test_hanging_registry_delays_its_own_images_only(actor: ActorProcess, images: FakeImages) -> None:
    gate = images.hold("dead.example/a:1")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(actor.ask, ensure("dead.example/a:1", pod="a"))
        wait_for(lambda: images.calls["PullImage", "dead.example/a:1"])
        second = pool.submit(actor.ask, ensure("dead.example/b:1", pod="b"))
        assert actor.ask(ensure("live.example/c:1", pod="c")).pulled
        assert images.calls["PullImage", "dead.example/b:1"] == 0
        gate.set()
        assert first.result().pulled
        assert second.result().pulled


def test_duration_of_a_pull_includes_its_wait_for_its_turn(actor: ActorProcess, images: FakeImages) -> None:
    gate = images.hold("slow.example/a:1")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(actor.ask, ensure("slow.example/a:1", pod="a"))
        wait_for(lambda: images.calls["PullImage", "slow.example/a:1"])
        second = pool.submit(actor.ask, ensure("slow.example/b:1", pod="b"))
        # It shows tenths, rounded.
        wait_for(lambda: actor.ask(Describe()).state["pulls"].get("slow.example/b:1", 0) >= 0.4, what="it waits")
        gate.set()
        assert first.result().pulled
        assert second.result().pulled
    ((labels, numbers),) = actor.ask(GetMetrics()).samples["kubelet_image_pull_duration_seconds"]
    assert labels == ("0-10MB",)
    *counts, seconds = numbers
    assert sum(counts) == 2
    assert seconds >= 2 * 0.3, "the first lasts as long as the second waits"


HANDLER = "io.containerd.cri.runtime-handler"


def of_workload(name: str, namespace: str = "shop", **annotations: str) -> EnsureImage:
    """A pod's request as pod_workers makes it; `handler` is a runtime handler that the pod names for containerd."""
    sandbox = pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name=name, namespace=namespace, uid=name))
    named = {HANDLER if key == "handler" else key: value for key, value in annotations.items()}
    changed = {"pod_namespace": namespace, "pod_name": name, "sandbox_config": sandbox.SerializeToString()}
    return msgspec.structs.replace(ensure("busybox", pod=name), annotations=named, **changed)


def test_runtime_gets_the_pods_sandbox_and_annotations(actor: ActorProcess, images: FakeImages) -> None:
    assert actor.ask(of_workload("web-1", handler="kata", team="a")).pulled
    (pull,) = images.pulls
    annotations = {HANDLER: "kata", "team": "a"}
    metadata = pb.PodSandboxMetadata(name="web-1", namespace="shop", uid="web-1")
    assert pull.sandbox_config == pb.PodSandboxConfig(metadata=metadata, annotations=annotations)
    assert pull.image == pb.ImageSpec(image=IMAGE, annotations=annotations)
    assert images.asked == [pull.image, pb.ImageSpec(image=f"sha256:{IMAGE}", annotations=annotations)]


def test_pods_share_a_pull_that_the_runtime_cannot_tell_apart(images: FakeImages) -> None:
    requests = [
        of_workload("web-1", handler="kata", ip="10.0.0.1"),
        of_workload("web-2", handler="kata", ip="10.0.0.2"),
        of_workload("old", handler="runc", ip="10.0.0.3"),
        of_workload("web-1", "test", handler="kata"),
    ]
    gate = images.hold(IMAGE)
    with (
        actor_process(
            "image_pull", ("pleg",), container_runtime_endpoint=images.endpoint, serialize_image_pulls=False
        ) as actor,
        ThreadPoolExecutor(len(requests)) as pool,
    ):
        waiting = [pool.submit(actor.ask, request) for request in requests]
        wait_for(lambda: len(images.pulls) == 3)
        wait_for(lambda: actor.ask(Describe()).tasks == len(requests) + 3, what="all wait for a pull")
        gate.set()
        assert all(future.result().pulled for future in waiting)
    sandboxes = [one.sandbox_config for one in images.pulls]
    shared = [one for one in sandboxes if one.annotations[HANDLER] == "kata" and one.metadata.namespace == "shop"]
    assert [len(sandboxes), len(shared)] == [3, 1]


def test_images_of_different_handlers_are_told_apart(actor: ActorProcess, images: FakeImages) -> None:
    images.add(IMAGE)
    assert not actor.ask(ensure("busybox")).pulled
    for handler in ("kata", "kata", "gvisor"):
        assert not actor.ask(msgspec.structs.replace(ensure("busybox"), runtime_handler=handler)).pulled
    assert [one.runtime_handler for one in images.asked] == ["", "kata", "gvisor"], "an image is seen for one handler"
    always = msgspec.structs.replace(ensure("busybox", "Always"), runtime_handler="kata")
    assert actor.ask(always).pulled
    assert [one.image.runtime_handler for one in images.pulls] == ["kata"]
    assert images.asked[-1] == pb.ImageSpec(image=f"sha256:{IMAGE}", runtime_handler="kata")


def test_pulls_for_different_handlers_are_not_shared(images: FakeImages) -> None:
    gate = images.hold(IMAGE)
    handlers = ("", "kata", "kata", "gvisor")
    requests = [
        msgspec.structs.replace(ensure("busybox", pod=f"u{number}"), runtime_handler=handler)
        for number, handler in enumerate(handlers)
    ]
    with (
        actor_process(
            "image_pull", ("pleg",), container_runtime_endpoint=images.endpoint, serialize_image_pulls=False
        ) as actor,
        ThreadPoolExecutor(len(requests)) as pool,
    ):
        waiting = [pool.submit(actor.ask, request) for request in requests]
        wait_for(lambda: len(images.pulls) == 3)
        wait_for(lambda: actor.ask(Describe()).tasks == len(requests) + 3, what="all wait for a pull")
        gate.set()
        assert all(future.result().pulled for future in waiting)
    assert sorted(one.image.runtime_handler for one in images.pulls) == ["", "gvisor", "kata"]


def test_slow_pull_may_last_a_day(actor: ActorProcess, images: FakeImages) -> None:
    assert actor.ask(ensure("busybox")).pulled
    assert images.seconds_left > 23 * 3600


def test_death_of_the_runtime_ends_its_pulls(actor: ActorProcess, images: FakeImages) -> None:
    for one in "ab":  # either may be first in their registry's queue
        images.hold(f"dead.example/{one}:1")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(refused, actor, ensure(f"dead.example/{one}:1", "Always", pod=one)) for one in "ab"]
        wait_for(lambda: actor.ask(Describe()).state["pulls"].keys() == {"dead.example/a:1", "dead.example/b:1"})
        images.die()
        for one in waiting:
            reason, message = one.result(5)
            assert reason == "ErrImagePull"
            assert "code = Unavailable" in message or "code = Canceled" in message
    assert actor.ask(Describe()).state["pulls"] == {}


@pytest.mark.parametrize("serialize", [True, False])
def test_hanging_pull_gives_up_its_turn_but_no_limit(images: FakeImages, serialize: bool) -> None:
    gate = images.hold("dead.example/a:1")
    process = ActorProcess(
        "image_pull",
        peers=("pleg",),
        prelude="from actors.image_pull import pulls; pulls.TURN_S = 0.3\n",
        container_runtime_endpoint=images.endpoint,
        serialize_image_pulls=serialize,
        max_parallel_image_pulls=1,
    )
    with process as actor, ThreadPoolExecutor(2) as pool:
        first = pool.submit(actor.ask, ensure("dead.example/a:1", pod="a"))
        wait_for(lambda: images.calls["PullImage", "dead.example/a:1"])
        second = pool.submit(actor.ask, ensure("dead.example/b:1", pod="b"))
        if serialize:
            assert second.result(5).pulled
        else:
            time.sleep(1.0)
            assert images.calls["PullImage", "dead.example/b:1"] == 0
        assert not first.done()
        gate.set()
        assert first.result(5).pulled
        assert second.result(5).pulled


def test_parallel_pulls_are_bounded_over_all_registries(images: FakeImages) -> None:
    gates = [images.hold(f"r{n}.example/a:1") for n in range(3)]
    with (
        actor_process(
            "image_pull",
            ("pleg",),
            container_runtime_endpoint=images.endpoint,
            serialize_image_pulls=False,
            max_parallel_image_pulls=2,
        ) as actor,
        ThreadPoolExecutor(3) as pool,
    ):
        waiting = [pool.submit(actor.ask, ensure(f"r{n}.example/a:1")) for n in range(3)]
        wait_for(lambda: pulls(images) == 2)
        time.sleep(0.2)
        assert pulls(images) == 2
        for gate in gates:
            gate.set()
        assert all(future.result().pulled for future in waiting)


@pytest.mark.parametrize("serialize", [True, False])
def test_pulls_over_the_rate_are_refused(images: FakeImages, serialize: bool) -> None:
    with actor_process(
        "image_pull",
        ("pleg",),
        container_runtime_endpoint=images.endpoint,
        registry_pull_qps=0.01,
        registry_burst=1,
        serialize_image_pulls=serialize,
    ) as actor:
        assert actor.ask(ensure("a:1")).pulled
        assert refused(actor, ensure("b:1")) == ("ErrImagePull", "pull QPS exceeded")
        assert refused(actor, ensure("b:1", pod="u2")) == ("ErrImagePull", "pull QPS exceeded")


def test_kill_during_a_pull_lets_the_next_incarnation_repeat_it(actor: ActorProcess, images: FakeImages) -> None:
    gate = images.hold(IMAGE)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(actor.ask, ensure("busybox"), 3.0)
        wait_for(lambda: images.calls["PullImage", IMAGE])
        actor.restart()
        gate.set()
        assert actor.ask(ensure("busybox")).image_ref == f"sha256:{IMAGE}"
        with pytest.raises(AssertionError):
            lost.result()


def test_pull_interrupted_by_death_of_pleg_is_repeated(actor: ActorProcess, images: FakeImages) -> None:
    gate = images.hold(IMAGE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(actor.ask, ensure("busybox"))
        wait_for(lambda: images.calls["PullImage", IMAGE])
        actor.publish(Exited(name="pleg", incarnation=1, reason="killed"))
        actor.peers["pleg"].incarnation = 2
        actor.publish(Started(name="pleg", incarnation=2))
        wait_for(lambda: images.calls["PullImage", IMAGE] == 2)
        gate.set()
        assert waiting.result().pulled is True


def test_ready_while_the_runtime_is_down(tmp_path: Path) -> None:
    with actor_process("image_pull", ("pleg",), container_runtime_endpoint=f"unix://{tmp_path}/nobody.sock") as actor:
        reason, message = refused(actor, ensure("busybox"))
        assert reason == "ImageInspectError"
        assert message.startswith(f'Failed to inspect image "{IMAGE}": rpc error: code = Unavailable desc = ')
