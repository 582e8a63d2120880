"""Holds the locks that `supervisor start` took for the running agent, and renews those of cgroups.

A lock belongs to an inode. A cgroup that was removed and made again is another inode, so it is locked again. Root and
log directories are not checked again: their file system may hang, and that would block the supervisor's loop.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable

import msgspec

log = logging.getLogger(__name__)

CHECK_S = 10.0


class HeldClaim(msgspec.Struct, frozen=True):
    """A directory of ours. `descriptor` holds its lock while it is open."""

    path: str
    descriptor: int
    cgroup: bool = False


class HeldClaims:
    """The claims of the daemon. Only reads cgroupfs, which never blocks."""

    def __init__(self, claims: Iterable[HeldClaim]) -> None:
        self._claims = list(claims)
        self._next_check = 0.0
        self._refused: set[str] = set()

    @property
    def present(self) -> tuple[HeldClaim, ...]:
        """The claims with their present descriptors."""
        return tuple(self._claims)

    def tick(self, now: float) -> None:
        """Lock cgroups that were made again, every `CHECK_S` at most. Another agent's lock there is logged once."""
        if now < self._next_check:
            return
        self._next_check = now + CHECK_S
        for index, claim in enumerate(self._claims):
            if claim.cgroup:
                try:
                    self._claims[index] = self._renewed(claim)
                except OSError as error:
                    log.debug("cannot claim %s again: %s", claim.path, error)

    def _renewed(self, claim: HeldClaim) -> HeldClaim:
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
                log.error("cannot lock %s again: it was made again and another agent has it; stop one", claim.path)
            return claim
        os.close(claim.descriptor)
        self._refused.discard(claim.path)
        log.warning("%s was removed and made again: locked it again", claim.path)
        return msgspec.structs.replace(claim, descriptor=descriptor)
