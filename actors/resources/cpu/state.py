"""The CPU manager's state, and the content of its file cpu_manager_state below --root-dir.

Name, format and checksum are the kubelet's (pkg/kubelet/cm/cpumanager/state), version 2, and version 3 with pods that
have CPUs of their own. So a node changes between the kubelet and nodevisor without a new assignment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from actors.resources.cpu.checksum import checksum, is_valid
from actors.resources.machine.cpusets import CpuListError, Cpus, parse, printed
from actors.resources.state_file import StateFile, quoted
from proto.common import untrusted

_MOST_CPUS = 1 << 20
"""CPUs of all lists of a file together, so that a small file cannot fill the memory."""


@dataclass(slots=True)
class State:
    """The CPUs of pods and containers, by pod UID and name of the container."""

    shared: Cpus = frozenset()
    """CPUs of all other containers (the kubelet's default set)."""
    containers: dict[str, dict[str, Cpus]] = field(default_factory=dict)
    pods: dict[str, Cpus] = field(default_factory=dict)
    """CPUs of pods with resources of their own, with topologyManagerScope `pod`."""

    def of(self, uid: str, name: str) -> Cpus | None:
        """A container's CPUs; None for one in the shared pool."""
        return self.containers.get(uid, {}).get(name)

    def assign(self, uid: str, name: str, cpus: Cpus) -> None:
        """Give a container these CPUs."""
        self.containers.setdefault(uid, {})[name] = cpus

    def remove_container(self, uid: str, name: str) -> None:
        """Return a container's CPUs to the shared pool, except those of other containers of the pod."""
        containers = self.containers.get(uid, {})
        released = containers.pop(name, frozenset()).difference(*containers.values())
        if not containers:
            self.remove_pod(uid)
        if uid not in self.pods:  # else the pod keeps its CPUs as long as it has a container
            self.shared |= released

    def remove_pod(self, uid: str) -> bool:
        """Return all CPUs of a pod to the shared pool. False when it had none."""
        containers, own = self.containers.pop(uid, None), self.pods.pop(uid, None)
        self.shared = self.shared.union(own or (), *(containers or {}).values())
        return containers is not None or own is not None


class _PodEntry(msgspec.Struct):
    cpus: str = msgspec.field(default="", name="cpuSet")


class _File(msgspec.Struct, omit_defaults=True, kw_only=True):
    policy: str = msgspec.field(name="policyName")
    default: str = msgspec.field(name="defaultCpuSet")
    entries: dict[str, dict[str, str]] = {}
    pods: dict[str, _PodEntry] = msgspec.field(default_factory=dict, name="podEntries")
    checksum: int


def state_file(directory: str, policy: str, *, pod_level: bool = False) -> StateFile[State]:
    """The file in `directory`. `pod_level`: write version 3 of the format (gate PodLevelResourceManagers)."""
    return StateFile(
        directory, "cpu", lambda state: encode(state, policy, pod_level=pod_level), lambda data: decode(data, policy)
    )


def encode(state: State, policy: str, *, pod_level: bool = False) -> bytes:
    """The content of the file. `pod_level`: version 3, also without pods that have CPUs of their own."""
    entries = {
        uid: {name: printed(state.containers[uid][name]) for name in sorted(state.containers[uid])}
        for uid in sorted(state.containers)
    }
    default = printed(state.shared)
    pods = {uid: state.pods[uid] for uid in sorted(state.pods)}
    own = {uid: _PodEntry(printed(cpus)) for uid, cpus in pods.items()}
    number = checksum(policy, default, entries, pods if pod_level or pods else None)
    return msgspec.json.encode(_File(policy=policy, default=default, entries=entries, pods=own, checksum=number))


def decode(content: bytes, policy: str) -> State:
    """The state in a file's content. Raises ValueError with the kubelet's reason."""
    try:
        file = untrusted.decode_json(content, _File)
    except msgspec.DecodeError as error:
        raise ValueError(f"checkpoint is corrupted: {error}") from error
    left = [_MOST_CPUS]
    pods = {uid: _cpus(entry.cpus, f"cpuset of pod {quoted(uid)}", left) for uid, entry in file.pods.items()}
    if not is_valid(file.checksum, file.policy, file.default, file.entries, pods):
        raise ValueError("checkpoint is corrupted")
    if file.policy != policy:
        raise ValueError(
            f"configured policy {quoted(policy)} differs from state checkpoint policy {quoted(file.policy)}"
        )
    containers = {
        uid: {
            name: _cpus(text, f"cpuset for container {quoted(name)} in pod {quoted(uid)}", left)
            for name, text in entries.items()
        }
        for uid, entries in file.entries.items()
    }
    return State(_cpus(file.default, "default cpu set", left), containers, pods)


def _cpus(text: str, what: str, left: list[int]) -> Cpus:
    try:
        cpus = parse(text)
    except CpuListError as error:
        raise ValueError(f"could not parse {what}: {error}") from error
    left[0] -= len(cpus)
    if left[0] < 0:
        raise ValueError(f"it names more than {_MOST_CPUS} CPUs")
    return cpus
