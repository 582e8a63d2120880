"""The volume actor: sets up the volumes of pods, keeps their content current, and removes them with the pod.

It is the kubelet's volume manager. MountPod and UnmountPod set the desired state, and the reconciler brings the actual
state to it. The actual state is read from disk and mount table at the start. So a kill loses nothing: pod_workers asks
again, and the steps are repeated. Only helper processes touch volumes (`helper/pool.py`), so a file system that hangs
holds up its own pod only.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from actors._base import Actor, handles
from actors._cgroup.quantities.allocatable import allocatable
from actors._events.recorder import Recorder
from actors._host import machine, selinux
from actors._host.machine import Machine, memory_capacity
from actors._host.node.downward import NodeFacts, default_limits
from actors._host.node.selector import node_labels
from actors._host.selinux import SELinux
from actors._objects.fetch import fetch
from actors._plugins import kinds
from actors.volume import policy, selinux_labels
from actors.volume.csi import staged
from actors.volume.drivers import in_use
from actors.volume.drivers.limits import Limits
from actors.volume.drivers.locks import VolumeLocks
from actors.volume.drivers.registry import Registry
from actors.volume.drivers.unstaging import Unstaging
from actors.volume.helper.pool import HelperGone, Pool
from actors.volume.metrics import Metrics
from actors.volume.plugins.base import CannotMount, Context
from actors.volume.policy import NEW
from actors.volume.reconcile import operation_counts, reconstruct
from actors.volume.reconcile.failure_reporter import FAILED_MOUNT, RemovalFailed, Unresponsive
from actors.volume.reconcile.mounter import Mounter
from actors.volume.reconcile.reconciler import Reconciler
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.codec import Outcome
from actors.volume.steps.volumes import HostPath, ReadFile, SubPath
from proto.common.until import Until
from proto.pods.objects import CsiDriver, ObjectRef, SetCsiDrivers
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import (
    LIMIT_EXCEEDED,
    BindSubPaths,
    CheckVolumes,
    GetVolumeUsages,
    MountPod,
    ObjectsChanged,
    PodEnding,
    PodMounted,
    ReadVolumeFile,
    SubPathsBound,
    UnmountPod,
    VolumeFile,
    VolumesInUseReported,
    VolumeUsages,
)
from proto.wire.errors import ActorError, AskTimeout, Refused
from proto.wire.message import Done

log = logging.getLogger(__name__)

FAILED_UNMOUNT = "FailedUnMount"
SUB_PATH_FAILED = "CreateContainerConfigError"
LOOK_S = 5.0
"""Deadline and retry interval of the search for mounted CSI volumes at the start."""
SYNC_JITTER = 0.5
SELINUX_S = 30.0
"""For reading small files and labelling two directories at the start. Without it no volume can be mounted right."""
SCAN_S = 1.0
"""Longest wait for the disk at the start; it takes milliseconds unless the machine is overloaded. Without the scan
every answer costs a helper's calls, and the pod of a ReadWriteOncePod volume is known only once it asks again."""


