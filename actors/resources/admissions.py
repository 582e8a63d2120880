"""The admissions under way, and which of them are withdrawn. Pure.

An asker that ends, or drops the pod, does not end the admission: a device plugin may still work for it. The admission
is withdrawn then. What it holds is freed at once, and it must take nothing from then on.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass


@dataclass(eq=False)
class Admission:
    """An AdmitPod under way. Two of one pod are never equal."""

    pod_uid: str
    withdrawn: bool = False
    """The pod was released meanwhile."""
    chosen: bool = False
    """It has its resources, and device plugins are asked to allocate them."""


class Admissions:
    """See the module. A pod has several when it was asked for again before the first one ended."""

    def __init__(self) -> None:
        self._under_way: list[Admission] = []

    def begin(self, pod_uid: str) -> Admission:
        """Note a new one."""
        admission = Admission(pod_uid)
        self._under_way.append(admission)
        return admission

    def end(self, admission: Admission) -> None:
        """Forget an admission at its end."""
        self._under_way.remove(admission)

    def withdraw(self, pod_uid: str) -> None:
        """Withdraw those of this pod that are under way. Later ones are not concerned."""
        for one in self._under_way:
            one.withdrawn = one.withdrawn or one.pod_uid == pod_uid

    def withdraw_others(self, pod_uids: Container[str]) -> None:
        """Withdraw those of all pods but these."""
        for one in self._under_way:
            one.withdrawn = one.withdrawn or one.pod_uid not in pod_uids

    def any_chosen(self) -> bool:
        """Return True if one may still give back what it has taken."""
        return any(one.chosen and not one.withdrawn for one in self._under_way)

    def pods(self) -> list[str]:
        """Return the UIDs of their pods, sorted."""
        return sorted({one.pod_uid for one in self._under_way})
