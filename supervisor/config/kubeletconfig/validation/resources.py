"""Rules of resource managers: reserved amounts, memory of NUMA nodes, options of CPU and topology managers.

Sources: https://kubernetes.io/docs/tasks/administer-cluster/ on cpu-management-policies, memory-manager and
topology-manager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from supervisor.config.kubeletconfig.feature_gates import Gates, requirement
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
_BOOLEANS = ("1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False")


class Option(NamedTuple):
    """An option of a manager. `gate` must be on ("" for none); `number`: its value is a number, else a boolean."""

    gate: str = ""
    number: bool = False


_CPU_OPTIONS = {
    "full-pcpus-only": Option(),
    "strict-cpu-reservation": Option(),
    "prefer-align-cpus-by-uncorecache": Option(),
    "distribute-cpus-across-numa": Option("CPUManagerPolicyBetaOptions"),
    "align-by-socket": Option("CPUManagerPolicyAlphaOptions"),
    "distribute-cpus-across-cores": Option("CPUManagerPolicyAlphaOptions"),
}
_TOPOLOGY_OPTIONS = {
    "prefer-closest-numa-nodes": Option(),
    "max-allowable-numa-nodes": Option(number=True),
}


def rules(config: KubeletConfiguration, gates: Gates) -> Iterator[Problem]:
    """Violations in the fields of the resource managers."""
    yield from _reserved("systemReserved", config.system_reserved or {})
    yield from _reserved("kubeReserved", config.kube_reserved or {})
    yield from _qos_reserved(config.qos_reserved or {})
    yield from _reserved_memory(config)
    yield from _options("cpuManagerPolicyOptions", config.cpu_manager_policy_options or {}, _CPU_OPTIONS, gates)
    yield from _options(
        "topologyManagerPolicyOptions", config.topology_manager_policy_options or {}, _TOPOLOGY_OPTIONS, gates
    )
    if config.cpu_manager_policy == "none" and config.cpu_manager_policy_options:
        yield Problem("cpuManagerPolicyOptions", "the policy none takes no options; set cpuManagerPolicy: static")
    if config.cpu_manager_policy == "static" and not _has_reserved_cpu(config):
        problem = "static needs a CPU reservation above zero; set reservedSystemCPUs, or cpu in systemReserved"
        yield Problem("cpuManagerPolicy", problem)
    if config.memory_manager_policy == "Static" and not config.reserved_memory:
        yield Problem("memoryManagerPolicy", "Static needs reservedMemory for at least one NUMA node")
    if config.container_log_max_size != "10Mi":
        yield from _log_size(config.container_log_max_size)


def _reserved(field: str, amounts: Mapping[str, str]) -> Iterator[Problem]:
    for name, amount in amounts.items():
        if name not in _RESERVABLE:
            yield Problem(_path(field, name), f"cannot reserve {name[:60]}; there are {', '.join(_RESERVABLE)}")
            continue
        value, reason = _quantity(amount)
        if reason or value < 0:
            yield Problem(_path(field, name), reason or f"must not be negative: {amount[:60]}")


def _qos_reserved(shares: Mapping[str, str]) -> Iterator[Problem]:
    for name, share in shares.items():
        digits = share.removesuffix("%")
        if name != "memory":
            yield Problem(_path("qosReserved", name), "only memory can be reserved by QoS class")
        elif digits == share or not (digits.isascii() and digits.isdigit()) or len(digits) > 3 or int(digits) > 100:
            yield Problem("qosReserved.memory", f"must be a whole percentage from 0% to 100%, not {share[:60]!r}")


def _reserved_memory(config: KubeletConfiguration) -> Iterator[Problem]:
    seen: set[tuple[int, str]] = set()
    for index, reservation in enumerate(config.reserved_memory or ()):
        here = f"reservedMemory[{index}]"
        if reservation.numa_node < 0:
            yield Problem(f"{here}.numaNode", f"must be 0 or greater, not {reservation.numa_node}")
        for name, amount in (reservation.limits or {}).items():
            path = f"{here}.{_path('limits', name)}"
            value, reason = _quantity(amount)
            if name != "memory" and not (name.startswith("hugepages-") and not _quantity(name[10:])[1]):
                yield Problem(path, f"{name[:60]} is not supported; there are memory and hugepages-<size>")
            if reason or value <= 0:
                yield Problem(path, reason or f"must be greater than zero, not {amount[:60]}")
            if (reservation.numa_node, name) in seen:
                yield Problem(path, f"{name[:60]} of NUMA node {reservation.numa_node} is there twice; remove one")
            seen.add((reservation.numa_node, name))


def _options(field: str, values: Mapping[str, str], known: Mapping[str, Option], gates: Gates) -> Iterator[Problem]:
    for name, value in values.items():
        option = known.get(name)
        if option is None:
            yield Problem(_path(field, name), f"unknown option {name[:60]}; there are {', '.join(known)}")
            continue
        if option.gate and not gates.enabled(option.gate):
            yield Problem(_path(field, name), requirement(option.gate))
        if option.number:
            # The kubelet refuses values below 8, the topology manager's default limit.
            if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) >= 8):
                yield Problem(
                    _path(field, name), f"must be a whole number of at least 8, in quotes, not {value[:60]!r}"
                )
        elif value not in _BOOLEANS:
            yield Problem(_path(field, name), f'must be "true" or "false", not {value[:60]!r}')


def _has_reserved_cpu(config: KubeletConfiguration) -> bool:
    amounts = ((config.system_reserved or {}).get("cpu", "0"), (config.kube_reserved or {}).get("cpu", "0"))
    return bool(config.reserved_system_cpus) or any(_quantity(amount)[0] > 0 for amount in amounts)


def _log_size(size: str) -> Iterator[Problem]:
    from proto.v1.scalars.quantity import NANOS  # noqa: PLC0415 - comes with the API types

    value, reason = _quantity(size)
    if reason or -NANOS < value <= 0:  # a size below zero switches the rotation off
        yield Problem("containerLogMaxSize", reason or f"must not be zero: {size[:60]!r}; -1 switches the rotation off")


def _quantity(text: str) -> tuple[int, str]:
    from proto.v1.scalars.quantity import QuantityError, parse  # noqa: PLC0415 - comes with the API types

    try:
        return parse(text), ""
    except QuantityError as error:
        return 0, str(error)


def _path(field: str, name: str) -> str:
    from proto.schema.fieldpath import field_text  # noqa: PLC0415 - only errors need it

    return field_text((field, name))
