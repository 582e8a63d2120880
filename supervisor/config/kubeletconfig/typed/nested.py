"""The structs inside KubeletConfiguration: authentication, authorization, logging, tracing, taints and others."""

from __future__ import annotations

from supervisor.config.kubeletconfig.typed.base import (
    ConfigStruct,
    Duration,
    Int32,
    Int64,
    Quantity,
    TimeOrDuration,
    UInt32,
)


class X509Authentication(ConfigStruct, frozen=True, kw_only=True):
    """Authentication by client certificates: the CA that signs them."""

    client_ca_file: str = ""


class WebhookAuthentication(ConfigStruct, frozen=True, kw_only=True):
    """Bearer tokens, checked by TokenReview."""

    enabled: bool | None = None
    cache_ttl: Duration = Duration(0)


class AnonymousAuthentication(ConfigStruct, frozen=True, kw_only=True):
    """Requests without credentials."""

    enabled: bool | None = None


class Authentication(ConfigStruct, frozen=True, kw_only=True):
    """Authentication of requests to the kubelet's server."""

    x509: X509Authentication = X509Authentication()
    webhook: WebhookAuthentication = WebhookAuthentication()
    anonymous: AnonymousAuthentication = AnonymousAuthentication()


class WebhookAuthorization(ConfigStruct, frozen=True, kw_only=True):
    """Cache times of SubjectAccessReview answers."""

    cache_authorized_ttl: Duration = Duration(0)
    cache_unauthorized_ttl: Duration = Duration(0)


class Authorization(ConfigStruct, frozen=True, kw_only=True):
    """Authorization of requests; `mode` is AlwaysAllow or Webhook."""

    mode: str = ""
    webhook: WebhookAuthorization = WebhookAuthorization()


class MemorySwap(ConfigStruct, frozen=True, kw_only=True):
    """Swap for containers: "", NoSwap or LimitedSwap."""

    swap_behavior: str = ""


class CrashLoopBackOff(ConfigStruct, frozen=True, kw_only=True):
    """The longest back-off of a crashing container, 1s to 300s."""

    max_container_restart_period: Duration | None = None


class VModuleItem(ConfigStruct, frozen=True, kw_only=True):
    """A verbosity for the source files that match a pattern."""

    file_pattern: str = ""
    verbosity: UInt32 = UInt32(0)


class OutputRoutingOptions(ConfigStruct, frozen=True, kw_only=True):
    """Alpha options of one log format."""

    split_stream: bool = False
    info_buffer_size: Quantity = Quantity("0")


class FormatOptions(ConfigStruct, frozen=True, kw_only=True):
    """Alpha options by log format."""

    text: OutputRoutingOptions = OutputRoutingOptions()
    json: OutputRoutingOptions = OutputRoutingOptions()


class Logging(ConfigStruct, frozen=True, kw_only=True):
    """component-base's LoggingConfiguration."""

    format: str = ""
    flush_frequency: TimeOrDuration = TimeOrDuration(0)
    verbosity: UInt32 = UInt32(0)
    vmodule: tuple[VModuleItem, ...] | None = None
    options: FormatOptions = FormatOptions()


class ShutdownGracePeriodByPodPriority(ConfigStruct, frozen=True, kw_only=True):
    """Grace period, at a node's shutdown, of pods with this priority and up to the next entry's."""

    priority: Int32 = Int32(0)
    shutdown_grace_period_seconds: Int64 = Int64(0)


class MemoryReservation(ConfigStruct, frozen=True, kw_only=True):
    """Memory and huge pages of a NUMA node that are reserved from containers."""

    numa_node: Int32 = Int32(0)
    limits: dict[str, Quantity] | None = None


class Taint(ConfigStruct, frozen=True, kw_only=True):
    """A taint that the node registers with; `time_added` must stay empty."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Tracing(ConfigStruct, frozen=True, kw_only=True):
    """component-base's TracingConfiguration: the endpoint for spans, and the sampling rate."""

    endpoint: str | None = None
    sampling_rate_per_million: Int32 | None = None


class UserNamespaces(ConfigStruct, frozen=True, kw_only=True):
    """Number of user and group IDs of a pod with its own user namespace: a multiple of 65536, below 2^32."""

    ids_per_pod: Int64 | None = None
