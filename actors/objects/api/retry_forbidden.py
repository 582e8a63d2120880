"""Retries calls that the API server forbids for a moment after a pod was bound to this node.

The node authorizer allows an object once it has noted the pod that refers to it. Until then, and for objects that no
pod of the node refers to, it answers Forbidden.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from actors._base import Actor
from actors._kube.errors import Forbidden

T = TypeVar("T")

PAUSES_S = (0.05, 0.1, 0.2, 0.4)


async def retry_forbidden(actor: Actor, call: Callable[[], Coroutine[Any, None, T]]) -> T:
    """Result of the call, retried while it is forbidden. Raises the errors of the call."""
    for pause_s in PAUSES_S:
        try:
            return await call()
        except Forbidden:
            await actor.sleep(pause_s)
    return await call()
