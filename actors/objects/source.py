"""The base class of a source of objects, which is itself the empty source."""

from __future__ import annotations

from collections.abc import Mapping

from proto.pods.objects import ApiObject, ObjectProblem, ObjectRef, ObjectRow


class Source:
    """A source of objects. It reports changes through a callback: None after the first reading, then references.

    This one has no objects, and is read from the start.
    """

    name = ""
    """Shown to people: the directory."""
    seen = True
    """True after the first reading: an object that is not in `objects` does not exist."""

    @property
    def objects(self) -> Mapping[ObjectRef, ApiObject]:
        """Present objects by reference."""
        return {}

    async def recover(self) -> None:
        """Restore state of the last incarnation, before the actor is ready."""

    def start(self) -> None:
        """Read and follow the source."""

    def rows(self) -> list[ObjectRow]:
        """Objects for listings, without data and users."""
        return []

    def problems(self) -> tuple[ObjectProblem, ...]:
        """Problems for listings."""
        return ()
