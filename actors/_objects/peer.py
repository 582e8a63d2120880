"""A reference to the objects actor, or a stand-in in an agent without objects, which runs no such process."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from actors._base import Actor
from actors._base.messaging.futures import Future
from proto.agent.settings import Settings
from proto.pods.objects import Objects
from proto.wire.message import Message, Request

R = TypeVar("R", bound=Message)


class ObjectsRef(Protocol):
    """The part of `RemoteRef` that callers use."""

    def tell(self, message: Message) -> None:
        """Send a message without an answer."""

    def ask(self, request: Request[R], timeout_s: float = 5.0) -> Future[R]:
        """Send a request. Returns a future of the answer."""


class _NoObjects:
    """Answers every request with no objects, and ignores messages."""

    def tell(self, message: Message) -> None:
        pass

    def ask(self, request: Any, timeout_s: float = 5.0) -> Any:  # noqa: ARG002 - the shape of a RemoteRef
        answer: Future[Objects] = Future()
        answer.set(Objects())
        return answer


def has_objects(settings: Settings) -> bool:
    """True when there is a source of objects: a directory, or an API server."""
    return bool(settings.objects_dir or settings.kubeconfig)


def objects_of(actor: Actor) -> ObjectsRef:
    """The objects actor, or a stand-in without objects."""
    return actor.peer("objects") if has_objects(actor.settings) else _NoObjects()
