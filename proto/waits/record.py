"""One wait of an actor process: who waits for what, since when and until when."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "ask",
    "handler",
    "cri",
    "http",
    "helper",
    "blocking",
    "lock",
    "queue",
    "condition",
    "hook",
    "object",
    "admission",
    "retry",
    "timer",
]
"""The kinds of waits. For an ask, an actor answers. A handler is the coroutine that answers an ask.

For cri and http, another server answers. A helper is another process, and blocking is a thread of the pool. For a lock
or a queue, others have their turn first. A condition is a state to be reached, and a hook is a pod's own command. An
object is missing in the API. For an admission, the node decides on a pod. A retry is the next try after a failure.
"""
RUNNING = "running"
"""Target of the handler that runs in the mailbox's thread now, while other messages wait for it."""
AskId = tuple[str, int, int]
"""An ask: the asker's name, its incarnation and the correlation number."""


class Wait(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A wait. Times are CLOCK_MONOTONIC seconds; 0 for none.

    Subjects are pod/NAMESPACE/NAME, volume/NAMESPACE/POD/VOLUME, image/REFERENCE, actor/NAME and node.
    """

    kind: Kind
    waiter: str
    """The subject that waits."""
    target: str = ""
    """A subject, cri, helper/PID, thread/TID, host/ADDRESS, or object/KIND/NAMESPACE/NAME."""
    what: str = ""
    """The message's type, the rpc, the request's path, the function, or a text."""
    since: float = 0.0
    deadline: float = 0.0
    next_try: float = 0.0
    error: str = ""
    """The last error."""
    uid: str = ""
    """The UID of the waiter's pod."""
    ask: AskId | None = None
    """The ask in whose handler this wait is."""
    number: int = 0
    """Of an ask: its correlation number. Of the handler that runs: the ID of its thread."""
    first: float = 0.0
    """When the first of waits that repeat began, such as those of a crash loop; 0 for a single wait."""
