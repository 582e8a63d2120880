"""The API's rules for resources: of a container, of a pod (KEP-2837), and their resizePolicy.

Expects amounts after defaulting: a limit without a request has its request then. Source: validateResourceRequirements,
validatePodResourceConsistency and validateResizePolicy of pkg/apis/core/validation.
"""

from collections.abc import Callable, Iterator

from actors._cgroup.quantities.totals import is_pod_level, of_containers
from actors.config.validation import rules
from actors.config.validation.problems import Path, Violation
from proto.v1 import Container, Pod, PodSpec, Quantity, ResourceList, ResourceRequirements
from proto.v1.scalars.quantity import QuantityError, canonical, milli_value, value
from proto.v1.scalars.resource_name import is_extended

STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
RESIZABLE = ("cpu", "memory")
RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_QUOTA_PREFIX = "requests."
"""Begins an extended resource's name in a ResourceQuota, where it has to be a valid name, too."""


def validate_resources(path: Path, resources: ResourceRequirements) -> Iterator[Violation]:
    """Yield the violations of a container's requests and limits: names, amounts, requests within limits."""
    yield from _requirements(path, resources, _container_resource_name)


def validate_pod_resources(at: Path, spec: PodSpec) -> Iterator[Violation]:
    """Yield the violations of spec.resources, alone and beside the containers' resources."""
    if spec.resources is None:
        return
    path = at / "resources"
    yield from _requirements(path, spec.resources, _pod_resource_name)
    try:
        yield from _pod_covers_containers(path, spec, spec.resources)
        yield from _container_limits(at / "containers", spec, spec.resources.limits)
    except QuantityError:
        return  # reported with its field


def validate_resize_policy(
    path: Path, container: Container, *, pod_restarts: bool, is_regular_init: bool
) -> Iterator[Violation]:
    """Yield the violations of resizePolicy. `pod_restarts`: the pod's restartPolicy is not Never."""
    names: set[str] = set()
    for index, policy in enumerate(container.resize_policy):
        at = path / index
        yield from rules.one_of(at / "resourceName", policy.resource_name, RESIZABLE)
        yield from rules.unique(at / "resourceName", policy.resource_name, names)
        at = at / "restartPolicy"
        yield from rules.one_of(at, policy.restart_policy, RESIZE_POLICIES)
        if policy.restart_policy == "NotRequired":
            continue
        if not pod_restarts:
            problem = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield rules.invalid(at, policy.restart_policy, problem)
        if is_regular_init and policy.restart_policy == "RestartContainer":
            problem = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            yield rules.invalid(at, policy.restart_policy, problem)


def _requirements(
    path: Path, resources: ResourceRequirements, check_name: Callable[[Path, str], Iterator[Violation]]
) -> Iterator[Violation]:
    for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in amounts.items():
            at = path / field / name
            yield from rules.qualified_name(at, name)
            yield from check_name(at, name)
            yield from rules.quantity(at, amount)
            yield from _divisible(at, name, amount)
    for name, request in resources.requests.items():
        yield from _request_within_limit(path, name, request, resources.limits.get(name))
    names = {*resources.limits, *resources.requests}
    if any(name.startswith(HUGE_PAGES) for name in names) and names.isdisjoint({"cpu", "memory"}):
        yield Violation(path, "Forbidden: HugePages require cpu or memory")


def _container_resource_name(at: Path, name: str) -> Iterator[Violation]:
    if "/" not in name and name not in STANDARD and not name.startswith(HUGE_PAGES):
        yield rules.invalid(at, name, "must be a standard resource for containers or a name with a domain")
    elif not _is_native(name) and not (is_extended(name) and _fits_quota(at, name)):
        yield rules.invalid(at, name, "doesn't follow extended resource name standard")


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _fits_quota(at: Path, name: str) -> bool:
    return not any(rules.qualified_name(at, _QUOTA_PREFIX + name))


def _pod_resource_name(at: Path, name: str) -> Iterator[Violation]:
    if not is_pod_level(name):
        yield from rules.one_of(at, name, ("cpu", HUGE_PAGES, "memory"))


def _divisible(at: Path, name: str, amount: Quantity) -> Iterator[Violation]:
    """Whole devices and whole pages. An unreadable amount is reported by `rules.quantity`."""
    try:
        if is_extended(name) and milli_value(amount) % 1000:
            yield rules.invalid(at, amount, "must be an integer")
        elif name.startswith(HUGE_PAGES) and (not (page := _page_size(name)) or value(amount) % page):
            yield rules.invalid(at, amount, f"{amount} is not positive integer multiple of {name}")
    except QuantityError:
        return


def _page_size(name: str) -> int:
    """The bytes of a page; 0 for a name without a size."""
    try:
        size = milli_value(name.removeprefix(HUGE_PAGES))
    except QuantityError:
        return 0
    return 0 if size <= 0 or size % 1000 else size // 1000


def _request_within_limit(path: Path, name: str, request: Quantity, limit: Quantity | None) -> Iterator[Violation]:
    """A request within its limit. Devices and huge pages cannot be overcommitted: both are equal."""
    is_exclusive = not _is_native(name) or name.startswith(HUGE_PAGES)
    if limit is None:
        if is_exclusive:
            yield rules.required(path / "limits" / name, "Limit must be set for non overcommitable resources")
        return
    try:
        excess = milli_value(request) - milli_value(limit)
    except QuantityError:
        return
    if excess and is_exclusive:
        yield rules.invalid(path / "requests" / name, request, f"must be equal to {name} limit of {limit}")
    elif excess > 0:
        yield rules.invalid(path / "requests" / name, request, f"must be less than or equal to {name} limit of {limit}")


def _pod_covers_containers(path: Path, spec: PodSpec, own: ResourceRequirements) -> Iterator[Violation]:
    """The pod has at least the requests, and the huge pages, of its containers together."""
    pod = Pod(spec=spec)
    for name, total in of_containers(pod, lambda container: container.resources.requests).items():
        if name in own.requests and milli_value(total) > milli_value(own.requests[name]):
            problem = f"must be greater than or equal to aggregate container requests of {canonical(total)}"
            yield rules.invalid(path / "requests" / name, own.requests[name], problem)
    for name, total in of_containers(pod, lambda container: container.resources.limits).items():
        if name.startswith(HUGE_PAGES) and name in own.limits and milli_value(total) > milli_value(own.limits[name]):
            problem = f"must be greater than or equal to aggregate container limits of {canonical(total)}"
            yield rules.invalid(path / "limits" / name, own.limits[name], problem)


def _container_limits(path: Path, spec: PodSpec, pod: ResourceList) -> Iterator[Violation]:
    """No container has a limit above the pod's. As in the API server, init containers may."""
    for index, container in enumerate(spec.containers):
        for name, limit in container.resources.limits.items():
            if name in pod and milli_value(limit) > milli_value(pod[name]):
                problem = f"must be less than or equal to pod limits of {pod[name]}"
                yield rules.invalid(path / index / "resources" / "limits" / name, limit, problem)
