"""Imports gRPC, protobuf and hashlib without what no actor uses of them: 8 MB less of what all actors have in memory.

gRPC's extension module imports asyncio, and that ssl, only to define `grpc.aio`, which does not work in a process that
imported this first. protobuf imports its messages in Python, with the text format, also where they are in C. hashlib
loads OpenSSL, and has each algorithm of its own too. All are for the forkserver; where something else imported them
before, or they cannot be imported so, they are what they always are.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_OF_AIO = ("asyncio", "ssl", "grpc.aio")
_HASHES = ("_md5", "_sha1", "_sha256", "_sha512", "_sha3", "_blake2")
"""hashlib's own modules: a build of Python may leave them out."""


class _StandIn(ModuleType):
    """A module in which every public name is an exception class of its own: good for `except` and as a base."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


@contextmanager
def _in_place_of(stand_ins: dict[str, ModuleType | None]) -> Iterator[None]:
    """The import system gives these modules, for None an ImportError; afterwards the real ones."""
    modules: dict[str, Any] = sys.modules
    modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if modules.get(name) is stand_in:
                del modules[name]


def import_grpc() -> None:
    """Import gRPC, without its asyncio half if it can be. Raises ImportError as `import grpc` does."""
    if any(name in sys.modules for name in ("grpc", *_OF_AIO)):
        return
    try:
        with _in_place_of({name: _StandIn(name) for name in _OF_AIO}):
            importlib.import_module("grpc")
    except Exception:  # a release of gRPC that makes more of asyncio
        for name in [name for name in sys.modules if name.partition(".")[0] == "grpc"]:
            del sys.modules[name]
        importlib.import_module("grpc")


def import_protobuf() -> None:
    """Import what generated stubs import, without messages in Python where those in C are in use."""
    builder, in_python = "google.protobuf.internal.builder", "google.protobuf.internal.python_message"
    if any(name in sys.modules for name in (builder, in_python, "google.protobuf.descriptor_pool")):
        return
    in_c = importlib.import_module("google.protobuf.internal.api_implementation").Type() == "upb"
    with _in_place_of({in_python: _StandIn(in_python)} if in_c else {}):
        importlib.import_module(builder)


def import_hashlib() -> None:
    """Import hashlib, without OpenSSL if it can do without."""
    if "hashlib" in sys.modules or "_hashlib" in sys.modules:
        return
    without = all(importlib.util.find_spec(name) for name in _HASHES)
    with _in_place_of({"_hashlib": None} if without else {}):
        importlib.import_module("hashlib")


import_hashlib()
import_protobuf()
import_grpc()
