"""A node may read what a pod refers to once the API server has noted the pod, which may be a moment after the node has.

Until then it says that it is forbidden, as it does for good of what no pod of the node refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from actors._base import Actor
from actors._kube.errors import Forbidden

T = TypeVar("T")

PAUSES_S = (0.05, 0.1, 0.2, 0.4)


async def patiently(actor: Actor, call: Callable[[], Coroutine[Any, None, T]]) -> T:
    """What the call returns, also if it is only allowed in a moment. Raises what it raises."""
    for pause_s in PAUSES_S:
        try:
            return await call()
        except Forbidden:
            await actor.sleep(pause_s)
    return await call()
