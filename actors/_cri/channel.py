"""The gRPC channel to a runtime, opened with the first call and closed when it has not been used for two seconds.

It is not opened at import or before a fork: gRPC works in a forked child only if the parent has not used it. An open
channel has threads that wake a dozen times a second. To open it again takes half a millisecond of CPU time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc._channel  # gRPC would import it at the first channel: 1.4 MB in each child, shared if done before the fork
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from actors._base.messaging.mailbox import TimerHandle
from actors._cri.endpoint import normalized

_MAX_METADATA = 1024 * 1024  # bytes: a runtime's error has the whole command of an exec; gRPC drops it above 8 KiB
_MAX_MESSAGE = 16 * 1024 * 1024  # bytes, the kubelet's; a ListContainers of a full node goes over gRPC's usual 4 MiB

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE),
    ("grpc.max_send_message_length", _MAX_MESSAGE),
    ("grpc.max_metadata_size", _MAX_METADATA),
    ("grpc.absolute_max_metadata_size", _MAX_METADATA),
    ("grpc.enable_http_proxy", 0),
    # A restarted runtime is found within a second instead of gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Despite its name, the time limit of one attempt to connect: a runtime that accepts and stays silent is down.
    ("grpc.min_reconnect_backoff_ms", 5000),
    # Useless on a local socket: pings that measure bandwidth, copies for retries, a lookup of settings.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
)

UNUSED_S = 2.0
"""From the end of a channel's last call to its close."""

After = Callable[[float, Callable[[], None]], TimerHandle | None]
"""Runs a function in so many seconds: `Actor.after`. Any thread may call it."""


def never(delay_s: float, function: Callable[[], None]) -> None:
    """Do nothing: for a process that ends soon."""


class LazyChannel:
    """A gRPC channel that is opened at its first use, and again after it was closed. Safe from any thread."""

    def __init__(self, endpoint: str, after: After = never) -> None:
        """`endpoint` is unix:///PATH or an absolute path. Raises BadEndpoint for others.

        Without `after`, only `close` closes the channel.
        """
        self.endpoint = normalized(endpoint)
        self._after = after
        self._lock = threading.Lock()
        self._channel: Any = None
        self._closed = False
        self._timer_set = False
        self._timer: TimerHandle | None = None
        self._callables: dict[str, Any] = {}
        self._under_way = 0
        self._used_at = 0.0
        self._last_uses = 0

    def call(self, path: str, start: Callable[[Any], Any]) -> Any:
        """Start a call of the unary rpc at `path` by `start(callable)`. Returns gRPC's future.

        Its request and response are serialized messages.
        """
        return self._started(lambda: self._unary(path), start)

    def stream(self, path: str, method: MethodDescriptor, request: Message) -> Any:
        """Start the server-streaming rpc `method` at `path`. Returns gRPC's iterator of its messages."""

        def callable_() -> Any:
            return self._open().unary_stream(
                path,
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )

        return self._started(callable_, lambda callable_: callable_(request))

    @contextmanager
    def last_use(self) -> Iterator[None]:
        """The next use is far away: close the channel at the end of the block, if no call is under way then.

        Calls that end in the block set no timer.
        """
        with self._lock:
            self._last_uses += 1
        try:
            yield
        finally:
            self._rest()

    def _rest(self) -> None:
        channel = None
        with self._lock:
            self._last_uses -= 1
            if not self._under_way and not self._last_uses:
                channel = self._taken()
                timer, self._timer, self._timer_set = self._timer, None, False
                if timer is not None:
                    timer.cancel()
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close the channel. Calls under way end with Canceled, later ones with RuntimeDown."""
        with self._lock:
            self._closed = True
            channel = self._taken()
        if channel is not None:
            channel.close()  # without the lock, which callbacks of the calls take

    def _started(self, callable_: Callable[[], Any], start: Callable[[Any], Any]) -> Any:
        with self._lock:
            made = callable_()
            self._under_way += 1
        try:
            call = start(made)
        except BaseException:
            self._ended()
            raise
        call.add_done_callback(self._ended)
        return call

    def _ended(self, _: Any = None) -> None:
        with self._lock:
            self._under_way -= 1
            self._used_at = time.monotonic()
            if self._under_way or self._timer_set or self._last_uses:
                return
            self._timer_set = True
        self._timer = self._after(UNUSED_S, self._on_timer)

    def _on_timer(self) -> None:
        # Close the channel, or look again once it may have been unused for long enough.
        channel = None
        with self._lock:
            wait_s = self._used_at + UNUSED_S - time.monotonic()
            self._timer_set = wait_s > 0 and not self._under_way
            if wait_s <= 0 and not self._under_way:
                channel = self._taken()
        if channel is not None:
            channel.close()  # without the lock, which callbacks of the calls take
        elif self._timer_set:
            self._timer = self._after(wait_s, self._on_timer)

    # With the lock

    def _taken(self) -> Any:
        channel, self._channel = self._channel, None
        self._callables.clear()
        return channel

    def _unary(self, path: str) -> Any:
        callable_ = self._callables.get(path)
        if callable_ is None:
            callable_ = self._callables[path] = self._open().unary_unary(path)
        return callable_

    def _open(self) -> Any:
        if self._closed:
            raise ValueError("closed")
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.endpoint, options=OPTIONS)
        return self._channel
