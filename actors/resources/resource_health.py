"""Tells pod_workers the health of the devices that containers have, for allocatedResourcesStatus.

Source: UpdateAllocatedResourcesStatus of the kubelet's device manager and DRA manager. Unlike there, claims that the
pod names itself count, too, and only the devices of the container's requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from actors._base import Actor
from actors.resources.devices.inventory import Device
from actors.resources.devices.manager import DeviceManager
from actors.resources.dra.health import HEALTHY, UNHEALTHY, UNKNOWN
from actors.resources.dra.manager import DraManager
from actors.resources.dra.policy import ClaimError, uses_of
from proto.pods.pod_workers import PodHealth, SetResourceHealth
from proto.v1 import Container, Pod
from proto.v1.status import ResourceHealth, ResourceStatus

LOOK_S = 5.0
"""Period in which reports that are too old are found, while drivers report any."""

ByContainer = dict[str, tuple[ResourceStatus, ...]]


class HealthReporter:
    """State: what pod_workers was told. Runs in the actor's mailbox thread."""

    def __init__(self, actor: Actor, pods: Mapping[str, Pod], devices: DeviceManager, claims: DraManager) -> None:
        """`pods`: the actor's, by UID."""
        self._actor, self._pods, self._devices, self._claims = actor, pods, devices, claims
        self._on = actor.settings.resource_health_status
        self._messages = actor.settings.resource_health_messages
        self._told: dict[str, ByContainer] = {}
        self._planned = False

    def start(self) -> None:
        """Tell changes from now on."""
        self.tell()

    def _look(self) -> None:
        self._planned = False
        self.tell()

    def tell(self, *, full: bool = False) -> None:
        """Tell what has changed. `full`: everything, to a new pod_workers."""
        if not self._on:
            return
        found = {uid: health for uid, pod in self._pods.items() if (health := self._of_pod(pod))}
        gone = dict.fromkeys(self._told.keys() - found.keys(), ByContainer())
        changed = {uid: one for uid, one in found.items() if full or self._told.get(uid) != one}
        self._told = found
        if not self._planned and self._claims.health.any_reports():
            self._planned = True
            self._actor.after(LOOK_S, self._look)
        pods = tuple(PodHealth(pod_uid=uid, containers=one) for uid, one in (*changed.items(), *gone.items()))
        if pods or full:
            self._actor.peer("pod_workers").tell(SetResourceHealth(pods=pods, full=full))

    def _of_pod(self, pod: Pod) -> ByContainer:
        found = {one.name: (*self._of_devices(pod, one), *self._of_claims(pod, one)) for one in pod.spec.containers}
        return {name: statuses for name, statuses in found.items() if statuses}

    def _of_devices(self, pod: Pod, container: Container) -> Iterator[ResourceStatus]:
        for held in self._devices.holdings.of_container(pod.metadata.uid, container.name):
            resource = self._devices.inventory.resources.get(held.resource)
            # While the plugin is away, as in an update of it, the last report counts: the devices are no worse for it.
            known = resource.devices if resource is not None else {}
            yield ResourceStatus(
                name=held.resource,
                resources=tuple(
                    ResourceHealth(resource_id=one, health=_last_reported(known.get(one))) for one in sorted(held.ids)
                ),
            )

    def _of_claims(self, pod: Pod, container: Container) -> Iterator[ResourceStatus]:
        try:
            uses = [use for use in uses_of(pod, container) if use.shown]
        except ClaimError:  # a claim is not created yet
            return
        for use in uses:
            claim = self._claims.claims.get(use.key)
            if claim is None or pod.metadata.uid not in claim.pod_uids:
                continue
            found = tuple(
                self._of_device(driver, device.pool, device.name, device.cdi_names)
                for driver, devices in claim.devices.items()
                for device in devices
                if device.serves(use.request)
            )
            if found:
                yield ResourceStatus(name=use.shown, resources=found)

    def _of_device(self, driver: str, pool: str, name: str, cdi_names: tuple[str, ...]) -> ResourceHealth:
        health, message = self._claims.health.of(driver, pool, name, time.monotonic())
        identity = cdi_names[0] if cdi_names else f"{driver}/{pool}/{name}"
        shown = message if self._messages and message else None
        return ResourceHealth(resource_id=identity, health=health, message=shown)


def _last_reported(device: Device | None) -> str:
    if device is None:
        return UNKNOWN
    return HEALTHY if device.healthy else UNHEALTHY
