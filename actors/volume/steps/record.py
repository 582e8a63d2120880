"""What records that cross from the actor to its helpers and back are made of."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value inside steps."""


class Tagged(Record, frozen=True, tag=True, tag_field="step"):
    """One of several kinds, which says which one it is: a step, or an answer."""
