"""gRPC probes: grpc.health.v1.Health/Check, with its two messages encoded by hand.

https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from actors._base import Future
from actors._net.probing.http import PROBE_AGENT
from actors._net.probing.outcome import Outcome
from proto.v1.scalars.duration import SECOND, format_duration

_METHOD = "/grpc.health.v1.Health/Check"
_STATUS = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_OPTIONS = (
    ("grpc.primary_user_agent", PROBE_AGENT),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each probe, so that no back-off outlives it
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.max_receive_message_length", 64 * 1024),  # an answer has two bytes
    ("grpc.max_metadata_size", 16 * 1024),
)


def request(service: str) -> bytes:
    """A HealthCheckRequest: field 1, the service's name."""
    name = service.encode()
    return b"\x0a" + _varint(len(name)) + name if name else b""


def serving_status(message: bytes) -> str:
    """The name of the status in a HealthCheckResponse: field 1, a varint; absent is UNKNOWN."""
    value = 0
    if message[:1] == b"\x08":
        for shift, byte in enumerate(message[1:6]):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                break
    return _STATUS.get(value, str(value))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class HealthClient:
    """Calls health services.

    gRPC takes milliseconds of the caller's thread to start a call over a new connection. One thread does that, so that
    no other probe waits for it.
    """

    def __init__(self) -> None:
        self._starter: ThreadPoolExecutor | None = None

    async def check(self, peer: str, service: str, timeout_s: float) -> Outcome:
        """Call the server at `peer` (host:port) once, over a new connection. Any error is a failure.

        A connection that is refused is tried again until the timeout, as by the kubelet, which dials with WithBlock.
        """
        if self._starter is None:
            self._starter = ThreadPoolExecutor(1, thread_name_prefix="grpc-probe")
        answered: Future[Outcome] = Future()
        self._starter.submit(_start, peer, service, timeout_s, answered)
        try:
            return await answered
        except BaseException:  # the probe was cancelled: its call ends, too
            answered.set(Outcome("errored", "the probe was cancelled"))
            raise


def _start(peer: str, service: str, timeout_s: float, answered: Future[Outcome]) -> None:
    """Start a call. gRPC's thread sets the outcome. The call ends when `answered` is set before."""
    import grpc  # noqa: PLC0415 - not before the first gRPC probe

    try:
        channel = grpc.insecure_channel(_address(peer), options=_OPTIONS)
        call = channel.unary_unary(_METHOD, request_serializer=request, response_deserializer=serving_status)
        rpc = call.future(service, timeout=timeout_s, wait_for_ready=True)
    except BaseException as error:
        answered.set_error(error)
        raise

    def ended(_: Any) -> None:
        try:
            code = rpc.code().name
            if code == "DEADLINE_EXCEEDED" and not _is_connected(channel):
                answered.set(Outcome("failure", _not_connected(peer, timeout_s)))
            else:
                answered.set(_outcome(code, rpc.details() or "", rpc, timeout_s))
        except Exception as error:  # caused by the container's answer; gRPC's thread would only log it
            answered.set(Outcome("failure", f"error: health rpc probe failed: {type(error).__name__}"))
        finally:
            channel.close()

    rpc.add_done_callback(ended)
    answered.on_end(lambda _: rpc.cancel())  # does nothing after its end


def _address(peer: str) -> str:
    return f"ipv6:{peer}" if peer.startswith("[") else f"ipv4:{peer}"


def _is_connected(channel: Any) -> bool:
    """True while the channel has a connection. The public `subscribe` takes a thread that polls for 0.2 s."""
    import grpc  # noqa: PLC0415 - see `_start`

    state, _ = grpc.ChannelConnectivity.READY.value
    return bool(channel._channel.check_connectivity_state(False) == state)


def _not_connected(peer: str, timeout_s: float) -> str:
    within = _go_seconds(timeout_s)
    return f'timeout: failed to connect service "{peer}" within {within}: context deadline exceeded'


def _outcome(code: str, details: str, rpc: Any, timeout_s: float) -> Outcome:
    """The outcome of a call that was made over a connection."""
    if code == "OK":
        status = rpc.result()
        if status == "SERVING":
            return Outcome("success", "service healthy")
        return Outcome("failure", f'service unhealthy (responded with "{status}")')
    if code == "UNIMPLEMENTED":
        text = f"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {details}"
    elif code == "DEADLINE_EXCEEDED":
        text = f"timeout: health rpc did not complete within {_go_seconds(timeout_s)}"
    else:
        text = f"error: health rpc probe failed: rpc error: code = {_go_name(code)} desc = {details}"
    return Outcome("failure", text)


def _go_seconds(seconds: float) -> str:
    return format_duration(round(seconds * SECOND))


def _go_name(code: str) -> str:
    return "Canceled" if code == "CANCELLED" else code.title().replace("_", "")
