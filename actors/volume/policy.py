"""Decisions about a pod's volumes: the desired volumes, the actual state of each, retries, and the kubelet's messages.

Pure. The step for each kind of volume comes from `plugins`. Source: pkg/kubelet/volumemanager, and
pkg/util/goroutinemap/exponentialbackoff for the times between tries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from actors.volume.plugins.base import (
    AFFINITY_FAILED,
    ATTACH_FAILED,
    SET_UP_FAILED,
    CannotMount,
    Plugin,
    not_supported,
)
from actors.volume.plugins.claim import ClaimPlugin, EphemeralPlugin, MigratedPlugin
from actors.volume.plugins.csi import CsiPlugin
from actors.volume.plugins.empty_dir import EmptyDirPlugin
from actors.volume.plugins.mounted import HostPathPlugin, NfsPlugin
from actors.volume.plugins.objects import ConfigMapPlugin, SecretPlugin
from actors.volume.plugins.projected import DownwardApiPlugin, ProjectedPlugin
from actors.volume.steps.codec import SetUp
from actors.volume.steps.errors import SET_UP_DEVICE_FAILED
from actors.volume.steps.volumes import EmptyDir
from proto.common.backoff import Backoff
from proto.pods.objects import ObjectRef
from proto.v1 import Container, EphemeralContainer, Pod, Volume
from proto.v1.scalars.base import json_name
from proto.v1.volumes.migrated import MIGRATED
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
        *map(MigratedPlugin, MIGRATED),
    )
}
"""Plugins by source."""

_DISABLED = {
    "git_repo": "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the "
    "feature-gate `GitRepoVolumeDriver`"
}
"""Volume sources that the kubelet has disabled, with its message."""

GROW_FAILED = "NodeExpandVolume.NodeExpandVolume failed"
GROW_FAILED_FIRST = "MountVolume.Setup failed while expanding volume"
MAP_AFFINITY_FAILED = "MapVolume.NodeAffinity check failed"
_OF_DEVICES = {
    SET_UP_FAILED: SET_UP_DEVICE_FAILED,
    ATTACH_FAILED: "MapVolume.WaitForAttach failed",
    AFFINITY_FAILED: MAP_AFFINITY_FAILED,
    GROW_FAILED_FIRST: "MapVolume.MarkVolumeAsMounted failed while expanding volume",
}
"""The kubelet's names of failed operations on raw devices, by those of file systems."""
ATTACHING = frozenset({ATTACH_FAILED, _OF_DEVICES[ATTACH_FAILED]})
"""Waits for an attachment."""

NOT_IN_TIME = "context deadline exceeded"
RETRY = Backoff(0.5, cap_s=122.0)
"""The kubelet's: 500 ms, doubled with each failure in a row, up to 2 minutes and 2 seconds."""
MAY_WAIT_S = 123.0
"""Longest wait of a pod for its volumes; the kubelet's podAttachAndMountTimeout."""
QUIET_REFRESHES = 4
"""Failed refreshes of a mounted volume in a row, 7.5 s with RETRY, that are no event.

Deletion of a namespace or of a manifest deletes objects shortly before their pods. The kubelet refreshes a volume once
a minute, so it seldom sees this.
"""
SOON_S = 2.0
"""An attachment takes some seconds, and a node may not watch it."""


@dataclass(frozen=True)
class Wanted:
    """A volume of a pod, its plugin and the objects it refers to."""

    volume: Volume
    plugin: Plugin
    refs: tuple[ObjectRef, ...] = ()
    is_device: bool = False
    """Containers use it as a raw device."""

    @property
    def name(self) -> str:
        """Name of the volume in the pod."""
        return self.volume.name


def wanted_volumes(pod: Pod) -> dict[str, Wanted]:
    """The volumes that the pod's containers use, by name, in the spec's order.

    Raises CannotMount for the first volume that this agent never can set up.
    """
    used = used_names(pod)
    volumes = [volume for volume in pod.spec.volumes if volume.name in used] if used else []
    missing = used.difference(volume.name for volume in volumes)
    if missing:
        raise CannotMount(unmounted_message(missing, missing, "no such volume in the pod"), retry=False)
    # An image is mounted by the runtime, for each container: there is nothing to set up.
    devices = _devices(pod)
    return {one.name: _wanted(pod, one, is_device=one.name in devices) for one in volumes if one.image is None}


