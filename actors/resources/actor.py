"""The resources actor: assigns CPUs, memory and devices to containers (the kubelet's container manager).

For a pod that needs one of them, pod_workers asks at its admission (AdmitPod) and for each container (GetGrant). All
assignments are in state files before an answer, so a kill loses none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from actors._base import Actor, Semaphore, handles
from actors._cri.client import Cri
from actors._metrics import kubelet as metrics
from actors._plugins import kinds
from actors.resources import assembly, gauges, policy
from actors.resources.admissions import Admission, Admissions
from actors.resources.device_registration import DeviceRegistration
from actors.resources.dra.policy import ClaimError
from actors.resources.model.provider import AllocationError, NotYetError, Provider
from actors.resources.pod_resources.known_pods import KnownPods
from actors.resources.pod_resources.service import PodResources
from actors.resources.pod_resources.shares import Shares
from actors.resources.reconcile import Reconciler
from actors.resources.registration import Registration
from actors.resources.resource_health import HealthReporter
from actors.resources.topology import scope
from proto.common.until import Until
from proto.node.node import SetDevices
from proto.pods.pod_workers import ResourcesState
from proto.resources.resources import (
    AdmitPod,
    CheckDevicePlugins,
    ContainerGrant,
    ExclusiveCpus,
    GetGrant,
    HasExclusiveCpus,
    PrepareClaims,
    ReleasePod,
    SetListedPods,
    SetPods,
    UnprepareClaims,
)
from proto.v1 import Container, Pod
from proto.wire.errors import Refused
from proto.wire.message import Done

log = logging.getLogger(__name__)

START_S = 30.0
NOT_YET = "WaitingForResources"
"""Reason of a refusal after which the pod may be admitted later."""
WITHDRAWN = "the pod was released while it was admitted"
CLAIMS_FAILED = "FailedPrepareDynamicResources"
"""Reason of a refusal because of a claim or its drivers, for the time being."""


class Resources(Actor):
    """State: the pods of the node, and what the managers have read from their files."""

    name = "resources"
    asks = frozenset({"objects"})

    async def rebuild(self) -> None:
        """Read the machine and the state files. pod_workers sends the pods."""
        args = self.settings, self.blocking, self.bus.supervisor_pidfd
        managers = await self.blocking(START_S, assembly.make_managers, *args)
        self._devices = await self.blocking(START_S, assembly.make_device_manager, self, self._devices_changed)
        self._managers = replace(managers, others=(self._devices, *managers.others))
        self._pods: dict[str, Pod] = {}
        self._complete = False
        self._claims = await self.blocking(
            START_S, assembly.make_dra_manager, self, self._drivers_changed, self._health_changed, self._known_pods
        )
        self._device_registration = DeviceRegistration(self, self._devices)
        self._registration = Registration(
            self, {kinds.DEVICE: self._device_registration, kinds.DRA: self._claims.plugins}
        )
        self._health = HealthReporter(self, self._pods, self._devices, self._claims)
        self._listed = KnownPods()
        self._pod_resources = PodResources(
            self, self._listed, Shares(self._managers, self._devices, self._claims.claims, self._pods)
        )
        self._one_at_a_time = Semaphore(1)
        self._admissions = Admissions()
        self._refused_meanwhile = False
        """A pod was refused for what an admission under way may give back."""
        self._told: ResourcesState | None = None
        endpoint = self.settings.container_runtime_endpoint
        pins = self._managers.cpus is not None and bool(endpoint)
        self._reconciler = Reconciler(Cri(endpoint, after=self.after), self._wanted_cpus) if pins else None
        self._reconciling = self._reconcile_again = False

    def on_ready(self) -> None:
        """Serve device plugins and the pod resources API, and compare the CPUs of containers where some are alone."""
        self._devices.start()
        self.spawn(self._device_registration.start(), "device plugins")
        self._claims.start()
        self._health.start()
        self._registration.start()
        self.spawn(self._pod_resources.start(), "pod resources API")
        gauges.begin(self._managers)
        if self._reconciler is not None:
            self.every(Until(self.settings.cpu_manager_reconcile_period_s), self._reconcile, "reconcile")

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002
        """Tell a new pod_workers what is assigned here, and a new node the numbers of devices."""
        if name == "pod_workers":
            self._tell_state(again=True)
            self._tell_health()
        elif name == "node":
            self._tell_devices()

    def measure(self) -> None:
        """Set the gauges of CPUs and claims."""
        gauges.measure(self._managers)
        self._claims.measure()

    def describe(self) -> dict[str, Any]:
        """The state for `supervisor describe resources`."""
        return {
            "pods": len(self._pods),
            "pods_complete": self._complete,
            "admissions_under_way": self._admissions.pods(),
            "shared_cpus": self._managers.shared_cpus,
            "devices": self._devices.describe(),
            "claims": self._claims.describe(),
            "plugins": self._registration.describe(),
            "device_plugins_awaited": self._device_registration.describe(),
            "pod_resources_api": self._pod_resources.describe(),
            "cpu_updates": self._reconciler.updates if self._reconciler is not None else 0,
        }

    def _known_pods(self) -> Collection[str] | None:
        return self._pods.keys() if self._complete else None

    def _drivers_changed(self) -> None:
        """Let pod_workers try pods again that wait for a DRA driver, and unprepare what is left of others."""
        self._tell_state(again=True)
        self._claims.clean_soon()

    def _tell_health(self) -> None:
        """Tell all of it, if it is known."""
        if self._complete:
            self._health.tell(full=True)

    def _health_changed(self) -> None:
        self._health.tell()

    def _devices_changed(self) -> None:
        """Tell node the numbers of devices, and let pod_workers try pods again that wait for them."""
        self._tell_devices()
        self._tell_state(again=True)

    def _tell_devices(self) -> None:
        inventory = self._devices.inventory
        self.peer("node").tell(SetDevices(capacity=inventory.capacity(), allocatable=inventory.allocatable()))

    def _tell_state(self, *, again: bool) -> None:
        """Tell pod_workers what is assigned, if that changed. `again`: in any case; waiting pods are tried again."""
        self._health.tell()
        managers = self._managers
        devices = (*managers.device_resources, *self._devices.resources())
        state = ResourcesState(
            device_resources=devices, shared_cpus=managers.shared_cpus, has_claims=bool(self._claims.claims)
        )
        if again or state != self._told:
            if self._told is None or state.shared_cpus != self._told.shared_cpus:
                self.spawn(self._reconcile(), "reconcile")
            self._told = state
            self.peer("pod_workers").tell(state)

    # Admission

    @handles(AdmitPod)
    async def admit(self, request: AdmitPod) -> Done:
        """Assign resources to the pod's containers. Device plugins are asked while other pods are admitted."""
        admission = self._admissions.begin(request.pod.metadata.uid)
        try:
            await self._assign(request, admission)
        finally:
            self._admissions.end(admission)
            again = admission.chosen and self._refused_meanwhile
            self._refused_meanwhile = self._refused_meanwhile and not again
            self._tell_state(again=again)
        return Done()

    async def _assign(self, request: AdmitPod, admission: Admission) -> None:
        pod = request.pod
        try:
            await (self._try(pod, admission) if request.trial else self._take(pod, admission, running=request.running))
        except (NotYetError, AllocationError) as error:
            refusal = self._refusal(error, admission)
            if not refusal.retry:
                self._count_rejection(pod, error)
            if admission.withdrawn or not refusal.retry:
                self._managers.counted.forget(admission.pod_uid)
            self._undo(admission)
            raise refusal from error
        if admission.withdrawn:
            self._managers.counted.forget(admission.pod_uid)
            raise Refused(NOT_YET, WITHDRAWN)
        if not request.trial:
            self._pods[admission.pod_uid] = pod
        scope.count_aligned(pod, self._managers.topology, self._managers.counted)

    async def _take(self, pod: Pod, admission: Admission, *, running: bool) -> None:
        providers = self._managers.pinning if running else self._managers.providers
        async with self._one_at_a_time:  # hints hold only until the next assignment
            keeps = running and all(manager.holds(pod) for manager in self._managers.pinning)
            try:
                if not admission.withdrawn:
                    await self._align(pod, providers, admission)
            except AllocationError:
                # The hints of what a pod holds can be worse than those it was given by: CPUs of a socket have several
                # NUMA nodes, its memory one. The kubelet fails the pod then. Here it keeps what it has.
                if not keeps:
                    raise
        admission.chosen = True
        if not admission.withdrawn and not running:
            await self._devices.finish(pod)

    async def _try(self, pod: Pod, admission: Admission) -> None:
        """Assign and free again, before the next pod has its turn."""
        async with self._one_at_a_time:
            try:
                if not admission.withdrawn:
                    await self._align(pod, self._managers.providers, admission)
            finally:
                self._free(admission.pod_uid)

    def _refusal(self, error: NotYetError | AllocationError, admission: Admission) -> Refused:
        if admission.withdrawn:  # the pod's resources went away under it: the error says nothing about the pod
            return Refused(NOT_YET, WITHDRAWN)
        if isinstance(error, NotYetError):
            return Refused(NOT_YET, str(error))
        if not self._complete:  # what pods hold that are gone is not free yet
            return Refused(NOT_YET, f"{error.message}; not all pods of the node are known yet")
        if not admission.chosen and self._admissions.any_chosen():  # their plugins may fail, which frees what they took
            self._refused_meanwhile = True
            return Refused(NOT_YET, f"{error.message}; other pods are being admitted")
        return Refused(error.reason, error.message, retry=False)

    def _count_rejection(self, pod: Pod, error: NotYetError | AllocationError) -> None:
        """Count the pod with the managers that failed. As in the kubelet, the topology policy none has no failures."""
        if self._managers.topology.policy != "none":
            metrics.TOPOLOGY_ADMISSION_ERRORS.inc()
        if isinstance(error, AllocationError):
            scope.count_aligned(pod, self._managers.topology, self._managers.counted, error)
            for counter, labels in error.counts:
                counter.inc(*labels)

    async def _align(self, pod: Pod, providers: Sequence[Provider], admission: Admission) -> None:
        began = time.monotonic()
        counts = self._managers.counted.count(metrics.TOPOLOGY_ADMISSIONS, admission.pod_uid)
        try:
            await scope.admit(pod, providers, self._managers.topology)
        finally:
            if counts:
                metrics.TOPOLOGY_ADMISSION_MS.observe(1000 * (time.monotonic() - began))
            if admission.withdrawn and admission.pod_uid not in self._pods:
                self._free(admission.pod_uid)  # what it took after it was withdrawn, before the pod's next one begins

    def _undo(self, admission: Admission) -> None:
        """Free what a failed admission has assigned, unless the pod runs already. Others of this pod fail, too.

        A withdrawn one holds nothing any more: what the pod holds now belongs to its next admission.
        """
        uid = admission.pod_uid
        if not admission.withdrawn and uid not in self._pods:
            self._admissions.withdraw(uid)
            self._free(uid)

    def _free(self, uid: str) -> None:
        for provider in self._managers.providers:
            provider.release(uid)

    @handles(ReleasePod)
    def release(self, message: ReleasePod) -> None:
        """Free the pod's resources, and refuse its admissions under way when they end."""
        self._admissions.withdraw(message.pod_uid)
        self._managers.counted.forget(message.pod_uid)
        self._pods.pop(message.pod_uid, None)
        self._free(message.pod_uid)
        self._claims.clean_soon()
        self._tell_state(again=False)

    @handles(SetPods)
    def set_pods(self, message: SetPods) -> None:
        """Note the pods; with `full` free the resources of all others, and try pods again that wait for them.

        A full message lists all pods that its sender has asked for. It withdraws other admissions: their asker has
        ended, or their release was lost.
        """
        if message.full:
            self._pods.clear()
        self._pods.update((pod.metadata.uid, pod) for pod in message.pods)
        if message.full:
            self._complete = True
            self._admissions.withdraw_others(self._pods.keys())
            self._managers.counted.retain(self._pods.keys())
            for provider in self._managers.providers:
                provider.retain(self._pods.keys())
            self._claims.clean_soon()
            self._tell_health()
        self._tell_state(again=message.full)

    @handles(SetListedPods)
    def set_listed_pods(self, message: SetListedPods) -> None:
        """Note the pods that the pod resources API names."""
        self._listed.apply(message)

    @handles(CheckDevicePlugins)
    def check_device_plugins(self, _: CheckDevicePlugins) -> Done:
        """Answer if device plugins can register now."""
        if not self._device_registration.serves:
            raise Refused(
                "NotServing", "device plugin registration gRPC server failed and no device plugins can register"
            )
        return Done()

    # CPUs of running containers

    async def _reconcile(self) -> None:
        """Compare the CPUs of all containers, and once more if they changed meanwhile."""
        if self._reconciling or self._reconciler is None:
            self._reconcile_again = True
            return
        self._reconciling = self._reconcile_again = True
        try:
            while self._reconcile_again:
                self._reconcile_again = False
                await self._reconciler.run()
        finally:
            self._reconciling = False

    def _wanted_cpus(self, uid: str, name: str) -> str | None:
        pod = self._pods.get(uid)
        if pod is None or self._managers.cpus is None:
            return None
        container = policy.find_container(pod, name) or Container(name=name)  # that of an orphan, whose spec is lost
        return self._managers.cpus.grant(pod, container).cpus

    # Claims

    @handles(PrepareClaims)
    async def prepare_claims(self, request: PrepareClaims) -> Done:
        """Answer once the drivers have prepared the pod's claims."""
        try:
            await self._claims.prepare(request.pod)
        except ClaimError as error:
            raise Refused(CLAIMS_FAILED, f"prepare dynamic resources: {error}") from error
        self._tell_state(again=False)
        return Done()

    @handles(UnprepareClaims)
    async def unprepare_claims(self, request: UnprepareClaims) -> Done:
        """Answer once the drivers have unprepared the pod's claims."""
        try:
            await self._claims.unprepare(request.pod_uid)
        except ClaimError as error:
            raise Refused(CLAIMS_FAILED, f"unprepare dynamic resources: {error}") from error
        self._tell_state(again=False)
        return Done()

    # Grants

    @handles(GetGrant)
    async def get_grant(self, request: GetGrant) -> ContainerGrant:
        """Answer with what a container gets, once plugins have prepared its start."""
        container = policy.find_container(request.pod, request.container)
        if container is None:
            raise Refused("NotFound", f"the pod has no container {request.container}", retry=False)
        try:
            await self._devices.prepare(request.pod, container)
            if not self._claims.knows(request.pod, container):  # the state file was lost
                await self._claims.prepare(request.pod)
                self._tell_state(again=False)
            devices = self._claims.grant(request.pod, container)
        except (NotYetError, ClaimError) as error:
            raise Refused(NOT_YET, str(error)) from error
        except AllocationError as error:
            raise Refused(error.reason, error.message) from error
        parts = (provider.grant(request.pod, container) for provider in self._managers.providers)
        return ContainerGrant(grant=policy.merged((*parts, devices)))

    @handles(HasExclusiveCpus)
    def has_exclusive_cpus(self, request: HasExclusiveCpus) -> ExclusiveCpus:
        """Answer if any container of the pod has exclusive CPUs."""
        containers = policy.containers_of(request.pod)
        grants = (provider.grant(request.pod, one) for one in containers for provider in self._managers.providers)
        return ExclusiveCpus(exclusive=any(grant.exclusive_cpus for grant in grants))


ACTOR = Resources
