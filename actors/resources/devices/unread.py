"""The time after a start that could not read the checkpoint: which devices pods hold is unknown. Pure."""

from __future__ import annotations

from collections.abc import Collection


class Unread:
    """Until the pods of before are gone, no device is given to anyone, and the file stays for the next start."""

    def __init__(self) -> None:
        self._reason = ""
        self._pods: set[str] | None = None
        """UIDs of pods that may hold devices; None until the first list of all pods."""

    def begin(self, reason: str) -> None:
        """The checkpoint cannot be read."""
        self._reason = reason

    @property
    def lasts(self) -> bool:
        """True while devices may be held by pods unknown."""
        return bool(self._reason)

    @property
    def problem(self) -> str:
        """Why no device can be given now; empty when one can."""
        if not self._reason:
            return ""
        who = "all pods of the node" if self._pods is None else f"{len(self._pods)} pods of before"
        return f"cannot read the checkpoint of devices: {self._reason}; {who} may hold devices, delete those pods"

    def retain(self, uids: Collection[str]) -> bool:
        """These are all pods of the node. Returns True when the time is over by this."""
        self._pods = set(uids) if self._pods is None else self._pods & set(uids)
        return self._ends()

    def release(self, uid: str) -> bool:
        """A pod is gone. Returns True when the time is over by this."""
        if self._pods is not None:
            self._pods.discard(uid)
        return self._ends()

    def _ends(self) -> bool:
        over = bool(self._reason) and self._pods is not None and not self._pods
        if over:
            self._reason = ""
        return over
