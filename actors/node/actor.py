"""The node actor: registers the Node, keeps its status true and its Lease renewed. Runs only with a kubeconfig.

Two loops on two clients, as in the kubelet: the status on one, the Lease on one without throttle and with a short
deadline of its own, so that nothing else can keep a heartbeat waiting. Nothing is kept on disk: after a kill the API
server says what it has.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any

from actors._base import Actor, Future, gather, handles
from actors._base.messaging.tasks import first_of
from actors._cgroup.quantities.allocatable import allocatable, capacity
from actors._cri.relay import RelayedCri
from actors._events.recorder import Recorder
from actors._host.machine import Machine, architecture, look
from actors._host.node.addresses import host_ips
from actors._host.node.shutdown import NOT_READY
from actors._kube.client import connect
from actors._kube.errors import ApiError, NotFound
from actors.node import machine, policy
from actors.node.lease import Lease
from actors.node.policy import Object, Written
from actors.node.registration import is_fresh, register
from actors.node.runtime import Runtime, Said
from actors.node.shutdown import Shutdown
from proto.node.eviction import GetPressure
from proto.node.node import SetVolumesInUse
from proto.pods.volume import VolumesInUseReported
from proto.wire.errors import ActorError, AskTimeout

log = logging.getLogger(__name__)

FAST_S = 0.2
"""Between two looks until the node has been Ready once: a new node is waited for."""
FAST_FOR_S = 60.0
REGISTER_FIRST_S, REGISTER_CAP_S = 0.1, 7.0
DISK_S = 5.0
PRESSURE_S = 2.0
STATUS_TRIES = 5


class Node(Actor):
    """State: the Node as the server has it, what was last written, and the Lease."""

    name = "node"
    asks = frozenset({"pleg", "eviction", "pod_workers", "status"})

    async def rebuild(self) -> None:
        """Nothing to bring back; the kubeconfig is read with the first call, and again until it can be used."""
        settings = self.settings
        self._path = f"/api/v1/nodes/{settings.node_name}"
        self._runtime = Runtime(RelayedCri(self.peer("pleg")), settings.node_status_max_images)
        self._events = Recorder(self.peer("events"))
        heartbeat_s = settings.node_status_update_frequency_s
        if settings.node_lease_duration_s > 0:
            heartbeat_s = min(heartbeat_s, settings.node_lease_duration_s)
        self._ordinary = connect(self, settings.kubeconfig, qps=settings.kube_api_qps, burst=settings.kube_api_burst)
        self._heartbeat = connect(self, settings.kubeconfig, timeout_s=heartbeat_s)
        self._lease = Lease(self, self._heartbeat, lambda: self._uid, self._rebuild_connections)
        self._shutdown = Shutdown(self, self._events, lambda: self._due.set(None)) if settings.shutdown_grace else None
        self._uid = ""
        self._written: Written | None = None
        self._machine: Machine | None = None
        self._pressures: tuple[str, ...] = ()
        self._said: list[Object] = []
        self._unschedulable: bool | None = None
        self._volumes_in_use: tuple[str, ...] | None = None
        self._volumes_told: tuple[str, ...] | None = None
        self._was_ready = False
        self._failures = 0
        self._last_error = ""
        self._rival = ""
        self._due: Future[None] = Future()

    def on_ready(self) -> None:
        """Register and report; renew from the start, as a Lease needs no Node."""
        self.spawn(self._report_always(), "status")
        if self._shutdown is not None:
            self._shutdown.start()
        if self.settings.node_lease_duration_s > 0:
            self.spawn(self._lease.renew_always(), "lease")

    def describe(self) -> dict[str, Any]:
        """True when the cluster knows this node, and how old its Lease and its status are."""
        return {
            "registered": bool(self._uid),
            "conditions": {one["type"]: one["status"] for one in self._said},
            "status_age_s": round(time.monotonic() - self._written.at, 1) if self._written else None,
            "last_error": self._last_error,
            "name_held_by": self._rival,
            **self._lease.describe(),
            **({"shutdown": self._shutdown.describe()} if self._shutdown is not None else {}),
        }

    def on_peer_started(self, name: str, incarnation: int) -> None:  # noqa: ARG002 - the base's signature
        """A new pod_workers lets pods in, unless the machine is going down."""
        if name == "pod_workers" and self._shutdown is not None:
            self._shutdown.tell_pod_workers()

    @handles(SetVolumesInUse)
    def on_set_volumes_in_use(self, message: SetVolumesInUse) -> None:
        """Written at once, as nothing is mounted before the Node says so."""
        self._volumes_in_use, self._volumes_told = tuple(sorted(message.volumes)), None
        self._due.set(None)

    # Registration and status

    async def _report_always(self) -> None:
        began = time.monotonic()
        while True:
            self._due = Future()
            await self._report()
            pause = self.sleep(self._pause_s(time.monotonic() - began))
            await first_of(pause, self._due)
            pause.cancel()

    def _pause_s(self, age_s: float) -> float:
        """Until the next look: soon while a new node is waited for, and after a failure."""
        usual_s = self.settings.node_status_update_frequency_s
        if self._failures:
            return min(usual_s, policy.retry_delay(self._failures))
        return FAST_S if not self._was_ready and age_s < FAST_FOR_S else usual_s

    async def _report(self) -> None:
        """Register if that is still to be done; write the status if it is due. Errors are told, and tried again."""
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
            self._say_error(error)
        else:
            if self._last_error:
                log.warning("the node status is written again")
            self._failures, self._last_error = 0, ""

    def _rebuild_connections(self) -> None:
        for client in (self._ordinary, self._heartbeat):
            client.session.rebuild()

    def _say_error(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            log.warning("cannot write the Node %s: %s; tried again", self.settings.node_name, text)
        self._last_error = text

    async def _register(self) -> None:
        """Create the Node, or take over the one there is. Tries until that is done."""
        delay_s = REGISTER_FIRST_S
        while not self._uid:
            try:
                node, created = await register(self._ordinary, self.settings, await self._status({}))
            except (ApiError, OSError, AskTimeout) as error:
                self._say_error(error)
                await self.sleep(delay_s)
                delay_s = min(REGISTER_CAP_S, delay_s * 2)
                continue
            self._take(node)
            if created:
                self._record_transitions([], (node.get("status") or {}).get("conditions") or [])
            elif is_fresh(self._lease.found):
                self._look_for_rival(node)
        self._last_error = ""

    def _take(self, node: Object) -> None:
        """What is not of the status."""
        self._uid = node["metadata"].get("uid") or ""
        unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
        if self._unschedulable is not None and unschedulable != self._unschedulable:
            self._record_status("NodeNotSchedulable" if unschedulable else "NodeSchedulable")
        self._unschedulable = unschedulable

    async def _write_status(self) -> None:
        node = await self._read()
        self._take(node)
        settings, stored = self.settings, node.get("status") or {}
        self._compare(node)
        await self._runtime.give_pod_cidr(",".join((node.get("spec") or {}).get("podCIDRs") or ()))
        wanted = await self._status(stored)
        external = settings.cloud_provider == "external"
        meta = policy.metadata_patch(node, architecture(), settings.node_ip, external)
        last = self._written
        if meta or policy.due(wanted, stored, last, settings.node_status_report_frequency_s, time.monotonic()):
            patch = policy.patch_of(wanted, stored) | meta
            after = await self._heartbeat.patch(f"{self._path}/status", patch)
            self._written = Written(wanted, after.get("status") or {}, time.monotonic())
        self._tell_volume(wanted.get("volumesInUse"))
        self._record_transitions(self._said or stored.get("conditions") or [], wanted["conditions"])
        if not self._was_ready and wanted["conditions"][-1]["status"] == "True":
            self._was_ready = True
            log.info("the node is Ready")

    def _tell_volume(self, reported: tuple[str, ...] | None) -> None:
        """What the Node has of the volumes in use by now."""
        if reported is not None and reported != self._volumes_told:
            self._volumes_told = reported
            self.peer("volume").tell(VolumesInUseReported(volumes=reported))

    async def _read(self) -> Object:
        """The Node. A server's cache may not have it yet. One that was deleted is registered anew."""
        try:
            return await self._heartbeat.get(self._path, {"resourceVersion": "0"})
        except NotFound:
            pass
        try:
            return await self._heartbeat.get(self._path)
        except NotFound:
            self._uid, self._written, self._said = "", None, []
            if self.settings.register_node:
                await self._register()
            return await self._heartbeat.get(self._path)

    def _compare(self, node: Object) -> None:
        """What the Node says of the machine, against this one."""
        stored, own = (node.get("status") or {}).get("nodeInfo") or {}, machine.node_info("")
        if self._written is not None:
            self._look_for_rival(node)
        elif policy.rebooted(stored, own):
            text = f"Node {self.settings.node_name} has been rebooted, boot id: {own['bootID']}"
            self._events.node("Warning", "Rebooted", text)

    def _look_for_rival(self, node: Object) -> None:
        """Somebody else who writes the Node of this name: two kubelets undo each other's work."""
        status = node.get("status") or {}
        info = status.get("nodeInfo") or {}
        rival = ""
        if policy.another_machine(info, machine.node_info("")):
            addresses = ", ".join(one["address"] for one in status.get("addresses") or ())
            rival = f"machine {info['machineID']} (system UUID {info['systemUUID']}, addresses {addresses})"
        if rival and rival != self._rival:
            text = (
                f"another {rival} holds the node name {self.settings.node_name}: stop its kubelet, or give one of them "
                "another name with --hostname-override"
            )
            log.error("%s", text)
            self._events.node("Warning", "NodeNameConflict", text)
        self._rival = rival

    def _record_transitions(self, before: list[Object], after: list[Object]) -> None:
        for reason in policy.transitions(before, after):
            self._record_status(reason)
        self._said = after

    def _record_status(self, reason: str) -> None:
        self._events.node("Normal", reason, f"Node {self.settings.node_name} status is now: {reason}")

    # What the status says

    async def _status(self, stored: Object) -> Object:
        """The status as it should be. Raises OSError, AskTimeout, while it was never known what the machine has."""
        settings = self.settings
        found: Machine
        said: Said
        looks = (self._look_at_machine, "machine"), (self._runtime.look, "runtime"), (self._pressure, "pressure")
        found, said, pressures = await gather(*[self.spawn(look(), name) for look, name in looks])
        ending = self._shutdown is not None and self._shutdown.under_way
        problems = [*said.problems, *([NOT_READY] if ending else [])]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
            "declaredFeatures": machine.declared_features(settings),
            "nodeInfo": machine.node_info(said.version),
            **said.status,
        }  # fmt: skip
        if self._volumes_in_use is not None:
            status["volumesInUse"] = self._volumes_in_use
        return status

    async def _look_at_machine(self) -> Machine:
        try:
            self._machine = await self.blocking(DISK_S, look, self.settings.root_dir)
        except (OSError, AskTimeout) as error:
            if self._machine is None:
                raise
            log.warning("cannot look at the machine: %s; its capacity is reported as it was", error)
        return self._machine

    async def _pressure(self) -> tuple[str, ...]:
        try:
            self._pressures = (await self.peer("eviction").ask(GetPressure(), PRESSURE_S)).conditions
        except ActorError as error:
            log.debug("eviction does not say what the node is short of: %s; as before", error)
        return self._pressures


ACTOR = Node
