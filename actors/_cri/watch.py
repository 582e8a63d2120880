"""Follows the stream of container events (rpc GetContainerEvents). containerd 1.6 does not have it.

This CRI call holds a thread, because gRPC delivers a stream's messages only to a thread that waits for them.
"""

import threading
from collections.abc import Callable
from typing import Any

import grpc

from actors._cri.call import wrapped
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb

_RPC = "GetContainerEvents"


class EventWatch:
    """A stream of events until it fails, the runtime ends it, or `close`. It has no deadline.

    `on_event` gets each event. `on_end` gets the reason for the end once: Unimplemented when the runtime has no events,
    RuntimeDown when it ended or closed the stream, code Canceled after `close`. Both run in the stream's thread. Events
    between two streams are lost, so list the containers after each start.
    """

    def __init__(
        self,
        start: Callable[[], Any],
        on_event: Callable[[pb.ContainerEventResponse], None],
        on_end: Callable[[CriError], None],
    ) -> None:
        self._on_event, self._on_end = on_event, on_end
        self._start = start
        self._stream: Any = None
        self._closed = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="cri-events", daemon=True).start()

    def close(self) -> None:
        """End the stream. `on_end` is called soon after, from the stream's thread."""
        with self._lock:
            self._closed = True
            if self._stream is not None:
                self._stream.cancel()

    def _run(self) -> None:
        try:
            with self._lock:
                if self._closed:
                    raise CriError.of("Canceled", "context canceled", _RPC)
                self._stream = self._start()
            for event in self._stream:
                self._on_event(event)
            ended = CriError.of("Unavailable", "the runtime ended the stream of events", _RPC)
        except CriError as error:
            ended = error
        except (grpc.RpcError, grpc.FutureCancelledError, ValueError) as error:
            ended = wrapped(error, _RPC)
        self._on_end(ended)
