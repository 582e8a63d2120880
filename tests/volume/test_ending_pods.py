"""Volumes of pods that end: their objects are often deleted before they have ended."""

from pathlib import Path

from msgspec.structs import replace

from proto.pods.events import RecordEvent
from proto.pods.objects import ApiObject, GetObjects, ObjectRef, Objects
from proto.pods.volume import MountPod, ObjectsChanged, PodEnding, UnmountPod
from proto.v1 import ObjectMeta, Pod, Volume
from proto.v1.volumes.projected import ConfigMapVolumeSource
from tests.harness import ActorProcess, actor_process, wait_for
from tests.volume.test_actor import pod

ENDING, RUNNING = "0b0f1f7e-1111-2222-3333-444444444444", "0b0f1f7e-5555-6666-7777-888888888888"
CONFIG = ObjectRef(kind="ConfigMap", namespace="ns", name="c")
ONE_QUIET_TRY = """
from actors.volume import policy
policy.QUIET_REFRESHES = 1
"""


def user(uid: str) -> Pod:
    made = pod(Volume(name="v", config_map=ConfigMapVolumeSource(name="c")), uid=uid)
    return replace(made, metadata=ObjectMeta(uid=uid, namespace="ns", name=uid))


def serve(actor: ActorProcess, *content: str) -> None:
    """Serve the ConfigMap with this content, or none."""
    found = tuple(ApiObject(ref=CONFIG, resource_version=one, data={"key": one.encode()}) for one in content)
    actor.peers["objects"].answers[GetObjects] = lambda _: Objects(found=found)
    actor.tell(ObjectsChanged(refs=(CONFIG,)))


def failures(actor: ActorProcess, uid: str) -> list[RecordEvent]:
    said = actor.peers["events"].of(RecordEvent)
    return [one for one in said if one.reason == "FailedMount" and one.involved.uid == uid]


def test_ending_pod_is_refreshed_and_its_failures_are_no_event() -> None:
    with actor_process("volume", peers=("pod_workers", "objects", "events"), prelude=ONE_QUIET_TRY) as actor:
        serve(actor, "old")
        files = [Path(actor.ask(MountPod(pod=user(uid))).host_paths["v"]) / "key" for uid in (ENDING, RUNNING)]
        actor.tell(PodEnding(pod_uid=ENDING))
        actor.tell(PodEnding(pod_uid="unknown"))
        serve(actor, "new")
        wait_for(lambda: [one.read_text() for one in files] == ["new"] * 2, 10, "both are refreshed")
        serve(actor)
        wait_for(lambda: len(failures(actor, RUNNING)) > 1, 20, "a running pod is told, after as many tries")
        assert failures(actor, ENDING) == []
        for uid in (ENDING, RUNNING):
            actor.ask(UnmountPod(pod_uid=uid))


def test_pod_that_starts_again_after_its_end_is_told_of_failures() -> None:
    """A static pod keeps its UID."""
    with actor_process("volume", peers=("pod_workers", "objects", "events"), prelude=ONE_QUIET_TRY) as actor:
        serve(actor, "old")
        actor.ask(MountPod(pod=user(ENDING)))
        actor.tell(PodEnding(pod_uid=ENDING))
        actor.ask(UnmountPod(pod_uid=ENDING))
        actor.ask(MountPod(pod=user(ENDING)))
        serve(actor)
        wait_for(lambda: failures(actor, ENDING), 20, "its failures are events again")
        actor.ask(UnmountPod(pod_uid=ENDING))
