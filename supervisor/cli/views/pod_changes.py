"""Finds what has changed in the pods that a command shows."""

from __future__ import annotations

from collections.abc import Sequence

from proto.pods.pod_columns import Columns, columns
from proto.v1 import Pod


class PodChanges:
    """Remembers the shown pods, so that a pod is shown again only when more than its age changes."""

    def __init__(self) -> None:
        self._shown: dict[str, Columns] = {}

    def since_last(self, pods: Sequence[Pod], now: float) -> tuple[list[tuple[Columns, Pod]], list[Columns]]:
        """(columns of the new and changed pods, in the order of `pods`; last columns of the removed ones)."""
        changed: list[tuple[Columns, Pod]] = []
        present: dict[str, Columns] = {}
        for pod in pods:
            line = columns(pod, now)
            lasting = line._replace(restarts=line.restarts.partition(" ")[0], age="")
            present[pod.metadata.uid] = lasting
            if self._shown.get(pod.metadata.uid) != lasting:
                changed.append((line, pod))
        removed = [line for uid, line in self._shown.items() if uid not in present]
        self._shown = present
        return changed, removed
