"""Bugs in real actors, each with what provokes it. A bug is a few lines of Python that run before the actor starts."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from actors._host.files import checkpoint
from proto.agent.supervisor import Exited, Started
from proto.cri import api_pb2 as pb
from proto.node.image_gc import PlanCollection
from proto.pods.events import RecordEvent
from proto.pods.pleg import CallRuntime, RuntimeAnswer, Watch, WatchProcesses
from proto.pods.pod_workers import PodUpdate
from proto.pods.probe import ProbedPod, SetPods
from proto.pods.status import RemovePod
from proto.v1 import ObjectMeta, ObjectReference, Pod
from proto.wire.errors import ActorDead, Refused
from tests.cri.fake import FakeRuntime
from tests.harness import ActorProcess

WRAPPED = """
import functools
from actors.{actor} import actor as seeded

def seed(original):
    @functools.wraps(original)
    {prefix}def poisoned(self, *args):
{body}
    return poisoned

seeded.ACTOR.{method} = seed(seeded.ACTOR.{method})
"""


@dataclass
class Seed:
    """A bug in `method` of an actor. `body` calls `original(self, *args)` itself."""

    actor: str
    method: str
    body: str
    provoke: Callable[[ActorProcess, FakeRuntime], None]
    error: str
    """The exception's class and text."""
    awaits: bool = False
    peers: tuple[str, ...] = ()
    prepare: Callable[[ActorProcess], None] = lambda _: None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def prelude(self) -> str:
        body = textwrap.indent(textwrap.dedent(self.body).strip(), " " * 8)
        prefix = "async " if self.awaits else ""
        return WRAPPED.format(actor=self.actor, method=self.method, prefix=prefix, body=body)


def asked(process: ActorProcess, request: Any) -> None:
    """Ask an actor that dies of it."""
    try:
        process.ask(request, timeout_s=20.0)
    except (ActorDead, AssertionError):
        return


def images(process: ActorProcess, _: FakeRuntime) -> None:
    listed = pb.ListImagesResponse(images=[pb.Image(id="sha256:bad")]).SerializeToString()
    answers = {"ListImages": listed}
    process.peers["pleg"].answers[CallRuntime] = lambda call: RuntimeAnswer(response=answers.get(call.rpc, b""))
    asked(process, PlanCollection())


def refusing(process: ActorProcess, _: FakeRuntime) -> None:
    def refuse(call: CallRuntime) -> RuntimeAnswer:
        raise Refused("Internal", f"{call.rpc} is broken")

    process.peers["pleg"].answers[CallRuntime] = refuse
    asked(process, PlanCollection())


def failing(process: ActorProcess, runtime: FakeRuntime) -> None:
    runtime.fail_with = (grpc.StatusCode.INTERNAL, "the shim is gone")
    asked(process, CallRuntime(rpc="Version", request=b"", timeout_s=5.0))


def three_watches(process: ActorProcess, _: FakeRuntime) -> None:
    for number in range(3):
        process.tell(WatchProcesses(watches=(Watch(pod_uid="u", id=f"c{number}", pid=0),)))


def peer_events(process: ActorProcess, _: FakeRuntime) -> None:
    process.publish(Started(name="pod_workers", incarnation=4))
    process.publish(Exited(name="pod_workers", incarnation=4, reason="killed"))


def an_event(process: ActorProcess, _: FakeRuntime) -> None:
    involved = ObjectReference(kind="Pod", namespace="default", name="web", uid="u")
    process.tell(
        RecordEvent(involved=involved, type="Normal", reason="Pulled", message="pulled", time_ns=time.time_ns())
    )


def seen_before(process: ActorProcess) -> None:
    path = f"{process.settings.root_dir}/nodevisor/image_gc.json"
    checkpoint.save(path, 1, {"began": 1.0, "images": {"sha256:old": [1.0, 2.0]}})


