"""Which volumes a pod needs, which of them are to be set up now, and what may be removed when it goes.

Pure: the desired state, the actual state and the time in, steps out. What sets each kind of volume up is in `plugins`.
Source: pkg/kubelet/volumemanager, and pkg/util/goroutinemap/exponentialbackoff for the times between tries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from actors.volume.plugins.base import SET_UP_FAILED, CannotMount, Plugin
from actors.volume.plugins.claim import ClaimPlugin, EphemeralPlugin
from actors.volume.plugins.csi import CsiPlugin
from actors.volume.plugins.empty_dir import EmptyDirPlugin
from actors.volume.plugins.host_path import HostPathPlugin
from actors.volume.plugins.mounted import NfsPlugin
from actors.volume.plugins.objects import ConfigMapPlugin, SecretPlugin
from actors.volume.plugins.projected import DownwardApiPlugin, ProjectedPlugin
from actors.volume.steps.codec import SetUp
from actors.volume.steps.volumes import EmptyDir
from proto.pods.objects import ObjectRef
from proto.v1 import Pod, Volume
from proto.v1.scalars.base import json_name
from proto.v1.volumes.volume import VOLUME_SOURCES

PLUGINS: dict[str, Plugin] = {
    plugin.source: plugin
    for plugin in (
        EmptyDirPlugin(),
        HostPathPlugin(),
        ConfigMapPlugin(),
        SecretPlugin(),
        DownwardApiPlugin(),
        ProjectedPlugin(),
        NfsPlugin(),
        ClaimPlugin(),
        CsiPlugin(),
        EphemeralPlugin(),
    )
}
"""By source."""

_DISABLED = {
    "git_repo": "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the "
    "feature-gate `GitRepoVolumeDriver`"
}
"""What the kubelet has and does not let anybody use any more."""

NOT_IN_TIME = "context deadline exceeded"
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 122.0
"""The kubelet's: 500 ms, doubled with each failure in a row, up to 2 minutes and 2 seconds."""
MAY_ATTACH_S = 123.0
"""For so long a pod may wait for a volume beyond what the node takes; the kubelet's, for any one try."""
SOON_S = 2.0
"""An attachment takes some seconds, and a node may not watch it."""


@dataclass(frozen=True)
class Wanted:
    """A volume of a pod and what serves it."""

    volume: Volume
    plugin: Plugin
    refs: tuple[ObjectRef, ...] = ()

    @property
    def name(self) -> str:
        """In the pod."""
        return self.volume.name


def wanted_volumes(pod: Pod) -> dict[str, Wanted]:
    """The volumes the pod's containers use, by name, in its spec's order. Raises CannotMount for the first that this
    agent cannot set up whatever happens."""
    used = used_names(pod)
    volumes = [volume for volume in pod.spec.volumes if volume.name in used] if used else []
    missing = used.difference(volume.name for volume in volumes)
    if missing:
        raise CannotMount(unmounted_message(missing, missing, "no such volume in the pod"), retry=False)
    # An image is mounted by the runtime, for each container: there is nothing to set up.
    return {volume.name: _wanted(pod, volume) for volume in volumes if volume.image is None}


def used_names(pod: Pod) -> frozenset[str]:
    """Names of the volumes that any container mounts or uses as a device; the others are not set up."""
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    mounts = {mount.name for container in containers for mount in container.volume_mounts}
    return frozenset(mounts | {device.name for container in containers for device in container.volume_devices})


def _wanted(pod: Pod, volume: Volume) -> Wanted:
    check_component(volume.name)
    source = next((source for source in VOLUME_SOURCES if getattr(volume, source) is not None), "empty_dir")
    plugin = PLUGINS.get(source)
    if plugin is None:
        problem = _DISABLED.get(source, f"this agent does not support volumes of type `{json_name(source)}`")
        raise CannotMount(set_up_message(volume.name, problem), retry=False)
    return Wanted(volume, plugin, plugin.refs(pod, volume))


# The actual state of one volume, and what follows from it


@dataclass(frozen=True, slots=True)
class Actual:
    """One volume as far as it is known."""

    mounted: bool = False
    digest: bytes = b""
    """Of the step that was last carried out; empty for one that was found on disk."""
    path: str = ""
    """Where it is on the host."""
    medium: str | None = None
    """The file system that was found on it; None for one that was not found but set up."""
    failures: int = 0
    """In a row."""
    retry_at: float = 0.0
    """Monotonic seconds."""
    error: str = ""
    stage: str = SET_UP_FAILED
    """How far it came then; see CannotMount."""
    volume: str = ""
    """The name it has there, where that is not the one in the pod."""
    retry: bool = True
    hung_since: float = 0.0
    """Unix seconds: a call on it did not return."""
    stuck_pid: int = 0
    """The helper that the kernel keeps in that call: until it is gone nothing may touch the volume."""
    unresponsive: bool = False
    """It is mounted, and no container may start with it until it answers."""


NEW = Actual()


def digest(step: SetUp) -> bytes:
    """What tells two steps apart, without keeping their content."""
    return hashlib.blake2b(msgspec.msgpack.encode(step), digest_size=16).digest()


def is_due(actual: Actual, now: float) -> bool:
    """Whether a volume that is not as it should be may be tried now."""
    return not actual.stuck_pid and now >= actual.retry_at


