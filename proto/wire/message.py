"""Base classes of messages, and the lookup of a message type by receiving actor and name."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, get_args

import msgspec

from proto.agent import registry
from proto.wire.errors import ProtocolError


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value inside messages: frozen, strictly checked by the receiver, encoded without defaults."""


class Message(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tell, or the answer to an ask."""


R = TypeVar("R", bound=Message)


class Request(Message, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An ask; `R` is the type of the answer."""


class Done(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of requests that return no value."""


@functools.cache
def reply_type(request: type[Request[Any]]) -> type[Message]:
    """The type of a request class's answer, from its generic base. Raises TypeError without one."""
    for base in request.__orig_bases__:  # type: ignore[attr-defined]
        args = get_args(base)
        if args:
            answer: type[Message] = args[0]
            return answer
    raise TypeError(f"{request.__name__} names no answer type: write class {request.__name__}(Request[Answer])")


ROOMS = ("proto.pods", "proto.node", "proto.resources", "proto.agent")
"""Packages with a module of messages for each receiving actor."""


@functools.cache
def types_for(actor: str) -> dict[str, type[Message]]:
    """Every message type that `actor` receives, by wire name: its own module's types and `proto.agent.actor`'s."""
    found: dict[str, type[Message]] = {}
    for module_name in ("proto.agent.actor", f"{registry.rooms().get(actor, 'proto.agent')}.{actor}"):
        module = importlib.import_module(module_name)
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module_name:
                found[name] = value
    return found


def prepare_types() -> None:
    """Fill the caches of msgspec and of this module for every type that is loaded.

    Call it before a fork: filled in each child, the caches would take 0.5 MB each. Call it before the first thread
    too: when two threads decode a type for the first time, msgspec 0.22 crashes with SIGSEGV.
    """
    for kind in set(_subclasses(msgspec.Struct)):
        package, _, receiver = kind.__module__.rpartition(".")
        if issubclass(kind, Message) and package in ROOMS:
            types_for(receiver)
        if issubclass(kind, Request) and kind is not Request:
            reply_type(kind)
        with contextlib.suppress(msgspec.ValidationError):  # most have required fields
            msgspec.convert({}, kind)


def _subclasses(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def type_named(actor: str, name: str) -> type[Message]:
    """The message type `name` that `actor` receives. Raises ProtocolError for an unknown one."""
    try:
        return types_for(actor)[name]
    except KeyError:
        raise ProtocolError(f"{actor} takes no message of type {name!r}") from None