SEEDS = {
    "a message": Seed(
        "status",
        "on_remove_pod",
        "if args[0].pod_uid == 'poison': raise KeyError(args[0].pod_uid)\nreturn original(self, *args)",
        lambda process, _: process.tell(RemovePod(pod_uid="poison")),
        "KeyError: 'poison'",
    ),
    "a field of a message": Seed(
        "probe",
        "set_pods",
        "[int(pod.name) for pod in args[0].pods]\nreturn original(self, *args)",
        lambda process, _: process.tell(
            SetPods(
                pods=(ProbedPod(uid="u", namespace="default", name="web", pod_ip="", terminating=False, containers=()),)
            )
        ),
        "ValueError: invalid literal for int() with base 10: 'web'",
        peers=("pod_workers",),
    ),
    "the third message of a sequence": Seed(
        "pleg",
        "watch_processes",
        "original(self, *args)\n'ab'[len(self._watches) - 1]",
        three_watches,
        "IndexError: string index out of range",
    ),
    "an answer of the runtime": Seed(
        "pleg",
        "call_runtime",
        "answer = await original(self, *args)\nraise ZeroDivisionError(answer.response.count(b'fake'))",
        lambda process, _: asked(process, CallRuntime(rpc="Version", request=b"", timeout_s=5.0)),
        "ZeroDivisionError: 1",
        awaits=True,
    ),
    "a failure of the runtime": Seed(
        "pleg",
        "call_runtime",
        "try:\n    return await original(self, *args)\nexcept Exception as error:\n    raise RuntimeError(str(error))",
        failing,
        "RuntimeError: the shim is gone",
        awaits=True,
    ),
    "an answer of a peer": Seed(
        "image_gc",
        "_list_images",
        "found, used = await original(self, *args)\nraise TypeError(found[0].id)",
        images,
        "TypeError: sha256:bad",
        awaits=True,
        peers=("pleg", "events", "pod_workers", "stats"),
        settings={"container_runtime_endpoint": "unix:///run/none.sock"},
    ),
    "a refusal of a peer": Seed(
        "image_gc",
        "plan_collection",
        "try:\n    return await original(self, *args)\nexcept Exception as error:\n    raise OSError(str(error))",
        refusing,
        "OSError: ",
        awaits=True,
        peers=("pleg", "events", "pod_workers", "stats"),
        settings={"container_runtime_endpoint": "unix:///run/none.sock"},
    ),
    "a checkpoint": Seed(
        "image_gc",
        "plan_collection",
        "raise LookupError(sorted(self._seen))",
        lambda process, _: asked(process, PlanCollection()),
        "LookupError: ['sha256:old']",
        awaits=True,
        peers=("pleg", "events"),
        prepare=seen_before,
    ),
    "the end of a peer": Seed(
        "status",
        "on_peer_exited",
        "raise RuntimeError(f'{args[0]} #{args[1]}')",
        peer_events,
        "RuntimeError: pod_workers #4",
    ),
    "a timer after a message": Seed(
        "events",
        "on_record",
        """
        import time
        began = time.monotonic()
        original(self, *args)
        def late():
            waited_s = min(time.monotonic() - began, 0.3)  # a busy machine is late, and a replay never is
            raise ArithmeticError(f"{waited_s:.1f} s after {args[0].reason}")
        self.after(0.3, late)
        """,
        an_event,
        "ArithmeticError: 0.3 s after Pulled",
    ),
    "a pod": Seed(
        "pod_workers",
        "on_pod_update",
        "original(self, *args)\nraise AttributeError(args[0].pods[0].metadata.name)",
        lambda process, _: process.tell(
            PodUpdate(source="file", op="SET", pods=(Pod(metadata=ObjectMeta(name="web", namespace="d", uid="u")),))
        ),
        "AttributeError: web",
        peers=("status", "probe", "volume", "image_pull", "pleg", "events", "resources"),
    ),
}
