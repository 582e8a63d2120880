"""Registers the Node, writes its status and starts its Lease, at the API server.

Status and Lease have a loop each and share the heartbeat client, as in the kubelet. It has no throttle and a short
deadline, and a thread for each loop. Registration uses the ordinary client. After a kill the API server has the state.
A checkpoint says what was written last, so that a restart writes no status in which nothing has changed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from actors._base import Actor, Future
from actors._base.messaging.tasks import first_of
from actors._base.messaging.waits import Standing, Subject, on_behalf_of
from actors._events.recorder import Recorder
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._host.machine import architecture
from actors._host.node.addresses import configured_ips, primary_ips
from actors._host.system import agent_id
from actors._kube.client import connect_node
from actors._kube.errors import ApiError, NotFound
from actors._kube.shapes import Node
from actors.node import node_info, policy
from actors.node.lease import Lease
from actors.node.node_status import NodeStatus
from actors.node.policy import Object, SavedWrite, WrittenStatus
from actors.node.registration import Registration, is_fresh, register
from actors.node.runtime_status import NodeRuntime
from actors.node.startup import NodeStartup
from proto.node.certificates import NodeAddress, SetNodeAddresses
from proto.node.node import SetDevices
from proto.pods.pod_workers import SetHostIPs
from proto.pods.volume import VolumesInUseReported
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

FAST_S = 0.2
"""Status interval until the node was Ready once, at most for FAST_FOR_S: users wait for a new node."""
FAST_FOR_S = 60.0
STATUS_TRIES = 5
DISK_S = 5.0
NODE = Subject("node")


class NodeReport:
    """State: the Node as the server has it, the last write, and the Lease."""

    def __init__(self, actor: Actor, runtime: NodeRuntime, events: Recorder, status: NodeStatus) -> None:
        """Open no connection yet: the first call reads the kubeconfig, and each call again until it can be used."""
        self._actor, self._runtime, self._events, self._status = actor, runtime, events, status
        self._settings = settings = actor.settings
        self._path = f"/api/v1/nodes/{settings.node_name}"
        heartbeat_s = settings.node_status_update_frequency_s
        if settings.node_lease_duration_s > 0:
            heartbeat_s = min(heartbeat_s, settings.node_lease_duration_s)
        self._ordinary = connect_node(actor, settings, qps=settings.kube_api_qps, burst=settings.kube_api_burst)
        self._heartbeat = connect_node(actor, settings, timeout_s=heartbeat_s)
        self._registration = Registration(actor)
        self._lease = Lease(
            actor, self._heartbeat, lambda: self._uid, self._rebuild_connections, may_create=self._may_have_lease
        )
        self._uid = ""
        self._written: WrittenStatus | None = None
        path = f"{paths.checkpoints_dir(settings.root_dir)}/node.json"
        loss = "a restart now would write the Node's status once more"
        self._file = CheckpointFile(actor, path, 1, loss, deadline_s=DISK_S)
        self._saved = self._load()
        self._agent = agent_id(actor.bus.supervisor_pidfd)
        self._conditions: list[Object] = []
        self._unschedulable: bool | None = None
        self._addresses: tuple[NodeAddress, ...] | None = None
        """The Node's addresses; None until it was read."""
        self._volumes_in_use: tuple[str, ...] | None = None
        self._volumes_number = 0
        """Number of that list."""
        self._volumes_reported: tuple[tuple[str, ...], int] | None = None
        self._was_ready = False
        self._failures = 0
        self._last_error = ""
        self._name_conflict = ""
        self._due: Future[None] = Future()
        self._startup = NodeStartup(actor.bus.supervisor_pidfd)
        self._waits = Standing()

    def _load(self) -> SavedWrite | None:
        try:
            return msgspec.convert(self._file.load(), SavedWrite | None)
        except msgspec.ValidationError as error:
            log.warning("cannot use %s: %s; writing the Node's status once more", self._file.path, error)
            return None

    def start(self) -> None:
        """Start the loops. The Lease does not wait for the registration, as it needs no Node."""
        self._actor.spawn(self._report_loop(), "status")
        if self._settings.node_lease_duration_s > 0:
            self._actor.spawn(self._lease.renew_loop(), "lease")

    def describe(self) -> dict[str, Any]:
        """State for the console: registration, conditions, and the ages of status and Lease."""
        return {
            "registered": bool(self._uid),
            "conditions": {one["type"]: one["status"] for one in self._conditions},
            "status_age_s": round(time.monotonic() - self._written.at, 1) if self._written else None,
            "no_address": self._status.no_address,
            "last_error": self._last_error,
            "name_held_by": self._name_conflict,
            **self._lease.describe(),
        }

    def report_now(self) -> None:
        """Write the status at once, as something in it has changed."""
        self._due.set(None)

    def tell_addresses(self, *peers: str) -> None:
        """Tell these peers the Node's addresses, if they are known."""
        if self._addresses is None:
            return
        if "pod_workers" in peers:
            ips = primary_ips((one.type, one.address) for one in self._addresses)
            self._actor.peer("pod_workers").tell(SetHostIPs(ips=ips))
        if "certificates" in peers:
            self._actor.peer("certificates").tell(SetNodeAddresses(addresses=self._addresses))

    def set_volumes_in_use(self, volumes: tuple[str, ...], number: int) -> None:
        """Write them at once, as nothing is mounted before the Node says so. `number`: see SetVolumesInUse."""
        self._volumes_in_use, self._volumes_number, self._volumes_reported = volumes, number, None
        self.report_now()

    def register_again(self) -> None:
        """Create the Node if it is not there."""
        self._registration.forget()
        self._actor.spawn(self._registration.save(), "save")
        self.report_now()

    def set_devices(self, devices: SetDevices) -> None:
        """The next status has them, as in the kubelet: a device whose health flaps does not cause a write each time."""
        self._status.devices = devices

    async def _report_loop(self) -> None:
        began = time.monotonic()
        while True:
            self._due = Future()
            await self._report()
            pause = self._actor.sleep(self._pause_s(time.monotonic() - began))
            await first_of(pause, self._due)
            pause.cancel()

    def _pause_s(self, age_s: float) -> float:
        """Seconds until the next report: fewer for a new node, and after a failure."""
        usual_s = self._settings.node_status_update_frequency_s
        if self._failures:
            return min(usual_s, policy.RETRY.delay_s(self._failures))
        return FAST_S if not self._was_ready and age_s < FAST_FOR_S else usual_s

    async def _report(self) -> None:
        """Register if necessary and write the status if it is due. Errors are logged; the loop tries again."""
        on_behalf_of(NODE)
        try:
            if self._settings.register_node and not self._registration.done:
                await self._register()
            await self._registration.learn_cluster(self._ordinary)
            await self._registration.save()
            for attempt in range(STATUS_TRIES):
                try:
                    await self._write_status()
                except ApiError as error:
                    if attempt == STATUS_TRIES - 1 or isinstance(error, NotFound):
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
            self._waits.drop("api")

    def _rebuild_connections(self) -> None:
        for client in (self._ordinary, self._heartbeat):
            client.session.close_connections()

    async def _may_have_lease(self) -> bool:
        """False once the Node was deleted: a Lease without an owner would stay for good.

        The Node is read, because the Lease may be missed before the status loop misses the Node.
        """
        if not self._registration.done:
            return True
        try:
            self._uid = (await self._heartbeat.get(self._path))["metadata"].get("uid") or ""
        except NotFound:
            return False
        return True

    def _log_error(self, error: Exception) -> None:
        said, outlook = str(error), "; trying again"
        if isinstance(error, NotFound) and self._registration.done:
            said += "; it was deleted after this agent had registered it; restart the agent to register it again"
            outlook = ""
        self._waits.put("api", NODE, "retry", "its Node cannot be written", error=said)
        text = f"{type(error).__name__}: {said}"
        if text != self._last_error:
            log.warning("cannot write the Node %s: %s%s", self._settings.node_name, text, outlook)
        self._last_error = text

    async def _register(self) -> None:
        """Create the Node or adopt the existing one. Tries until it succeeds."""
        failures = 0
        while not self._registration.done:
            try:
                self._startup.attempted()
                status = await self._status.compute({}, self._volumes_in_use)
                checkpoint = paths.device_checkpoint(self._settings.root_dir)
                had_devices = await self._actor.blocking(DISK_S, os.path.lexists, checkpoint)
                node, created = await register(self._ordinary, self._settings, status, had_devices=had_devices)
            except (ApiError, OSError, AskTimeout) as error:
                self._log_error(error)
                failures += 1
                await self._actor.sleep(policy.REGISTER_RETRY.delay_s(failures))
                continue
            self._remember(node)
            self._registration.complete()
            if created:
                self._startup.created()
                self._record_transition([], (node.get("status") or {}).get("conditions") or [])
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
        settings, stored = self._settings, node.get("status") or {}
        present, before = stored, stored.get("conditions") or []
        self._check_reboot(node)
        await self._runtime.give_pod_cidr(",".join((node.get("spec") or {}).get("podCIDRs") or ()) or settings.pod_cidr)
        number = self._volumes_number  # of the list that is written, although another one may come meanwhile
        wanted = await self._status.compute(stored, self._volumes_in_use)
        meta = policy.metadata_patch(node, architecture(), self._provided_ips())
        saved, self._saved = self._saved, None
        last = self._written or policy.restored(saved, wanted, stored, time.time(), time.monotonic(), self._agent)
        self._written = last
        if meta or policy.due(wanted, stored, last, settings.node_status_report_frequency_s, time.monotonic()):
            patch = policy.patch_of(wanted, stored) | meta
            after = await self._heartbeat.patch(f"{self._path}/status", patch, shape=Node)
            self._written = WrittenStatus(wanted, after.get("status") or {}, time.monotonic())
            self._actor.spawn(self._file.save(policy.saved(self._written, time.time(), self._agent)), "save")
            present = self._written.stored
            if policy.is_lost(before):  # the write ends it, which is an event also of a node that was Ready before
                self._conditions = before
        self._note_addresses(present.get("addresses") or ())
        self._confirm_volumes(wanted.get("volumesInUse"), number)
        self._record_transition(self._conditions or before, wanted["conditions"])
        if not self._was_ready and wanted["conditions"][-1]["status"] == "True":
            self._was_ready = True
            self._startup.ready()
            log.info("the node is Ready")

    def _note_addresses(self, stored: Iterable[Object]) -> None:
        """Tell what the Node has, also of an external cloud provider."""
        pairs = [(str(one.get("type") or ""), str(one.get("address") or "")) for one in stored]
        addresses = tuple(NodeAddress(type=kind, address=address) for kind, address in pairs)
        if addresses != self._addresses:
            self._addresses = addresses
            self.tell_addresses("pod_workers", "certificates")

    def _provided_ips(self) -> tuple[str, ...] | None:
        """Return the addresses of --node-ip for an external cloud provider; None when they are not this node's."""
        if self._settings.cloud_provider != "external":
            return ()
        return configured_ips(self._settings.node_ip) if not self._status.no_address else None

    def _confirm_volumes(self, reported: tuple[str, ...] | None, number: int) -> None:
        """Tell volume which volumes the Node now lists as in use."""
        if reported is not None and (reported, number) != self._volumes_reported:
            self._volumes_reported = (reported, number)
            self._actor.peer("volume").tell(VolumesInUseReported(volumes=reported, number=number))

    async def _read(self) -> Object:
        """Get the Node from the server's cache, then from etcd, as the cache may lag. Raises ApiError.

        A deleted one stays away, unless all data of the server were lost; see Registration.
        """
        try:
            return await self._heartbeat.get(self._path, {"resourceVersion": "0"}, shape=Node)
        except NotFound:
            pass
        try:
            return await self._heartbeat.get(self._path, shape=Node)
        except NotFound:
            self._uid, self._written, self._conditions = "", None, []
            if self._registration.done and await self._registration.is_of_other_data(self._ordinary):
                log.warning("the API server has lost the data that it had: registering the Node again")
                self.register_again()
            raise

    def _check_reboot(self, node: Object) -> None:
        """Compare the Node's machine with this one: record a reboot, or look for a name conflict."""
        stored, own = (node.get("status") or {}).get("nodeInfo") or {}, node_info.node_info("")
        if self._written is not None:
            self._check_name_conflict(node)
        elif policy.rebooted(stored, own):
            text = f"Node {self._settings.node_name} has been rebooted, boot id: {own['bootID']}"
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
                f"another {conflict} holds the node name {self._settings.node_name}: stop its kubelet, or give one of "
                "them another name with --hostname-override"
            )
            log.error("%s", text)
            self._events.node("Warning", "NodeNameConflict", text)
        self._name_conflict = conflict

    def _record_transition(self, before: list[Object], after: list[Object]) -> None:
        if reason := policy.ready_event(before, after):
            self._record_status(reason)
        self._conditions = after
        ready = next((one for one in after if one["type"] == "Ready"), None)
        if ready is not None and ready["status"] != "True":
            self._waits.put("ready", NODE, "condition", "to be Ready", error=str(ready.get("message") or ""))
        else:
            self._waits.drop("ready")

    def _record_status(self, reason: str) -> None:
        self._events.node("Normal", reason, f"Node {self._settings.node_name} status is now: {reason}")
