"""The node actor: registers the Node, reports its status and renews its Lease. Runs only with a kubeconfig.

Status and Lease have a loop and a client each, as in the kubelet. The Lease's client has no throttle and a short
deadline, so that no other call delays a heartbeat. Nothing is kept on disk: after a kill the API server has the state.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from actors._base import Actor, Future, gather, handles
from actors._base.messaging.tasks import first_of
from actors._cgroup.quantities.allocatable import allocatable, capacity
from actors._cri.relay import RelayedCri
from actors._events.recorder import Recorder
from actors._host.machine import Machine, architecture, read_machine
from actors._host.node.addresses import host_ips
from actors._host.node.shutdown import NOT_READY
from actors._kube.client import connect
from actors._kube.errors import ApiError, NotFound
from actors.node import node_info, policy
from actors.node.lease import Lease
from actors.node.policy import Object, WrittenStatus
from actors.node.registration import is_fresh, register
from actors.node.runtime_status import NodeRuntime, RuntimeStatus
from proto.common import rfc3339
from proto.node.eviction import GetPressure
from proto.node.node import SetVolumesInUse
from proto.pods.volume import VolumesInUseReported
from proto.wire.errors import ActorError, AskTimeout

if TYPE_CHECKING:
    from actors.node.graceful_shutdown import Shutdown

log = logging.getLogger(__name__)

FAST_S = 0.2
"""Status interval until the node was Ready once, at most for FAST_FOR_S: users wait for a new node."""
FAST_FOR_S = 60.0
DISK_S = 5.0
PRESSURE_S = 2.0
STATUS_TRIES = 5


class Node(Actor):
    """State: the Node as the server has it, the last write, and the Lease."""

    name = "node"
    asks = frozenset({"pleg", "eviction", "pod_workers", "status"})

    async def rebuild(self) -> None:
        """Open no connection yet: the first call reads the kubeconfig, and each call again until it can be used."""
        settings = self.settings
        self._path = f"/api/v1/nodes/{settings.node_name}"
        self._runtime = NodeRuntime(RelayedCri(self.peer("pleg")), settings.node_status_max_images)
        self._events = Recorder(self.peer("events"))
        heartbeat_s = settings.node_status_update_frequency_s
        if settings.node_lease_duration_s > 0:
            heartbeat_s = min(heartbeat_s, settings.node_lease_duration_s)
        self._ordinary = connect(self, settings.kubeconfig, qps=settings.kube_api_qps, burst=settings.kube_api_burst)
        self._heartbeat = connect(self, settings.kubeconfig, timeout_s=heartbeat_s)
        self._lease = Lease(self, self._heartbeat, lambda: self._uid, self._rebuild_connections)
        self._shutdown: Shutdown | None = None
        if settings.shutdown_grace:
            from actors.node.graceful_shutdown import Shutdown  # noqa: PLC0415 - few nodes need a D-Bus client

            self._shutdown = Shutdown(self, self._events, lambda: self._due.set(None))
        self._uid = ""
        self._written: WrittenStatus | None = None
        self._machine: Machine | None = None
        self._pressures: tuple[str, ...] = ()
        self._conditions: list[Object] = []
        self._unschedulable: bool | None = None
        self._volumes_in_use: tuple[str, ...] | None = None
        self._volumes_reported: tuple[str, ...] | None = None
        self._was_ready = False
        self._failures = 0
        self._last_error = ""
        self._name_conflict = ""
        self._due: Future[None] = Future()

    def on_ready(self) -> None:
        """Start the loops. The Lease does not wait for the registration, as it needs no Node."""
        self.spawn(self._report_loop(), "status")
        if self._shutdown is not None:
            self._shutdown.start()
        if self.settings.node_lease_duration_s > 0:
            self.spawn(self._lease.renew_loop(), "lease")

    def describe(self) -> dict[str, Any]:
        """State for the console: registration, conditions, and the ages of status and Lease."""
        return {
            "registered": bool(self._uid),
            "conditions": {one["type"]: one["status"] for one in self._conditions},
            "status_age_s": round(time.monotonic() - self._written.at, 1) if self._written else None,
            "last_error": self._last_error,
            "name_held_by": self._name_conflict,
            **self._lease.describe(),
            **({"shutdown": self._shutdown.describe()} if self._shutdown is not None else {}),
        }

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """Tell a new pod_workers of a shutdown under way: by default it admits pods."""
        if name == "pod_workers" and self._shutdown is not None:
            self._shutdown.tell_pod_workers()

    @handles(SetVolumesInUse)
    def on_set_volumes_in_use(self, message: SetVolumesInUse) -> None:
        """WrittenStatus at once, as nothing is mounted before the Node says so."""
        self._volumes_in_use, self._volumes_reported = tuple(sorted(message.volumes)), None
        self._due.set(None)

    # Registration and status

    async def _report_loop(self) -> None:
        began = time.monotonic()
        while True:
            self._due = Future()
            await self._report()
            pause = self.sleep(self._pause_s(time.monotonic() - began))
            await first_of(pause, self._due)
            pause.cancel()

    def _pause_s(self, age_s: float) -> float:
        """Seconds until the next report: fewer for a new node, and after a failure."""
        usual_s = self.settings.node_status_update_frequency_s
        if self._failures:
            return min(usual_s, policy.RETRY.delay_s(self._failures))
        return FAST_S if not self._was_ready and age_s < FAST_FOR_S else usual_s

    async def _report(self) -> None:
        """Register if necessary and write the status if it is due. Errors are logged; the loop tries again."""
        try:
            if self.settings.register_node and not self._uid:
                await self._register()
            for attempt in range(STATUS_TRIES):
                try:
                    await self._write_status()
                except ApiError as error:
                    if attempt == STATUS_TRIES - 1:
                        raise
                    log.debug("cannot write the node status: %s", error)
                    self._rebuild_connections()
                else:
                    break
        except (ApiError, OSError, AskTimeout) as error:
            self._failures += 1
            self._log_error(error)
        else:
            if self._last_error:
                log.warning("can write the node status again")
            self._failures, self._last_error = 0, ""

    def _rebuild_connections(self) -> None:
        for client in (self._ordinary, self._heartbeat):
            client.session.rebuild()

    def _log_error(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            log.warning("cannot write the Node %s: %s; tried again", self.settings.node_name, text)
        self._last_error = text

    async def _register(self) -> None:
        """Create the Node or adopt the existing one. Tries until it succeeds."""
        failures = 0
        while not self._uid:
            try:
                node, created = await register(self._ordinary, self.settings, await self._status({}))
            except (ApiError, OSError, AskTimeout) as error:
                self._log_error(error)
                failures += 1
                await self.sleep(policy.REGISTER_RETRY.delay_s(failures))
                continue
            self._remember(node)
            if created:
                self._record_transitions([], (node.get("status") or {}).get("conditions") or [])
            elif is_fresh(self._lease.found):
                self._check_name_conflict(node)
        self._last_error = ""

    def _remember(self, node: Object) -> None:
        """Keep the Node's UID and whether it is cordoned."""
        self._uid = node["metadata"].get("uid") or ""
        unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
        if self._unschedulable is not None and unschedulable != self._unschedulable:
            self._record_status("NodeNotSchedulable" if unschedulable else "NodeSchedulable")
        self._unschedulable = unschedulable

    async def _write_status(self) -> None:
        node = await self._read()
        self._remember(node)
        settings, stored = self.settings, node.get("status") or {}
        self._check_reboot(node)
        await self._runtime.give_pod_cidr(",".join((node.get("spec") or {}).get("podCIDRs") or ()))
        wanted = await self._status(stored)
        external = settings.cloud_provider == "external"
        meta = policy.metadata_patch(node, architecture(), settings.node_ip, external)
        last = self._written
        if meta or policy.due(wanted, stored, last, settings.node_status_report_frequency_s, time.monotonic()):
            patch = policy.patch_of(wanted, stored) | meta
            after = await self._heartbeat.patch(f"{self._path}/status", patch)
            self._written = WrittenStatus(wanted, after.get("status") or {}, time.monotonic())
        self._confirm_volumes(wanted.get("volumesInUse"))
        self._record_transitions(self._conditions or stored.get("conditions") or [], wanted["conditions"])
        if not self._was_ready and wanted["conditions"][-1]["status"] == "True":
            self._was_ready = True
            log.info("the node is Ready")

    def _confirm_volumes(self, reported: tuple[str, ...] | None) -> None:
        """Tell volume which volumes the Node now lists as in use."""
        if reported is not None and reported != self._volumes_reported:
            self._volumes_reported = reported
            self.peer("volume").tell(VolumesInUseReported(volumes=reported))

    async def _read(self) -> Object:
        """Get the Node from the server's cache, then from etcd, as the cache may lag. A deleted one is registered."""
        try:
            return await self._heartbeat.get(self._path, {"resourceVersion": "0"})
        except NotFound:
            pass
        try:
            return await self._heartbeat.get(self._path)
        except NotFound:
            self._uid, self._written, self._conditions = "", None, []
            if self.settings.register_node:
                await self._register()
            return await self._heartbeat.get(self._path)

    def _check_reboot(self, node: Object) -> None:
        """Compare the Node's machine with this one: record a reboot, or look for a name conflict."""
        stored, own = (node.get("status") or {}).get("nodeInfo") or {}, node_info.node_info("")
        if self._written is not None:
            self._check_name_conflict(node)
        elif policy.rebooted(stored, own):
            text = f"Node {self.settings.node_name} has been rebooted, boot id: {own['bootID']}"
            self._events.node("Warning", "Rebooted", text)

    def _check_name_conflict(self, node: Object) -> None:
        """Report another machine that writes the Node of this name: two kubelets would undo each other's writes."""
        status = node.get("status") or {}
        info = status.get("nodeInfo") or {}
        conflict = ""
        if policy.is_other_machine(info, node_info.node_info("")):
            addresses = ", ".join(one["address"] for one in status.get("addresses") or ())
            conflict = f"machine {info['machineID']} (system UUID {info['systemUUID']}, addresses {addresses})"
        if conflict and conflict != self._name_conflict:
            text = (
                f"another {conflict} holds the node name {self.settings.node_name}: stop its kubelet, or give one of "
                "them another name with --hostname-override"
            )
            log.error("%s", text)
            self._events.node("Warning", "NodeNameConflict", text)
        self._name_conflict = conflict

    def _record_transitions(self, before: list[Object], after: list[Object]) -> None:
        for reason in policy.transitions(before, after):
            self._record_status(reason)
        self._conditions = after

    def _record_status(self, reason: str) -> None:
        self._events.node("Normal", reason, f"Node {self.settings.node_name} status is now: {reason}")

    # The status

    async def _status(self, stored: Object) -> Object:
        """Compute the status. Raises OSError, AskTimeout while no look at the machine has succeeded."""
        settings = self.settings
        found: Machine
        runtime: RuntimeStatus
        reads = (self._read_machine, "machine"), (self._runtime.read, "runtime"), (self._pressure, "pressure")
        found, runtime, pressures = await gather(*[self.spawn(read(), name) for read, name in reads])
        ending = self._shutdown is not None and self._shutdown.under_way
        problems = [*runtime.problems, *([NOT_READY] if ending else [])]
        now = rfc3339.now()
        status: Object = {
            "addresses": policy.addresses(
                settings.node_name, host_ips(settings.node_ip), bool(settings.node_ip),
                settings.cloud_provider == "external", stored.get("addresses") or (),
            ),
            "capacity": policy.quantities(capacity(found, settings)),
            "allocatable": policy.quantities(allocatable(found, settings)),
            "conditions": policy.conditions(
                pressures, problems, stored.get("conditions") or (), now
            ),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.server_port}},
            "declaredFeatures": node_info.declared_features(settings),
            "nodeInfo": node_info.node_info(runtime.version),
            **runtime.status,
        }  # fmt: skip
        if self._volumes_in_use is not None:
            status["volumesInUse"] = self._volumes_in_use
        return status

    async def _read_machine(self) -> Machine:
        try:
            self._machine = await self.blocking(DISK_S, read_machine, self.settings.root_dir)
        except (OSError, AskTimeout) as error:
            if self._machine is None:
                raise
            log.warning("cannot read the machine's capacity: %s; reporting the last one", error)
        return self._machine

    async def _pressure(self) -> tuple[str, ...]:
        try:
            self._pressures = (await self.peer("eviction").ask(GetPressure(), PRESSURE_S)).conditions
        except ActorError as error:
            log.debug("cannot get the node's pressures from eviction: %s; reporting the last ones", error)
        return self._pressures


ACTOR = Node
