"""The probes of a pod, with literal variables in their commands. Pure.

Source: ExpandContainerCommandOnlyStatic of pkg/kubelet/container/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from actors.pod_workers.environment.exec_limits import size
from actors.pod_workers.environment.variables import TooLongError, expand
from proto.v1 import Container, Probe

MAX_COMMANDS_BYTES = 3 * 1024 * 1024
"""All commands of a pod's probes: the largest pod, so that commands without variables always pass."""
KINDS = ("liveness_probe", "readiness_probe", "startup_probe")

Probes = dict[str, Probe | None]
"""By KINDS."""


def expanded_probes(containers: Iterable[Container]) -> tuple[dict[str, Probes], tuple[str, ...]]:
    """(the probes by container, the containers with a command that is too long).

    Such a command becomes an empty one. No runtime runs that, just as Linux refuses the long one.
    """
    found: dict[str, Probes] = {}
    refused: dict[str, None] = {}
    left = MAX_COMMANDS_BYTES
    for container in containers:
        probes = found[container.name] = {kind: getattr(container, kind) for kind in KINDS}
        for kind, probe in probes.items():
            if probe is None or probe.exec is None:
                continue
            try:
                command = _expanded(probe.exec.command, container, left)
            except TooLongError:
                command = ()
                refused[container.name] = None
            left -= sum(map(size, command))
            probes[kind] = replace(probe, exec=replace(probe.exec, command=command))
    return found, tuple(refused)


def _expanded(command: Iterable[str], container: Container, left: int) -> tuple[str, ...]:
    """Other variables than literal ones are empty there. Raises TooLongError."""
    values = {variable.name: variable.value or "" for variable in container.env}
    words = []
    for word in command:
        text = expand(word, values, left)
        left -= size(text)
        words.append(text)
    return tuple(words)
