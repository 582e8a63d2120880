"""Finds whether CPU limits hold a container back, from two readings of its cgroup and its pod's.

Source: cpu.stat of https://docs.kernel.org/admin-guide/cgroup-v2.html and of
https://docs.kernel.org/scheduler/sched-bwc.html. A cgroup without work has no periods.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors._cgroup import figures, fs
from actors._cgroup.figures import Detail
from actors._cgroup.hierarchy import hierarchy
from actors.stats.inventory import container_id
from proto.agent.settings import Settings
from proto.node.stats import Throttling

WINDOW_S = 0.5
"""Time between two readings: five periods of the default length."""
LEAST_PERIODS = 3
"""Fewer periods tell too little."""
_NONE = Detail()


def read(settings: Settings, uid: str, identity: str) -> tuple[Detail, Detail]:
    """(container, pod): figures of their cgroups; zeros for a cgroup that does not exist. Raises OSError."""
    tree = hierarchy()
    pod = fs.find_pod_cgroups([uid], settings, tree).get(uid, "")
    if not pod:
        return _NONE, _NONE
    own = next((name for name in figures.children(pod, tree) if container_id(name) == identity), "")
    found = [figures.read(name, tree, 0.0, detailed=True) for name in (f"{pod}/{own}" if own else "", pod) if name]
    details = [one.detail or _NONE if one is not None else _NONE for one in found]
    return (details[0], details[-1]) if own else (_NONE, _NONE)


def is_limited(readings: Sequence[Detail]) -> bool:
    """True when one of the cgroups has a limit."""
    return any(one.quota_us and one.period_us for one in readings)


def throttling(before: Sequence[Detail], after: Sequence[Detail]) -> Throttling:
    """The limit that throttles the container in most periods: between the readings, else since its start. Pure.

    Both are (container, pod).
    """
    for first, last in ((before, after), ((_NONE, _NONE), after)):
        for of_pod, (old, new) in enumerate(zip(first, last, strict=True)):
            periods, held = new.periods - old.periods, new.throttled_periods - old.throttled_periods
            if new.quota_us and new.period_us and periods >= LEAST_PERIODS and held * 2 > periods:
                return Throttling(
                    limit_milli=max(1, new.quota_us * 1000 // new.period_us),
                    periods=periods,
                    throttled_periods=held,
                    throttled_ms=(new.throttled_ns - old.throttled_ns) // 1_000_000,
                    over_s=WINDOW_S if first is before else 0.0,
                    of_pod=bool(of_pod),
                )
    return Throttling()
