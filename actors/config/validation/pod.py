"""The API's rules for a pod; reports all violations at once.

Covers the rules of ValidatePodCreate that matter to a node: names, containers, volumes, policies, host settings. Leaves
out affinity terms and spread constraints, which only the scheduler reads: with a bad one of these a static pod runs,
but the API server refuses its mirror pod.
Expects a pod after defaulting. Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Iterator

from actors.config.validation import rules
from actors.config.validation.container import validate_containers
from actors.config.validation.problems import Path, Violation
from actors.config.validation.resources import validate_pod_resources
from actors.config.validation.scheduling import validate_scheduling
from actors.config.validation.security import validate_apparmor_annotations, validate_pod_security
from actors.config.validation.volume import validate_volumes
from proto.common.safe_text import component_problem
from proto.v1 import ObjectMeta, Pod, PodSecurityContext, PodSpec

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARACTERS = 2048
_MAX_ANNOTATION_BYTES = 256 * 1024


def validate_pod(pod: Pod, *, users_on_host_network: bool = False) -> tuple[Violation, ...]:
    """Return the violations in document order.

    `users_on_host_network`: a pod on the host's network may have a user namespace (UserNamespacesHostNetworkSupport).
    """
    spec = _spec(pod.spec, users_on_host_network=users_on_host_network)
    return (*_metadata(pod.metadata), *spec, *validate_apparmor_annotations(pod))


def _metadata(metadata: ObjectMeta) -> Iterator[Violation]:
    at = Path(("metadata",))
    yield from rules.subdomain(at / "name", metadata.name)
    yield from rules.label(at / "namespace", metadata.namespace)
    if metadata.uid and (problem := component_problem(metadata.uid)):
        yield Violation(at / "uid", f"Invalid value: it names directories and cgroups, and {problem}")
    for key, value in metadata.labels.items():
        yield from rules.qualified_name(at / "labels", key)
        yield from rules.label_value(at / "labels" / key, value)
    for key in metadata.annotations:
        yield from rules.qualified_name(at / "annotations", key.lower())
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.annotations.items())
    if size > _MAX_ANNOTATION_BYTES:
        yield Violation(at / "annotations", f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes")


def _spec(spec: PodSpec, *, users_on_host_network: bool) -> Iterator[Violation]:
    at = Path(("spec",))
    yield from validate_volumes(at / "volumes", spec.volumes)
    yield from validate_containers(at, spec)
    yield from rules.one_of(at / "restartPolicy", spec.restart_policy, RESTART_POLICIES)
    yield from rules.one_of(at / "dnsPolicy", spec.dns_policy, DNS_POLICIES)
    yield from rules.in_range(at / "activeDeadlineSeconds", spec.active_deadline_seconds, 1, 2**31 - 1)
    yield from validate_pod_resources(at, spec)
    for name, amount in spec.overhead.items():
        yield from rules.quantity(at / "overhead" / name, amount)
    yield from validate_scheduling(at, spec)
    yield from _host_settings(at, spec, users_on_host_network=users_on_host_network)
    yield from _names(at, spec)
    yield from _dns_config(at, spec)
    yield from validate_pod_security(at / "securityContext", spec.security_context or PodSecurityContext())
    if spec.ephemeral_containers:
        yield Violation(at / "ephemeralContainers", "Forbidden: cannot be set on create")
    if spec.node_name and spec.scheduling_gates:
        yield Violation(at / "nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared")


def _host_settings(at: Path, spec: PodSpec, *, users_on_host_network: bool) -> Iterator[Violation]:
    if spec.host_pid and spec.share_process_namespace:
        yield rules.invalid(
            at / "shareProcessNamespace", True, "ShareProcessNamespace and HostPID cannot both be enabled"
        )
    if spec.host_users is False:
        for field, value in (
            ("hostNetwork", spec.host_network and not users_on_host_network),
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
        ):
            if value:
                yield Violation(at / field, f"Forbidden: when `hostUsers` is false, `{field}` must not be set")
    if spec.os is not None:
        yield from rules.one_of(at / "os" / "name", spec.os.name, ("linux", "windows"))
    for index, alias in enumerate(spec.host_aliases):
        yield from rules.address(at / "hostAliases" / index / "ip", alias.ip)
        for position, name in enumerate(alias.hostnames):
            yield from rules.subdomain(at / "hostAliases" / index / "hostnames" / position, name)


def _names(at: Path, spec: PodSpec) -> Iterator[Violation]:
    if spec.hostname:
        yield from rules.label(at / "hostname", spec.hostname)
    if spec.subdomain:
        yield from rules.label(at / "subdomain", spec.subdomain)
    if spec.hostname_override:
        if len(spec.hostname_override) > 64:
            yield rules.invalid(at / "hostnameOverride", spec.hostname_override, "must be no more than 64 characters")
        yield from rules.subdomain(at / "hostnameOverride", spec.hostname_override)
        for conflicting, is_set in (
            ("setHostnameAsFQDN", spec.set_hostname_as_fqdn),
            ("hostNetwork", spec.host_network),
        ):
            if is_set:
                yield Violation(at / conflicting, "Forbidden: may not be set when `hostnameOverride` is")
    for field, value in (
        ("nodeName", spec.node_name),
        ("priorityClassName", spec.priority_class_name),
        ("runtimeClassName", spec.runtime_class_name),
        ("serviceAccountName", spec.service_account_name),
    ):
        if value:
            yield from rules.subdomain(at / field, value)


def _dns_config(at: Path, spec: PodSpec) -> Iterator[Violation]:
    config = spec.dns_config
    if spec.dns_policy == "None" and (config is None or not config.nameservers):
        yield rules.required(
            at / "dnsConfig" / "nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None"
        )
    if config is None:
        return
    at = at / "dnsConfig"
    if len(config.nameservers) > _MAX_NAMESERVERS:
        yield rules.invalid(
            at / "nameservers", len(config.nameservers), f"must not have more than {_MAX_NAMESERVERS} nameservers"
        )
    for index, nameserver in enumerate(config.nameservers):
        yield from rules.address(at / "nameservers" / index, nameserver)
    if len(config.searches) > _MAX_SEARCHES:
        yield rules.invalid(
            at / "searches", len(config.searches), f"must not have more than {_MAX_SEARCHES} search paths"
        )
    if (size := len(" ".join(config.searches))) > _MAX_SEARCH_CHARACTERS:
        problem = f"must not have more than {_MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        yield rules.invalid(at / "searches", size, problem)
    for index, search in enumerate(config.searches):
        yield from rules.search_domain(at / "searches" / index, search)
    for index, option in enumerate(config.options):
        if not option.name:
            yield rules.required(at / "options" / index)
