"""Sums the cpu and memory of a pod for its status (KEP-2837, KEP-5419). Pure.

Quantities have the form in which the API server prints them.
"""

from __future__ import annotations

from actors._cgroup.quantities import totals
from proto.v1 import Pod
from proto.v1.scalars.base import Quantity, ResourceList
from proto.v1.scalars.quantity import NANOS, canonical, milli_value, parse, value

_MILLI = NANOS // 1000
_BINARY = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))


def pod_requests(pod: Pod) -> ResourceList:
    """The sum of all containers' requests, or the pod's own; empty without any. Memory is never rounded."""
    requests = totals.requests(pod)
    shown = _shown(requests)
    own = pod.spec.resources.requests if pod.spec.resources is not None else {}
    if "memory" in own and "memory" not in pod.spec.overhead:
        shown["memory"] = canonical(own["memory"])
    elif "memory" in requests:
        shown["memory"] = _exact(requests["memory"])
    return shown


def pod_limits(pod: Pod) -> ResourceList:
    """The sum of all containers' limits, for the resources that every container limits."""
    limits = totals.limits(pod)
    return _shown({name: limit for name, limit in limits.items() if totals.all_limited(pod, name)})


def _shown(resources: ResourceList) -> ResourceList:
    shown: ResourceList = {}
    if "cpu" in resources:
        shown["cpu"] = decimal_milli(milli_value(resources["cpu"]))
    if "memory" in resources:
        shown["memory"] = binary_si(value(resources["memory"]))
    return shown


def _exact(memory: Quantity) -> str:
    nanos = parse(memory)
    if nanos % NANOS == 0:
        return binary_si(nanos // NANOS)
    return f"{nanos}n" if nanos % _MILLI else f"{nanos // _MILLI}m"


def decimal_milli(milli: int) -> str:
    """Thousandths in Go's DecimalSI: `1`, `1500m`."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def binary_si(count: int) -> str:
    """A count in Go's BinarySI: `64Mi`, `1000`."""
    for suffix, power in _BINARY:
        if count and count % (1 << power) == 0:
            return f"{count >> power}{suffix}"
    return str(count)
