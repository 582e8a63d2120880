"""Base classes of the records that the actor and its helper processes exchange."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value inside a step or an answer."""


class Tagged(Record, frozen=True, tag=True, tag_field="step"):
    """A step or an answer; the field `step` holds its class name."""
