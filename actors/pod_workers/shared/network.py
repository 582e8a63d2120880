"""RuntimeNetwork: whether the runtime's network is ready, asked of the runtime at most every few seconds.

Workers of several threads share one answer. While it is bad, nothing starts of pods that do not use the host's network.
"""

from __future__ import annotations

import threading
import time

from actors._base import Future
from actors._cri.client import CriCalls
from actors._cri.conditions import NETWORK, problem
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb

GOOD_S = 5.0
"""A good answer counts so long (the kubelet asks every 5 s)."""
BAD_S = 0.5
"""A bad one is asked for again earlier: pods wait for it."""


RELAY_S = 1.0
"""pleg has this time for the runtime's answer, and as much again for its own."""


class RuntimeNetwork:
    """The latest answer. Usable from any thread."""

    def __init__(self, cri: CriCalls, relayed: CriCalls) -> None:
        """Ask by `relayed`, which is pleg: then pods in back-off, which need nothing else, keep no channel open.

        Where that fails, ask by `cri`: pods start though pleg hangs.
        """
        self._cri, self._relayed = cri, relayed
        self._lock = threading.Lock()
        self._answer: Future[str] | None = None
        self._good_until = 0.0

    def seen(self, status: pb.StatusResponse) -> None:
        """Take an answer that was asked for something else."""
        with self._lock:
            answer = self._answer = Future()
        self._set(answer, status)

    async def problem(self) -> str:
        """The kubelet's words for a network that is not ready; empty when it is. Raises CriError."""
        return await self._latest()

    def _latest(self) -> Future[str]:
        with self._lock:
            if self._answer is not None and not (self._answer.done() and time.monotonic() >= self._good_until):
                return self._answer
            answer: Future[str] = Future()  # not Future[str](), as in `Bus`
            self._answer = answer
        self._relayed.status(timeout=RELAY_S).add_done_callback(lambda call: self._relay_answered(answer, call))
        return answer

    def _relay_answered(self, answer: Future[str], call: Future[pb.StatusResponse]) -> None:
        try:
            self._set(answer, call.result(0))
        except CriError:
            self._cri.status().add_done_callback(lambda call: self._answered(answer, call))

    def _answered(self, answer: Future[str], call: Future[pb.StatusResponse]) -> None:
        try:
            self._set(answer, call.result(0))
        except CriError as error:
            self._counts_for(answer, 0.0)
            answer.set_error(error)

    def _set(self, answer: Future[str], status: pb.StatusResponse) -> None:
        text = problem(status, NETWORK)
        self._counts_for(answer, BAD_S if text else GOOD_S)
        answer.set(f"network is not ready: {text}" if text else "")

    def _counts_for(self, answer: Future[str], seconds: float) -> None:
        with self._lock:
            if self._answer is answer:  # else a later one has come meanwhile
                self._good_until = time.monotonic() + seconds
