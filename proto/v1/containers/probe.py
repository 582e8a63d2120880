"""Records of probes and lifecycle handlers of a container."""

from proto.v1.scalars.base import Int32, Int64, IntOrString, Record


class ExecAction(Record, frozen=True, kw_only=True):
    """A command run in the container, not in a shell."""

    command: tuple[str, ...] = ()


class HTTPHeader(Record, frozen=True, kw_only=True):
    """A header sent with the request."""

    name: str = ""
    value: str = ""


class HTTPGetAction(Record, frozen=True, kw_only=True):
    """A GET; `host` defaults to the pod's address, any status from 200 to 399 is success."""

    path: str | None = None
    port: IntOrString = 0
    host: str | None = None
    scheme: str | None = None
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(Record, frozen=True, kw_only=True):
    """A connection that is opened and closed."""

    port: IntOrString = 0
    host: str | None = None


class GRPCAction(Record, frozen=True, kw_only=True):
    """A grpc.health.v1 Check on a port number."""

    port: Int32 = 0
    service: str | None = None


class SleepAction(Record, frozen=True, kw_only=True):
    """A pause before the container is stopped, in seconds."""

    seconds: Int64 = 0


class Probe(Record, frozen=True, kw_only=True):
    """A check of a container; exactly one of exec, http_get, tcp_socket, grpc. Times are whole seconds."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: Int32 | None = None
    timeout_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    success_threshold: Int32 | None = None
    failure_threshold: Int32 | None = None
    termination_grace_period_seconds: Int64 | None = None


class LifecycleHandler(Record, frozen=True, kw_only=True):
    """Exactly one action after the start or before the stop."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Record, frozen=True, kw_only=True):
    """Handlers around a container's life, and the signal that ends it."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None
