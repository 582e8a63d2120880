"""The DRA manager: has DRA drivers prepare the claims of pods before their sandbox, and unprepare them at their end.

A claim is in the state file before a driver is asked to prepare it, and until it is unprepared. So a kill leaves no
prepared claim unknown. What a driver does not do now is tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from actors._base import Actor, gather
from actors._base.keyed_locks import KeyedLocks
from actors._metrics import kubelet as metrics
from actors._objects.fetch import fetch
from actors._objects.peer import objects_of
from actors.resources.dra import answers, policy
from actors.resources.dra.claims import Claim, Claims, Key
from actors.resources.dra.health import MOST_DEVICES, Health
from actors.resources.dra.health_file import HealthFile
from actors.resources.dra.health_stream import PAUSE_S, HealthStream
from actors.resources.dra.plugin import Plugin, Plugins
from actors.resources.dra.policy import ClaimError, PodClaim
from actors.resources.dra.slices import SliceCleaner
from actors.resources.model.plugin_bounds import rest_s
from actors.resources.state_file import MOST_BYTES, StateFile
from proto.common.backoff import Backoff
from proto.common.until import Until
from proto.pods.objects import ObjectRef, document_of
from proto.resources.grants import Grant
from proto.v1 import Container, Pod
from proto.v1.cluster import ResourceClaim
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

DISK_S = 10.0
DRIVERS_SHARE = 4
"""One driver may take this part of the state file, 1/4."""
RECONCILE_S = 60.0
"""Period in which claims of pods that are gone are unprepared, as in the kubelet."""
RETRY = Backoff(1.0, cap_s=RECONCILE_S)
"""Of pods that are gone. pod_workers repeats its own requests."""


class DraManager:
    """All methods run in the actor's mailbox thread unless their docstring differs."""

    def __init__(
        self,
        actor: Actor,
        file: StateFile[Iterable[Claim]],
        claims: Iterable[Claim],
        changed: Callable[[], None],
        health_changed: Callable[[], None],
        pods: Callable[[], Collection[str] | None],
    ) -> None:
        """`claims`: the content of `file`. `changed` is called when drivers come or go, `health_changed`
        when a driver has reported the health of devices.

        `pods`: UIDs of the pods that may have processes; None while not all of them are known.
        """
        self._actor, self._file, self.claims, self._pods = actor, file, Claims(claims), pods
        self.plugins = Plugins(self._plugin_added, changed)
        self.health = Health()
        self.health_file = HealthFile(actor, self.health)
        self._health_changed = health_changed
        self._one_report = threading.Lock()
        """Held while a report of a plugin waits in the mailbox."""
        self._slices = SliceCleaner(actor, self.plugins.drivers, self.plugins.usable)
        self._pod_locks: KeyedLocks[str] = KeyedLocks()
        """A pod's claims are not unprepared before a preparation under way has ended."""
        self._locks: KeyedLocks[Key] = KeyedLocks()
        self._writes = 0
        self._preparing: Counter[str] = Counter()
        """Number of requests under way by pod UID."""
        self._failures: dict[str, int] = {}
        """By UID of a pod that is gone: failed tries to unprepare its claims."""
        self._cleaning = False

    def start(self) -> None:
        """Unprepare what is left of pods that are gone, and delete slices of drivers that are away, periodically."""
        self._slices.start()
        self._actor.every(Until(RECONCILE_S), self._clean, "claims of pods that are gone")

    def describe(self) -> dict[str, Any]:
        """Drivers and claims, for a console."""
        return {
            "drivers": self.plugins.drivers(),
            "slices_to_delete_in_s": self._slices.describe(),
            "claims": {
                "/".join(one.key): {
                    "uid": one.uid,
                    "prepared": one.prepared,
                    "pods": sorted(one.pod_uids),
                    "devices": {driver: len(devices) for driver, devices in one.devices.items()},
                }
                for one in self.claims
            },
            "pods_gone": sorted(self._gone()),
        }

    def measure(self) -> None:
        """Set the gauge of claims in use."""
        counts = {"<any>": len(self.claims), **self.claims.by_driver()}
        metrics.DRA_CLAIMS.replace(((driver,), count) for driver, count in counts.items())

    def _plugin_added(self, plugin: Plugin) -> None:
        self._slices.registers(plugin.driver)
        self._watch_health(plugin)

    # Health

    def _watch_health(self, plugin: Plugin) -> None:
        self.health.clear(plugin.driver, plugin.endpoint)  # of a former plugin there, whose stream may end later
        if not self._actor.settings.resource_health_status:
            return
        post = self._actor.post
        plugin.health = HealthStream(
            plugin.driver,
            plugin.client,
            lambda devices, taken: post(self._health_reported, plugin, devices, taken, name="device_health"),
            lambda: post(self._health_ended, plugin, name="device_health_ended"),
            self._one_report,
        )
        plugin.health.start()

    def _health_reported(self, plugin: Plugin, devices: Any, taken: Callable[[float], None]) -> None:
        began = time.thread_time()
        try:
            self._take_health(plugin, devices)
        finally:
            taken(rest_s(time.thread_time() - began, self.plugins.count(), PAUSE_S))

    def _take_health(self, plugin: Plugin, devices: Any) -> None:
        if self.plugins.has(plugin):
            fits = self.health.update(plugin.driver, plugin.endpoint, devices, time.monotonic())
            if not fits and not plugin.reports_too_many:
                plugin.reports_too_many = True
                what = "DRA driver %s at %s reports the health of more than %d devices; the others are ignored"
                log.warning(what, plugin.driver, plugin.endpoint, MOST_DEVICES)
            self.health_file.save_soon()
            self._health_changed()

    def _health_ended(self, plugin: Plugin) -> None:
        if self.plugins.at(plugin.driver, plugin.endpoint) in (plugin, None):
            self.health.forget(plugin.driver, plugin.endpoint)
            self.health_file.save_soon()
            self._health_changed()

    # Preparation

    async def prepare(self, pod: Pod) -> None:
        """Have the drivers prepare the pod's claims that are not prepared yet. Raises ClaimError.

        If one claim cannot be used, nothing is changed, so that the pod can end without its driver.
        """
        uid = pod.metadata.uid
        self._preparing[uid] += 1
        try:
            with _measured("PrepareResources"):
                async with self._pod_locks.lock(uid):
                    wanted = policy.claims_of(pod)
                    async with self._locks.all_of(one.key for one in wanted):
                        await self._prepare(pod, wanted)
        finally:
            self._preparing -= Counter([uid])

    async def _prepare(self, pod: Pod, wanted: Collection[PodClaim]) -> None:
        documents = await self._read(wanted)
        drivers: dict[Key, frozenset[str]] = {}
        for one in wanted:
            drivers[one.key] = policy.drivers_of(pod, one, documents.get(one.key))
            for driver in sorted(drivers[one.key]):
                self.plugins.check(driver)

        def enter(claims: Claims) -> list[Claim]:
            uids = {key: documents[key].metadata.uid for key in drivers}
            return [policy.entered(claims, pod.metadata.uid, key, uids[key], found) for key, found in drivers.items()]

        trial = self.claims.copy()
        enter(trial)
        self._check_size(trial)
        entered = enter(self.claims)
        await self._save()
        due = [one for one in entered if not one.prepared]
        batches = _batches((one, drivers[one.key]) for one in due)
        calls = [self._prepare_batch(driver, claims) for driver, claims in batches.items()]
        try:
            await gather(*(self._actor.spawn(call, "prepare claims") for call in calls))
        finally:
            await self._save()  # also of a driver that has prepared its part
        for claim in due:
            claim.prepared = True

    async def _prepare_batch(self, driver: str, claims: Collection[Claim]) -> None:
        results = await self.plugins.call(driver, "NodePrepareResources", lambda plugin: plugin.prepare(claims))
        answers.check("NodePrepareResources", claims, results)
        found = {one.uid: answers.devices(driver, results[one.uid]) for one in claims}
        trial = self.claims.copy()
        for one in trial:
            if one.uid in found:
                one.devices[driver] = found[one.uid]
        self._check_share(trial, driver)
        self._check_size(trial)
        for one in claims:
            one.devices[driver] = found[one.uid]

    async def _read(self, wanted: Iterable[PodClaim]) -> dict[Key, ResourceClaim]:
        """The claims that exist. Raises ClaimError if they cannot be read."""
        refs = {ObjectRef(kind="ResourceClaim", namespace=one.key.namespace, name=one.key.name) for one in wanted}
        try:
            found = await fetch(objects_of(self._actor), refs, fresh=True)
        except ActorError as error:
            raise ClaimError(f"fetch ResourceClaims: {error}") from error
        return {Key(ref.namespace, ref.name): document_of(one, ResourceClaim) for ref, one in found.items()}

    # Ends

    async def unprepare(self, uid: str) -> None:
        """Have the drivers unprepare the claims that no other pod uses. Raises ClaimError; a repeat is harmless."""
        with _measured("UnprepareResources"):
            async with self._pod_locks.lock(uid), self._locks.all_of(one.key for one in self.claims.of_pod(uid)):
                await self._unprepare(uid)

    async def _unprepare(self, uid: str) -> None:
        mine = self.claims.of_pod(uid)
        last = [one for one in mine if one.pod_uids == {uid}]
        batches = _batches((one, one.devices) for one in last)
        for one in last:
            one.prepared = False  # a call that fails may have had its effect
        calls = [self._unprepare_batch(driver, claims) for driver, claims in batches.items()]
        await gather(*(self._actor.spawn(call, "unprepare claims") for call in calls))
        for one in mine:
            one.pod_uids.discard(uid)
        for one in last:
            if not one.pod_uids:
                self.claims.remove(one.key)
        if mine:
            await self._save()

    async def _unprepare_batch(self, driver: str, claims: Collection[Claim]) -> None:
        results = await self.plugins.call(driver, "NodeUnprepareResources", lambda plugin: plugin.unprepare(claims))
        answers.check("NodeUnprepareResources", claims, results)

    def clean_soon(self) -> None:
        """Pods have gone: unprepare what they still use."""
        if self._gone():
            self._actor.spawn(self._clean(), "claims of pods that are gone")

    def _gone(self) -> frozenset[str]:
        """UIDs of pods that use a claim and have no processes any more."""
        known = self._pods()
        if known is None:
            return frozenset()
        return self.claims.pods() - set(known) - self._preparing.keys()

    async def _clean(self) -> None:
        """Unprepare the claims of pods that are gone. One at a time: a driver that hangs has its deadline."""
        if self._cleaning:
            return
        self._cleaning = True
        try:
            for uid in sorted(self._gone()):
                await self._clean_pod(uid)
        finally:
            self._cleaning = False
        self._failures = {uid: self._failures.get(uid, 0) for uid in self._gone()}
        if self._failures:
            self._actor.after(RETRY.delay_s(min(self._failures.values())), self.clean_soon)

    async def _clean_pod(self, uid: str) -> None:
        try:
            await self.unprepare(uid)
        except ClaimError as error:
            self._failures[uid] = self._failures.get(uid, 0) + 1
            log.warning("cannot unprepare the claims of pod %s, which is gone: %s; trying again", uid, error)

    # Containers

    def knows(self, pod: Pod, container: Container) -> bool:
        """True if the drivers were asked for every claim of the container. Raises ClaimError."""
        found = (self.claims.get(use.key) for use in policy.uses_of(pod, container))
        return all(one is not None and pod.metadata.uid in one.pod_uids for one in found)

    def grant(self, pod: Pod, container: Container) -> Grant:
        """The CDI devices of a container. Raises ClaimError."""
        return Grant(cdi_devices=policy.cdi_names(pod, container, self.claims))

    # State file

    def _check_share(self, claims: Claims, driver: str) -> None:
        """Raise ClaimError if one driver would fill the file, so that no claim of another had room."""
        size, most = len(self._file.content(claims.of_driver(driver))), MOST_BYTES // DRIVERS_SHARE
        if size > most:
            raise ClaimError(f"claims of the DRA driver {driver} would take {size} bytes of state, more than {most}")

    def _check_size(self, claims: Claims) -> None:
        """Raise ClaimError if the file would get too large. A change is checked first, so that later ones are saved."""
        size = len(self._file.content(claims))
        if size > MOST_BYTES:
            raise ClaimError(f"{self._file.path} would have {size} bytes, more than {MOST_BYTES}")

    async def _save(self) -> None:
        """Raises ClaimError."""
        self._writes += 1
        content = self._file.content(self.claims)
        try:
            await self._actor.blocking(DISK_S, self._file.write, self._writes, content)
        except (OSError, ActorError) as error:
            raise ClaimError(f"checkpoint ResourceClaim state: {error}") from error


@contextmanager
def _measured(operation: str) -> Iterator[None]:
    """Observe how long the operation lasts, and if it fails."""
    began, done = time.monotonic(), False
    try:
        yield
        done = True
    finally:
        metrics.DRA_SECONDS.observe(time.monotonic() - began, str(not done).lower(), operation)


def _batches(claims: Iterable[tuple[Claim, Iterable[str]]]) -> dict[str, list[Claim]]:
    """The claims by driver."""
    found: dict[str, list[Claim]] = {}
    for claim, drivers in claims:
        for driver in sorted(drivers):
            found.setdefault(driver, []).append(claim)
    return found
