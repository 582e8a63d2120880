"""The claims of the running agent: locks that `supervisor start` took (`ownership`), held until this process ends.

A lock belongs to the directory that was there. A cgroup that is removed and made again is another one, so it is locked
anew. Root and log directories are not looked at again: their file system may hang, and this is the supervisor's loop.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable

import msgspec

log = logging.getLogger(__name__)

LOOK_S = 10.0


class Claim(msgspec.Struct, frozen=True):
    """A directory that is ours for as long as the descriptor, which holds its lock, is open."""

    path: str
    descriptor: int
    cgroup: bool = False


class HeldClaims:
    """Called from the daemon's loop; only looks at cgroupfs, which is memory."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._claims = list(claims)
        self._next_look = 0.0
        self._refused: set[str] = set()

    def tick(self, now: float) -> None:
        """Lock again what was made anew, at most every `LOOK_S`. Another agent's lock there is an error, said once."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        for index, claim in enumerate(self._claims):
            if claim.cgroup:
                try:
                    self._claims[index] = self._renewed(claim)
                except OSError as error:
                    log.debug("cannot claim %s again: %s", claim.path, error)

    def _renewed(self, claim: Claim) -> Claim:
        """The same claim, unless another directory is at its path now. Raises OSError."""
        if os.path.samestat(os.stat(claim.path), os.fstat(claim.descriptor)):
            return claim
        descriptor = os.open(claim.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if claim.path not in self._refused:
                self._refused.add(claim.path)
                log.error("%s was made again and another agent has claimed it; stop one of the two", claim.path)
            return claim
        os.close(claim.descriptor)
        self._refused.discard(claim.path)
        log.warning("%s was removed and made again; it is claimed again", claim.path)
        return msgspec.structs.replace(claim, descriptor=descriptor)