class VolumeManager(Actor):
    """State: the desired and actual volumes of each pod."""

    name = "volume"
    asks = frozenset({"objects"})

    async def rebuild(self) -> None:
        """Read the actual state from disk and mount table, and the quarantine of the last incarnation."""
        self.root = self.settings.root_dir
        self.pods: dict[str, PodVolumes] = {}
        self.pool = Pool(self, self.root)
        self.registry = Registry(self, self.pool, self._driver_registered, self._drivers_changed)
        locks = VolumeLocks()
        mounter = Mounter(self, self.pool, self.registry, locks)
        self.unstaging = Unstaging(self, self.pool, self.registry, locks, in_use.InUse(self))
        self.limits = Limits(self, self.pool, self.registry)
        context = self._context(await self._machine(), await self.blocking(SELINUX_S, _read_selinux, self.root))
        self.reconciler = Reconciler(self, self.pool, mounter, self.unstaging, self.limits, self.pods, context)
        self.selinux = context.selinux.enabled
        self.metrics = Metrics(self, self.pool, self.registry, self.pods, self.settings.volume_stats_agg_period_s)
        self.scanned = False
        try:
            found = await self.blocking(SCAN_S, reconstruct.find_volumes, self.root)
            devices, local = await self.blocking(SCAN_S, reconstruct.find_devices, self.root)
            persistent = await self.blocking(SCAN_S, reconstruct.find_persistent, self.root)
            if context.selinux.enabled:
                self.reconciler.labels.take_over(await self.blocking(SCAN_S, reconstruct.find_labels, self.root))
        except (AskTimeout, OSError) as error:
            log.warning("cannot list the volumes under %s: %s; checking each pod instead", self.root, error)
            found, devices, local, persistent = {}, set(), {}, {}
        else:
            self.scanned = True
        for uid, actual in found.items():
            self.pods[uid] = PodVolumes(actual=actual, on_disk=True)
        for uid in local.keys() | persistent.keys():
            pod = self.pods.setdefault(uid, PodVolumes(on_disk=True))
            pod.devices = local.get(uid, set())
            names = pod.devices | persistent.get(uid, set())
            pod.persistent = {f"{name} on disk": name for name in names}
        self.reconciler.reporter.take_over()
        self.left_devices = devices

    async def _machine(self) -> Machine:
        try:
            return await self.blocking(SCAN_S, machine.read_machine, self.root)
        except (AskTimeout, OSError) as error:
            log.warning("cannot read the disk size of %s: %s", self.root, error)
            return Machine(cpus=os.cpu_count() or 1, memory_bytes=memory_capacity())

    def _context(self, node: Machine, selinux_state: SELinux) -> Context:
        free = allocatable(node, self.settings)
        return Context(
            allocatable_bytes=free["memory"],
            node_name=self.settings.node_name,
            standalone=not self.settings.kubeconfig,
            trust_bundles=self.settings.cluster_trust_bundle_projection,
            pod_certificates=self.settings.pod_certificate_request,
            selinux=selinux_state,
            endpoint=self.registry.endpoint,
            labels=node_labels(self.settings.node_name, self.settings.node_labels),
            facts=NodeFacts(allocatable=default_limits(free)),
        )

    def on_ready(self) -> None:
        """Register drivers once pods can be told of them, and unmount disks that no pod has."""
        self.registry.start()
        self.metrics.start()
        self.spawn(self._unstage_left(), "unstage")
        self.reconciler.devices.release(*self.left_devices)
        if self.settings.kubeconfig:
            self.limits.start()
            self.spawn(self._take_over_in_use(), "volumes in use")
            self.spawn(self._read_node(), "node")
            self.every(Until(self.settings.sync_frequency_s, SYNC_JITTER), self._sync, "sync")

    async def _unstage_left(self) -> None:
        # Most nodes have nothing staged, and then no helper is started.
        try:
            left = any(await self.blocking(LOOK_S, staged.find, self.root))
        except (AskTimeout, OSError) as error:
            log.warning("cannot list the staged volumes under %s: %s", self.root, error)
            left = True
        if left:
            self.unstaging.look()

    def _sync(self) -> None:
        self.reconciler.renew_overdue()
        self._look_at_claims()

    def _look_at_claims(self) -> None:
        # A node may not watch claims. To see which have grown, they are read as often as the kubelet syncs a pod.
        for uid, pod in self.pods.items():
            if pod.pod is not None and pod.published.keys() & pod.persistent.keys():
                pod.changes += 1
                self.spawn(self.reconciler.reconcile(uid, pod), "look at claims")

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Send a new incarnation of objects or node all that it learns from this actor."""
        if name == "objects":
            self._drivers_changed()
        elif name == "node":
            self.reconciler.in_use.tell()

    def on_tells_lost(self, name: str, incarnation: int) -> None:
        """Tell pod_workers again of all volumes that are mounted; a new one asks for them."""
        if name == "pod_workers":
            for uid, pod in self.pods.items():
                if pod.is_mounted:
                    self.peer(name).tell(VolumesMounted(pod_uid=uid))
        else:
            self.on_peer_started(name, incarnation)

    async def _take_over_in_use(self) -> None:
        while True:
            try:
                found = await self.blocking(LOOK_S, in_use.find, self.root)
                listed = await self._listed_in_use() if found.unreadable or found.lost else ()
            except (ActorError, OSError) as error:
                log.warning("cannot list the CSI volumes under %s: %s; trying again", self.root, error)
                await self.sleep(LOOK_S)
            else:
                self.reconciler.in_use.take_over(found, listed)
                return

    async def _listed_in_use(self) -> tuple[str, ...]:
        """Volumes in use by the Node's status. Raises an ask's errors."""
        ref = ObjectRef(kind="Node", name=self.settings.node_name)
        node = (await fetch(self.peer("objects"), (ref,), fresh=True)).get(ref)
        status = node.document.get("status") or {} if node is not None else {}
        return tuple(status.get("volumesInUse") or ())

    @handles(VolumesInUseReported)
    def volumes_in_use_reported(self, message: VolumesInUseReported) -> None:
        """Node has reported these volumes as in use to the API server."""
        self.reconciler.in_use.reported(frozenset(message.volumes), message.number)

    async def _read_node(self) -> None:
        # A volume's node affinity is checked against the labels that the API server has.
        ref = ObjectRef(kind="Node", name=self.settings.node_name)
        try:
            found = (await fetch(self.peer("objects"), (ref,))).get(ref)
        except ActorError:
            return  # objects tells when it can be read
        if found is not None:
            self.reconciler.set_node_labels(found.document["metadata"].get("labels") or {})

    def _drivers_changed(self) -> None:
        found = self.registry.drivers().values()
        if not self.settings.kubeconfig:
            # There is no Node that gets the drivers' topology as labels.
            topology = {key: value for one in found for key, value in one.topology.items()}
            self.reconciler.set_node_labels(topology | node_labels(self.settings.node_name, self.settings.node_labels))
            return
        drivers = tuple(
            CsiDriver(name=one.name, node_id=one.node_id, max_volumes=one.max_volumes, topology=one.topology)
            for one in found
        )
        self.peer("objects").tell(SetCsiDrivers(drivers=drivers, complete=self.registry.is_complete))

    def _driver_registered(self, driver: str) -> None:
        self.reconciler.publisher.driver_registered(driver)
        self.unstaging.driver_registered(driver)

    def describe(self) -> dict[str, Any]:
        """Counts, hanging volumes with seconds, failed volumes with errors, helpers, drivers, volumes still staged."""
        volumes = [(f"{uid}/{name}", one) for uid, pod in self.pods.items() for name, one in pod.actual.items()]
        now = time.time()
        return {
            "pods": len(self.pods),
            "volumes": sum(one.mounted for _, one in volumes),
            "busy": [uid for uid, pod in self.pods.items() if pod.requests],
            "hung": {name: round(now - one.hung_since) for name, one in volumes if one.hung_since},
            "failed": {name: one.error for name, one in volumes if one.error}
            | {uid: pod.error for uid, pod in self.pods.items() if pod.error},
            "helpers": self.pool.describe(),
            "csi": self.registry.describe(),
            "unstaging": self.unstaging.describe(),
        }

    def measure(self) -> None:
        """Set the gauges of desired and actual volumes."""
        operation_counts.measure(self.pods)

    # The desired state

    @handles(MountPod)
    def mount_pod(self, request: MountPod) -> PodMounted | Coroutine[Any, None, PodMounted]:
        """Set the desired state; answers at once when no volume is missing. Refused FailedMount, LIMIT_EXCEEDED."""
        uid = request.pod.metadata.uid
        try:
            policy.check_component(uid)
            wanted = policy.wanted_volumes(request.pod)
        except CannotMount as error:
            message = f"Unable to attach or mount volumes: {error}"
            Recorder(self.peer("events")).pod(request.pod, "Warning", FAILED_MOUNT, message)
            raise Refused(FAILED_MOUNT, str(error), retry=False) from None
        if not wanted:
            return PodMounted(host_paths={})
        pod = self.pods.get(uid)
        if pod is None:
            pod = self.pods[uid] = self.reconciler.reporter.new_pod(uid, scanned=self.scanned)
        pod.desire(request.pod, wanted)
        return self._mounted(pod) if pod.is_settled else self._mount(uid, pod)

    async def _mount(self, uid: str, pod: PodVolumes) -> PodMounted:
        if not pod.is_mounted:
            self.reconciler.reporter.watch(pod)
        await self.reconciler.reconcile(uid, pod)
        await self.reconciler.publisher.wait_for_drivers(pod)
        if pod.pod is None:
            raise Refused(FAILED_MOUNT, "the pod's volumes are being removed")
        if not pod.is_mounted:
            pod.refused = True
            unmounted = [name for name in pod.wanted if not pod.actual.get(name, NEW).mounted]
            beyond = policy.beyond_limit(unmounted, pod.exhausted, time.monotonic())
            if beyond:
                raise Refused(LIMIT_EXCEEDED, beyond, retry=False)
            states = [pod.actual.get(name, NEW) for name in pod.wanted]
            retry = all(one.retry for one in states if not one.mounted or one.unresponsive)
            raise Refused(FAILED_MOUNT, policy.refusal(pod.wanted, pod.actual, time.time()), retry=retry)
        return self._mounted(pod)

    def _mounted(self, pod: PodVolumes) -> PodMounted:
        groups = tuple(sorted({group for name, group in pod.groups.items() if name in pod.wanted}))
        relabel = sorted(
            name
            for name, one in pod.wanted.items()
            if self.selinux and pod.actual[name].relabel and not selinux_labels.is_read_only(one.volume)
        )
        paths = {name: pod.actual[name].path for name in pod.wanted}
        return PodMounted(host_paths=paths, groups=groups, relabel=tuple(relabel))

    @handles(ObjectsChanged)
    def objects_changed(self, message: ObjectsChanged) -> None:
        """Update the volumes made of these objects at once, without their back-off."""
        changed = frozenset(message.refs)
        if any(ref.kind == "Node" for ref in changed):
            self.spawn(self._read_node(), "node")
        for uid, pod in self.pods.items():
            users = [n for n, one in pod.wanted.items() if one.refs] if message.full else pod.users_of(changed)
            if not users:
                continue
            for name in users:
                if name in pod.actual:
                    pod.actual[name] = replace(pod.actual[name], retry_at=0.0, failures=0)
            pod.republish_users_of(changed)
            pod.changes += 1
            self.spawn(self.reconciler.reconcile(uid, pod), "objects changed")

    @handles(PodEnding)
    def pod_ending(self, message: PodEnding) -> None:
        """Emit no more events for failed refreshes of the pod's volumes."""
        pod = self.pods.get(message.pod_uid)
        if pod is not None:
            pod.ending = True

    @handles(UnmountPod)
    def unmount_pod(self, request: UnmountPod) -> Done | Coroutine[Any, None, Done]:
        """Remove the pod's volumes; answers at once when it has nothing on disk. Refused FailedUnMount."""
        uid = request.pod_uid
        try:
            policy.check_component(uid)
        except CannotMount as error:
            raise Refused(FAILED_UNMOUNT, str(error), retry=False) from None
        pod = self.pods.get(uid)
        if self.scanned and (pod is None or (not pod.on_disk and not pod.requests)):
            self._forget(uid)
            return Done()
        return self._unmount(uid)

    async def _unmount(self, uid: str) -> Done:
        pod = self.pods.setdefault(uid, PodVolumes(on_disk=True))
        try:
            await self.reconciler.remover.take_down(uid, pod)
        except RemovalFailed as failure:
            if not pod.csi:  # another volume is left: no pod has to wait for it
                self.reconciler.labels.drop(uid)
            raise Refused(FAILED_UNMOUNT, str(failure)) from None
        if not pod.on_disk:
            self.reconciler.in_use.drop(uid)
            self.reconciler.labels.drop(uid)
        if pod.is_empty:
            self._forget(uid)
        return Done()

    def _forget(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self.reconciler.in_use.drop(uid)
        self.reconciler.labels.drop(uid)
        self.reconciler.waits.forget(uid)
        if pod is not None:
            pod.withdraw()

    @handles(ReadVolumeFile)
    async def read_volume_file(self, request: ReadVolumeFile) -> VolumeFile:
        """Read a file inside a volume. Refused CannotRead."""
        step = ReadFile(request.volume, request.volume_path, request.path, request.max_bytes)
        try:
            (outcome,) = await self._run(request.pod_uid, step)
        except (Unresponsive, HelperGone) as error:
            raise Refused("CannotRead", str(error)) from None
        if outcome.error:
            raise Refused("CannotRead", outcome.error)
        return VolumeFile(data=outcome.data)

    @handles(CheckVolumes)
    async def check_volumes(self, request: CheckVolumes) -> Done:
        """Check with one call each that the volumes answer. Refused FailedMount."""
        steps = [HostPath(name, path) for name, path in request.paths.items()]
        try:
            await self._run(request.pod_uid, *steps)
        except Unresponsive as silent:
            text = policy.unmounted_message(silent.names, (), str(silent))
            raise Refused(FAILED_MOUNT, f"Unable to attach or mount volumes: {text}") from None
        except HelperGone as gone:
            raise Refused(FAILED_MOUNT, str(gone)) from None
        return Done()

    async def _run(self, uid: str, *steps: HostPath | ReadFile) -> tuple[Outcome, ...]:
        """Run steps on the pod's volumes. Raises Unresponsive, HelperGone."""
        pod = self.pods.setdefault(uid, PodVolumes())
        try:
            return await self.reconciler.run(uid, pod, *steps)
        finally:
            if pod.is_empty and self.pods.get(uid) is pod:
                del self.pods[uid]  # no UnmountPod may come that would

    @handles(GetVolumeUsages)
    async def get_volume_usages(self, _: GetVolumeUsages) -> VolumeUsages:
        """Usage of all pods' volumes; figures that are too old are measured first."""
        return await self.metrics.usages()

    # Sub paths

    @handles(BindSubPaths)
    async def bind_sub_paths(self, request: BindSubPaths) -> SubPathsBound:
        """Bind all sub paths of a container in one batch. Refused CreateContainerConfigError.

        Details of a failure go to the log only: the pod's owner may not learn the node's paths.
        """
        pod = self.pods.setdefault(request.pod_uid, PodVolumes())
        pod.on_disk = True
        steps = [
            SubPath(request.pod_uid, one.volume, request.container, one.index, one.volume_path, one.sub_path)
            for one in request.sub_paths
        ]
        try:
            for name in {request.pod_uid, request.container, *(one.volume for one in request.sub_paths)}:
                policy.check_component(name)
            outcomes = await self.reconciler.run(request.pod_uid, pod, *steps)
        except (CannotMount, HelperGone, Unresponsive) as error:
            raise Refused(SUB_PATH_FAILED, str(error)) from None
        for step, outcome in zip(steps, outcomes, strict=True):
            if outcome.error:
                log.error(
                    "pod %s: cannot bind %r of volume %s: %s", step.uid, step.sub_path, step.volume, outcome.error
                )
                text = f'failed to prepare subPath for volumeMount "{step.volume}" of container "{step.container}"'
                raise Refused(SUB_PATH_FAILED, text)
        return SubPathsBound(host_paths=tuple(one.path for one in outcomes))


def _read_selinux(root: str) -> SELinux:
    """The machine's SELinux. With it the directories of plugins get their label, as at the kubelet's start."""
    found = selinux.read()
    if found.enabled:
        selinux.share_with_plugins(f"{root}/{kinds.DIRECTORY}", f"{root}/plugins")
    return found


ACTOR = VolumeManager
