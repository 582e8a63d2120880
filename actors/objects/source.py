"""The interface of a source of objects, and the empty source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from proto.pods.objects import ApiObject, ObjectProblem, ObjectRef, ObjectRow


class Source(Protocol):
    """A source of objects. It reports changes through a callback: None after the first reading, then references."""

    name: str
    """Shown to people: the directory."""

    @property
    def seen(self) -> bool:
        """True after the first reading: an object that is not in `objects` does not exist."""

    @property
    def objects(self) -> Mapping[ObjectRef, ApiObject]:
        """Present objects by reference."""

    async def recover(self) -> None:
        """Restore state of the last incarnation, before the actor is ready."""

    def start(self) -> None:
        """Read and follow the source."""

    def rows(self) -> list[ObjectRow]:
        """Objects for listings, without data and users."""

    def problems(self) -> tuple[ObjectProblem, ...]:
        """Problems for listings."""


class NoSource:
    """The empty source."""

    name = ""
    seen = True

    def __init__(self) -> None:
        self.objects: Mapping[ObjectRef, ApiObject] = {}

    async def recover(self) -> None:
        """Restore nothing."""

    def start(self) -> None:
        """Follow nothing."""

    def rows(self) -> list[ObjectRow]:
        """None."""
        return []

    def problems(self) -> tuple[ObjectProblem, ...]:
        """None."""
        return ()
