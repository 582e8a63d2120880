"""Reports that the secure port cannot serve, before a client comes: in the log, and as a wait of the node.

The certificates themselves are read at connections only, because their library takes 14 MB.
"""

from __future__ import annotations

import logging

from actors._base import Actor
from actors._base.messaging.waits import Standing, Subject
from actors.server.transport.tls import Certificates
from proto.common import logs
from proto.common.until import Until
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

LOOK_S = 60.0
RETRY_S = 2.0
READ_S = 5.0
"""Deadline of a look: files on a dead mount never answer."""
_NODE = Subject("node")


class CertificateWatch:
    """For the actor's mailbox thread; the files are read in its pool."""

    def __init__(self, actor: Actor, certificates: Certificates, port: int) -> None:
        self._actor, self._certificates, self._port = actor, certificates, port
        self._waits = Standing()
        self._problem = ""
        self._reading = False

    def start(self) -> None:
        """Look now, and again and again: often while there is a problem."""
        self._actor.every(Until(LOOK_S), self._look, "certificates")

    async def _look(self) -> float | None:
        if not self._reading:  # at most one thread hangs
            self._reading = True
            try:
                self._say(await self._actor.blocking(READ_S, self._read))
            except AskTimeout:
                self._say("its certificate files cannot be read: their file system does not answer")
        return RETRY_S if self._problem else None

    def _read(self) -> str:
        try:
            return self._certificates.problem()
        finally:
            self._reading = False

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("cannot serve TLS on port %d: %s; the files are read again when they change", self._port, problem)
        elif self._problem and not problem:
            log.log(logs.NOTICE, "can serve TLS on port %d now", self._port)
        self._problem = problem
        if problem:
            self._waits.put("tls", _NODE, "condition", f"port {self._port} to serve TLS", error=problem)
        else:
            self._waits.drop("tls")
