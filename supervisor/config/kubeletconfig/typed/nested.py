"""The structs inside KubeletConfiguration: authentication, authorization, logging, tracing, taints and smaller ones."""

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
    """Client certificates: who signs those that are let in."""

    client_ca_file: str = ""


class WebhookAuthentication(ConfigStruct, frozen=True, kw_only=True):
    """Bearer tokens, checked by TokenReview."""

    enabled: bool | None = None
    cache_ttl: Duration = Duration(0)


class AnonymousAuthentication(ConfigStruct, frozen=True, kw_only=True):
    """Requests without credentials."""

    enabled: bool | None = None


class Authentication(ConfigStruct, frozen=True, kw_only=True):
    """Who a request to the kubelet's server is from."""

    x509: X509Authentication = X509Authentication()
    webhook: WebhookAuthentication = WebhookAuthentication()
    anonymous: AnonymousAuthentication = AnonymousAuthentication()


class WebhookAuthorization(ConfigStruct, frozen=True, kw_only=True):
    """How long answers of SubjectAccessReview are kept."""

    cache_authorized_ttl: Duration = Duration(0)
    cache_unauthorized_ttl: Duration = Duration(0)


class Authorization(ConfigStruct, frozen=True, kw_only=True):
    """What a request may do; `mode` is AlwaysAllow or Webhook."""

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
    """Seconds that pods of this priority and up to the next entry's get when the node shuts down."""

    priority: Int32 = Int32(0)
    shutdown_grace_period_seconds: Int64 = Int64(0)


class MemoryReservation(ConfigStruct, frozen=True, kw_only=True):
    """Memory and huge pages of one NUMA node that containers do not get."""

    numa_node: Int32 = Int32(0)
    limits: dict[str, Quantity] | None = None


class Taint(ConfigStruct, frozen=True, kw_only=True):
    """A taint the node registers with; `time_added` must stay empty."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Tracing(ConfigStruct, frozen=True, kw_only=True):
    """component-base's TracingConfiguration: where spans go, and how many of a million."""

    endpoint: str | None = None
    sampling_rate_per_million: Int32 | None = None


class UserNamespaces(ConfigStruct, frozen=True, kw_only=True):
    """How many user and group IDs a pod with its own user namespace gets: a multiple of 65536, below 2^32."""

    ids_per_pod: Int64 | None = None
