"""A fuzzing target: one parser, what it is fed, and inputs to start from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FOUND = Path(__file__).parent / "found"
"""Inputs that were findings once, in a directory for each target. Every run begins with them."""


@dataclass(frozen=True)
class Target:
    """One parser under attack."""

    name: str
    feed: Callable[[bytes], None]
    """Parses the input and catches the refusals that the parser documents. Any other exception is a finding."""
    seeds: Sequence[bytes]
    """Valid inputs, and invalid ones of known classes."""
    tokens: Sequence[bytes] = ()
    """Words of the format, for mutations to insert."""

    def inputs(self) -> list[bytes]:
        """The seeds, then the earlier findings in the order of their names."""
        directory = FOUND / self.name
        found = sorted(directory.iterdir()) if directory.is_dir() else []
        return [*self.seeds, *(path.read_bytes() for path in found)]
