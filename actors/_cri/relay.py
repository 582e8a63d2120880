"""CRI calls through the pleg actor, for actors that make few calls: a gRPC channel takes 2.5 MB in each process.

Methods, deadlines and errors are those of `Cri`. When pleg ends during a call, the call fails with RelayLost, which is
a RuntimeDown and is retried like one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors._base.messaging.futures import Future
from actors._base.messaging.ref import RemoteRef
from actors._cri.client import REQUEST_SECONDS, CriCalls
from actors._cri.errors import CriError, RuntimeDown
from proto.pods.pleg import CallRuntime, RuntimeAnswer
from proto.wire.errors import ActorDead, ActorError, Refused

ON_THE_WAY_S = 5.0
"""Time by which the ask's deadline is later than the call's, so that the call's own error arrives first."""


class RelayLost(RuntimeDown):
    """pleg ended during the call, which may still take effect. Its next incarnation can be asked at once."""


class RelayedCri(CriCalls):
    """CRI calls that pleg makes. Safe from any thread."""

    def __init__(
        self, pleg: RemoteRef, *, request_seconds: float = REQUEST_SECONDS, on_the_way_s: float = ON_THE_WAY_S
    ) -> None:
        self._pleg = pleg
        self._request_seconds = request_seconds
        self._on_the_way_s = on_the_way_s

    def _start(self, rpc: str, request: bytes, deadline: float) -> Any:
        ask = CallRuntime(rpc=rpc, request=request, timeout_s=deadline)
        return _Relayed(rpc, self._pleg.ask(ask, deadline + self._on_the_way_s))


class _Relayed:
    """A relayed call in the shape of gRPC's futures."""

    def __init__(self, rpc: str, answer: Future[RuntimeAnswer]) -> None:
        self._rpc = rpc
        self._answer = answer

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._answer.add_done_callback(lambda _: callback(self))

    def cancel(self) -> None:
        """End this future with the code Canceled. pleg still completes the call."""
        self._answer.set_error(Refused("Canceled", "context canceled"))

    def result(self, timeout: float | None = None) -> Any:
        try:
            answer = self._answer.result(timeout)
        except Refused as refusal:
            raise CriError.of(refusal.reason, refusal.message, self._rpc) from refusal
        except ActorDead as error:
            raise RelayLost("Unavailable", f"pleg, which relays the call: {error}", self._rpc) from error
        except ActorError as error:
            raise CriError.of("Unavailable", f"pleg, which relays the call: {error}", self._rpc) from error
        return answer.response
