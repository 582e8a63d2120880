"""The CPU manager's state, and its file cpu_manager_state below --root-dir.

Name, format and checksum are the kubelet's (pkg/kubelet/cm/cpumanager/state), version 2, and version 3 with pods that
have CPUs of their own. So a node changes between the kubelet and nodevisor without a new assignment.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from actors._host.files.untrusted_files import read_regular
from actors.resources.cpu.checksum import checksum, is_valid
from actors.resources.cpu.errors import PolicyError
from actors.resources.machine.cpusets import CpuListError, Cpus, parse, printed
from proto.common import untrusted

FILE = "cpu_manager_state"

_MOST_BYTES = 4 << 20
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


class StateFile:
    """The file of one policy. `write` may be called from any thread."""

    def __init__(self, directory: str, policy: str, *, pod_level: bool = False) -> None:
        """`pod_level`: write version 3 of the format (gate PodLevelResourceManagers)."""
        self.path = os.path.join(directory, FILE)
        self._policy, self._pod_level = policy, pod_level
        self._lock = threading.Lock()
        self._written = 0

    def load(self) -> State | None:
        """Return the state; None without a file. Raises PolicyError for a damaged file or one of another policy."""
        try:
            return decode(read_regular(self.path, _MOST_BYTES), self._policy)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.refused(f"cannot read it: {error.strerror}") from error
        except ValueError as error:
            raise self.refused(str(error)) from error

    def refused(self, reason: str) -> PolicyError:
        """The error for a state that cannot be used, in the kubelet's words."""
        return PolicyError(
            f"could not restore state from checkpoint: {reason}, please drain this node and delete the CPU manager "
            f'checkpoint file "{self.path}" before restarting Kubelet'
        )

    def content(self, state: State) -> bytes:
        """The file's content for this state."""
        return encode(state, self._policy, pod_level=self._pod_level)

    def write(self, number: int, content: bytes) -> None:
        """Replace the file, unless one with a higher number is written. A kill leaves the old or the new one.

        Blocks until it is on the disk. Raises OSError.
        """
        with self._lock:
            if number <= self._written:
                return
            temporary = f"{self.path}.tmp"
            Path(temporary).unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(temporary, "wb", opener=lambda path, _: os.open(path, flags, 0o600)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            _sync_directory(os.path.dirname(self.path))
            self._written = number


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
    pods = {uid: _cpus(entry.cpus, f"cpuset of pod {_quoted(uid)}", left) for uid, entry in file.pods.items()}
    if not is_valid(file.checksum, file.policy, file.default, file.entries, pods):
        raise ValueError("checkpoint is corrupted")
    if file.policy != policy:
        raise ValueError(
            f"configured policy {_quoted(policy)} differs from state checkpoint policy {_quoted(file.policy)}"
        )
    containers = {
        uid: {
            name: _cpus(text, f"cpuset for container {_quoted(name)} in pod {_quoted(uid)}", left)
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


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
