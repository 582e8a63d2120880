"""The stream of container events (rpc GetContainerEvents), where the runtime has it. containerd 1.6 has not.

The one place where a CRI call holds a thread: gRPC gives the messages of a stream to whoever waits for the next one.
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
    """A stream of events under way, until it fails, the runtime ends it, or `close`. It has no deadline.

    `on_event` gets each event and `on_end`, once, the reason for the end: Unimplemented where the runtime has no
    events, RuntimeDown when it went away or ended the stream, code Canceled after `close`. Both are called from the
    stream's own thread. Events between two streams are lost, so whoever starts one lists afterwards.
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