def needs(wanted: Wanted, step: SetUp, step_digest: bytes, actual: Actual) -> bool:
    """Whether a volume is not there, or not with the content or file system it should have by now."""
    if not actual.mounted or (wanted.plugin.refreshes and actual.digest != step_digest):
        return True
    return isinstance(step, EmptyDir) and actual.medium is not None and actual.medium != step.medium


def done(step_digest: bytes, path: str) -> Actual:
    """After it was set up."""
    return Actual(mounted=True, digest=step_digest, path=path)


def retry_delay_s(failures: int) -> float:
    """From a failure to the next try, after so many before it."""
    return min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures, 16))


def failed(actual: Actual, error: CannotMount, now: float) -> Actual:
    """After a try that failed."""
    delay_s = min(retry_delay_s(actual.failures), SOON_S if error.soon else LAST_RETRY_S)
    return replace(
        actual,
        failures=actual.failures + 1,
        retry_at=now + delay_s,
        error=str(error),
        stage=error.stage,
        volume=error.volume,
        retry=error.retry,
        hung_since=0.0,
        stuck_pid=0,
    )


def hung(actual: Actual, since: float, pid: int, now: float) -> Actual:
    """After a try whose call did not return; `since` when it was made first."""
    began = actual.hung_since or since
    return replace(failed(actual, CannotMount(NOT_IN_TIME), now), hung_since=began, stuck_pid=pid)


def released(actual: Actual) -> Actual:
    """After the helper that hung at it is gone: to be tried at once. It still has not answered."""
    return replace(actual, stuck_pid=0, retry_at=0.0)


def next_try_s(actual: Iterable[Actual], now: float) -> float | None:
    """Seconds until a volume that failed is tried again; None when there is none to wait for."""
    times = [one.retry_at - now for one in actual if one.error and one.retry and not one.stuck_pid]
    return max(0.0, min(times)) if times else None


# What is refused, in the kubelet's words


def refusal(wanted: Iterable[str], actual: Mapping[str, Actual], unix_now: float) -> str:
    """Why the pod's volumes are not ready: what failed in words of its own, then what did not answer and since when."""
    states = {name: actual.get(name, NEW) for name in wanted}
    unmounted = [name for name, state in states.items() if not state.mounted or state.unresponsive]
    texts = []
    for name in unmounted:
        state = states[name]
        if not state.stage:
            texts.append(not_processed_message(name, state.error))
        elif state.error and not state.hung_since:
            texts.append(failure_message(name, state))
    silent = {name: states[name].hung_since for name in unmounted if states[name].hung_since}
    if silent or not texts:
        error = unresponsive_message(silent, unix_now) if silent else NOT_IN_TIME
        texts.append(f"Unable to attach or mount volumes: {unmounted_message(unmounted, (), error)}")
    return "; ".join(texts)


def beyond_limit(unmounted: Iterable[str], since: Mapping[str, float], now: float) -> str:
    """Why a pod is turned away whose volumes the node cannot take; empty while they may yet be attached. `since`: see
    PodVolumes.exhausted. Source: VolumeAttachLimitExceededError of pkg/kubelet/volumemanager."""
    names = sorted(name for name in unmounted if name in since)
    if not any(now - since[name] >= MAY_ATTACH_S for name in names):
        return ""
    lists = f"unmounted volumes=[{' '.join(sorted(unmounted))}], unattached volumes=[{' '.join(names)}]"
    text = "Node has reached its volume attachment limit, rejecting pod."
    return f"{text} {lists}, failed to process volumes=[]: {NOT_IN_TIME}"


def unresponsive_message(since: Mapping[str, float], unix_now: float) -> str:
    """Which volumes do not answer, and for how long: name to the Unix seconds of the first call that did not return."""
    ages = (f'volume "{name}" has not answered for {max(0, int(unix_now - at))} s' for name, at in since.items())
    return f"{NOT_IN_TIME}: {', '.join(ages)}"


def failure_message(name: str, actual: Actual) -> str:
    """The kubelet's FailedMount message for one volume that failed."""
    if not actual.stage:
        return not_processed_message(name, actual.error)
    return set_up_message(actual.volume or name, actual.error, actual.stage)


def set_up_message(name: str, error: str, stage: str = SET_UP_FAILED) -> str:
    """The kubelet's FailedMount message for one volume. `name`: a persistent volume's own, where it is one."""
    return f'{stage} for volume "{name}" : {error}'


def not_processed_message(name: str, error: str) -> str:
    """The kubelet's FailedMount message for a volume of which it is not known what serves it."""
    return f"Unable to attach or mount volumes: {unmounted_message((name,), (name,), error)}"


def unmounted_message(unmounted: Iterable[str], not_processed: Iterable[str], error: str) -> str:
    """The kubelet's message for a pod whose volumes did not get ready in time."""
    return (
        f"unmounted volumes=[{' '.join(sorted(unmounted))}], unattached volumes=[], "
        f"failed to process volumes=[{' '.join(sorted(not_processed))}]: {error}"
    )


def check_component(name: str) -> str:
    """`name` if it is one component of a path; raises CannotMount for one that would lead elsewhere."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise CannotMount(f"invalid name {name!r}: it must be one component of a path", retry=False)
    return name