def used_names(pod: Pod) -> frozenset[str]:
    """Names of the volumes that a container mounts or uses as a device; other volumes are not set up."""
    mounts = frozenset(mount.name for container in _containers(pod) for mount in container.volume_mounts)
    return mounts | _devices(pod)


def _containers(pod: Pod) -> tuple[Container | EphemeralContainer, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)


def _devices(pod: Pod) -> frozenset[str]:
    return frozenset(device.name for container in _containers(pod) for device in container.volume_devices)


def _wanted(pod: Pod, volume: Volume, *, is_device: bool) -> Wanted:
    check_component(volume.name)
    source = next((source for source in VOLUME_SOURCES if getattr(volume, source) is not None), "empty_dir")
    plugin = PLUGINS.get(source)
    if plugin is None:
        problem = _DISABLED.get(source, not_supported("volumes", json_name(source)))
        raise CannotMount(set_up_message(volume.name, problem), retry=False)
    return Wanted(volume, plugin, plugin.refs(pod, volume), is_device)


# The actual state of one volume


@dataclass(frozen=True, slots=True)
class Actual:
    """State of one volume."""

    mounted: bool = False
    digest: bytes = b""
    """Digest of the last step; empty for a volume that was found on disk."""
    path: str = ""
    """Path on the host."""
    medium: str | None = None
    """File system of a volume that was found on disk; None for a volume that was set up."""
    failures: int = 0
    """Consecutive failures."""
    retry_at: float = 0.0
    """Monotonic seconds."""
    error: str = ""
    stage: str = SET_UP_FAILED
    """The operation that failed; see CannotMount."""
    volume: str = ""
    """Volume name in the message, where it differs from the name in the pod."""
    retry: bool = True
    hung_since: float = 0.0
    """Unix seconds of the first call that did not return."""
    stuck_pid: int = 0
    """PID of the helper that the kernel keeps in that call; nothing may touch the volume until it has ended."""
    relabel: bool = False
    """The container runtime may give its files the containers' SELinux label, if the pod may write to it."""
    unresponsive: bool = False
    """Mounted but not answering; no container may start with it until it answers."""


NEW = Actual()


def digest(step: SetUp) -> bytes:
    """A hash that tells two steps apart without keeping their content."""
    return hashlib.blake2b(msgspec.msgpack.encode(step), digest_size=16).digest()


def is_due(actual: Actual, now: float) -> bool:
    """True when a volume may be tried now."""
    return not actual.stuck_pid and now >= actual.retry_at


def needs(wanted: Wanted, step: SetUp, step_digest: bytes, actual: Actual) -> bool:
    """True when a volume is missing, or has other content or another file system than desired."""
    if not actual.mounted or (wanted.plugin.refreshes and actual.digest != step_digest):
        return True
    return isinstance(step, EmptyDir) and actual.medium is not None and actual.medium != step.medium


def done(step_digest: bytes, path: str, *, relabel: bool = False) -> Actual:
    """State after a volume was set up."""
    return Actual(mounted=True, digest=step_digest, path=path, relabel=relabel)


def recovered(actual: Actual, step_digest: bytes) -> Actual:
    """State of a volume that has failed since it was set up, and is as desired."""
    return done(step_digest, actual.path, relabel=actual.relabel)


def failed(actual: Actual, error: CannotMount, now: float) -> Actual:
    """State after a failed try; `now` in monotonic seconds."""
    failures = actual.failures + 1
    delay_s = RETRY.delay_s(failures)
    return replace(
        actual,
        failures=failures,
        retry_at=now + (min(delay_s, SOON_S) if error.soon else delay_s),
        error=str(error),
        stage=error.stage,
        volume=error.volume,
        retry=error.retry,
        hung_since=0.0,
        stuck_pid=0,
    )


def operation(stage: str, wanted: Wanted | None) -> str:
    """The kubelet's name of a failed operation on this volume; see CannotMount.stage."""
    return _OF_DEVICES.get(stage, stage) if wanted is not None and wanted.is_device else stage


def is_quiet(wanted: Wanted | None, actual: Actual, *, ending: bool = False) -> bool:
    """True for a failure that no event reports: its volume has older content of API objects, and few tries failed.

    `ending`: the pod ends, and no number of tries is an event.
    """
    refresh = wanted is not None and wanted.plugin.refreshes and actual.mounted
    return refresh and (ending or actual.failures <= QUIET_REFRESHES)


