"""Where objects come from, as the actor sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from proto.pods.objects import ApiObject, ObjectProblem, ObjectRef, ObjectRow


class Source(Protocol):
    """A place of objects. It says what changed through the callback that it was made with; the first time, when it has
    been read, with None: anything may be new."""

    name: str
    """For people: a directory."""

    @property
    def seen(self) -> bool:
        """It has been read once: what is not in `objects` is not there."""

    @property
    def objects(self) -> Mapping[ObjectRef, ApiObject]:
        """What there is now."""

    async def recover(self) -> None:
        """Before the actor is ready: what survived its last incarnation."""

    def start(self) -> None:
        """Follow the place from now on."""

    def rows(self) -> list[ObjectRow]:
        """For people, without data and users."""

    def problems(self) -> tuple[ObjectProblem, ...]:
        """For people: what is wrong."""


class NoSource:
    """No place at all: nothing is there, and that is known at once."""

    name = ""
    seen = True

    def __init__(self) -> None:
        self.objects: Mapping[ObjectRef, ApiObject] = {}

    async def recover(self) -> None:
        """Nothing."""

    def start(self) -> None:
        """Nothing to follow."""

    def rows(self) -> list[ObjectRow]:
        """None."""
        return []

    def problems(self) -> tuple[ObjectProblem, ...]:
        """None."""
        return ()