def hung(actual: Actual, since: float, pid: int, now: float) -> Actual:
    """State after a call that did not return, first made at `since` (Unix seconds)."""
    began = actual.hung_since or since
    return replace(failed(actual, CannotMount(NOT_IN_TIME), now), hung_since=began, stuck_pid=pid)


def released(actual: Actual) -> Actual:
    """State after the stuck helper has ended: to be tried at once, although the volume has not answered yet."""
    return replace(actual, stuck_pid=0, retry_at=0.0)


def next_try_s(actual: Iterable[Actual], now: float) -> float | None:
    """Seconds until the next retry of a failed volume; None when no retry is due."""
    times = [one.retry_at - now for one in actual if one.error and one.retry and not one.stuck_pid]
    return max(0.0, min(times)) if times else None


# Refusals, in the kubelet's words


def refusal(wanted: Iterable[str], actual: Mapping[str, Actual], unix_now: float) -> str:
    """Reason why the pod's volumes are not ready: failures first, then volumes that do not answer, with seconds."""
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
    """Reason to reject a pod whose volumes exceed the node's limit; empty while they may yet be attached.

    `since`: see PodVolumes.exhausted. Source: VolumeAttachLimitExceededError of pkg/kubelet/volumemanager.
    """
    names = sorted(name for name in unmounted if name in since)
    if not any(now - since[name] >= MAY_WAIT_S for name in names):
        return ""
    lists = unmounted_message(unmounted, (), NOT_IN_TIME, names)
    return f"Node has reached its volume attachment limit, rejecting pod. {lists}"


def overdue_message(wanted: Iterable[str], actual: Mapping[str, Actual], unix_now: float) -> str:
    """Message about a pod that has waited MAY_WAIT_S for its volumes; empty when its failures have events like it.

    It is an older kubelet's. That of 1.36 records no event when the wait times out.
    """
    states = {name: one for name in wanted if not (one := actual.get(name, NEW)).mounted or one.unresponsive}
    if not states or any(one.error and not one.stage for one in states.values()):
        return ""
    unattached = [name for name, one in states.items() if one.error and one.stage in ATTACHING]
    silent = {name: one.hung_since for name, one in states.items() if one.hung_since}
    error = unresponsive_message(silent, unix_now) if silent else NOT_IN_TIME
    return f"Unable to attach or mount volumes: {unmounted_message(states, (), error, unattached)}"


def unresponsive_message(since: Mapping[str, float], unix_now: float) -> str:
    """Names the volumes that do not answer, with seconds. `since`: Unix seconds of the first such call, by name."""
    ages = (f'volume "{name}" has not answered for {max(0, int(unix_now - at))} s' for name, at in since.items())
    return f"{NOT_IN_TIME}: {', '.join(ages)}"


def failure_message(name: str, actual: Actual) -> str:
    """The kubelet's FailedMount message for one volume that failed."""
    if not actual.stage:
        return not_processed_message(name, actual.error)
    return set_up_message(actual.volume or name, actual.error, actual.stage)


def set_up_message(name: str, error: str, stage: str = SET_UP_FAILED) -> str:
    """The kubelet's FailedMount message. `name`: the PersistentVolume's for a claim, else the volume's."""
    return f'{stage} for volume "{name}" : {error}'


def not_processed_message(name: str, error: str) -> str:
    """The kubelet's FailedMount message for a volume whose plugin is not known yet."""
    return f"Unable to attach or mount volumes: {unmounted_message((name,), (name,), error)}"


def unmounted_message(
    unmounted: Iterable[str], not_processed: Iterable[str], error: str, unattached: Iterable[str] = ()
) -> str:
    """The kubelet's message for a pod whose volumes did not get ready in time."""
    return (
        f"unmounted volumes=[{' '.join(sorted(unmounted))}], unattached volumes=[{' '.join(sorted(unattached))}], "
        f"failed to process volumes=[{' '.join(sorted(not_processed))}]: {error}"
    )


def check_component(name: str) -> str:
    """Return `name` if it is one component of a path; raises CannotMount for a name that would lead elsewhere."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise CannotMount(f"invalid name {name!r}: it must be one component of a path", retry=False)
    return name
