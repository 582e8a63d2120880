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

from actors._base import Actor
from actors._base.tasks import Gate
from actors._cgroup.allocatable import allocatable, capacity
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors._events.recorder import Recorder
from actors._host.machine import architecture, look
from actors._host.node_ip import host_ips
from actors._kube.client import MERGE, KubeClient
from actors._kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from actors._kube.kubeconfig import KubeconfigError, load
from actors._kube.session import Session
from actors.node import machine, policy
from actors.node.policy import Object, Written
from proto.errors import ActorError
from proto.eviction import GetPressure
from supervisor.until import Until

log = logging.getLogger(__name__)

FAST_S = 0.2
"""Between two looks until the node has been Ready once: a new node is waited for."""
FAST_FOR_S = 60.0
REGISTER_FIRST_S, REGISTER_CAP_S = 0.1, 7.0
DISK_S = 5.0
PRESSURE_S = 2.0
LEASE_FRACTION = 0.25
LEASE_TRIES = 5
LEASE_JITTER = 0.04
STATUS_TRIES = 5
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Node(Actor):
    """State: the Node as the server has it, what was last written, and the Lease."""

    name = "node"
    asks = frozenset({"pleg", "eviction"})

    async def rebuild(self) -> None:
        """Nothing to bring back; the kubeconfig is read with the first call, and again until it can be used."""
        self._path = f"/api/v1/nodes/{self.settings.node_name}"
        self._cri = RelayedCri(self.peer("pleg"))
        self._events = Recorder(self.peer("events"))
        self._clients: tuple[KubeClient, KubeClient] | None = None
        self._connecting = Gate(1)
        self._uid = ""
        self._written: Written | None = None
        self._lease: Object | None = None
        self._pressures: tuple[str, ...] = ()
        self._said: list[Object] = []
        self._was_ready = False
        self._last_error = ""
        self._lease_error = ""
        self._renewed = 0.0

    def on_ready(self) -> None:
        """Register and report; renew from the start, as a Lease needs no Node."""
        self.spawn(self._report_always(), "status")
        if self.settings.node_lease_duration_s > 0:
            self.every(Until(self.settings.node_lease_duration_s * LEASE_FRACTION, LEASE_JITTER), self._renew, "lease")

    def describe(self) -> dict[str, Any]:
        """Whether the cluster knows this node, and how old its Lease and its status are."""
        now = time.monotonic()
        return {
            "registered": bool(self._uid),
            "conditions": {one["type"]: one["status"] for one in self._said},
            "status_age_s": round(now - self._written.at, 1) if self._written else None,
            "lease_age_s": round(now - self._renewed, 1) if self._renewed else None,
            "last_error": self._last_error,
            "lease_error": self._lease_error,
        }

    async def _connected(self) -> tuple[KubeClient, KubeClient]:
        """The ordinary client and the heartbeats'. Raises ApiError."""
        async with self._connecting:
            if self._clients is None:
                self._clients = await self._connect()
        return self._clients

    async def _connect(self) -> tuple[KubeClient, KubeClient]:
        settings = self.settings
        try:
            access = await self.blocking(DISK_S, load, settings.kubeconfig)
        except (KubeconfigError, ActorError) as error:
            raise Unreachable(str(error)) from error
        heartbeat_s = settings.node_status_update_frequency_s
        if settings.node_lease_duration_s > 0:
            heartbeat_s = min(heartbeat_s, settings.node_lease_duration_s)
        return (
            KubeClient(self, Session(access), qps=settings.kube_api_qps, burst=settings.kube_api_burst),
            KubeClient(self, Session(access), timeout_s=heartbeat_s),
        )

    # Registration and status

    async def _report_always(self) -> None:
        began = time.monotonic()
        while True:
            await self._report()
            fast = not self._was_ready and time.monotonic() - began < FAST_FOR_S and not self._last_error
            await self.sleep(FAST_S if fast else self.settings.node_status_update_frequency_s)

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
                    await self._rebuild_connections()
                else:
                    break
        except ApiError as error:
            self._say_error(error)
        else:
            if self._last_error:
                log.warning("the node status is written again")
            self._last_error = ""

    async def _rebuild_connections(self) -> None:
        for client in await self._connected():
            client.session.rebuild()

    def _say_error(self, error: ApiError) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            log.warning("cannot write the Node %s: %s; tried again", self.settings.node_name, text)
        self._last_error = text

    async def _register(self) -> None:
        """Create the Node, or take over the one there is. Tries until that is done."""
        delay_s = REGISTER_FIRST_S
        while not self._uid:
            try:
                self._take(await self._create_or_find())
            except ApiError as error:
                self._say_error(error)
                await self.sleep(delay_s)
                delay_s = min(REGISTER_CAP_S, delay_s * 2)
        self._last_error = ""

    async def _create_or_find(self) -> Object:
        ordinary, _ = await self._connected()
        settings = self.settings
        wanted = policy.labels(settings.node_name, architecture(), settings.node_labels)
        try:
            found = await ordinary.get(self._path)
        except NotFound:
            taints = [
                {"key": one.key, "value": one.value, "effect": one.effect} for one in settings.register_with_taints
            ]
            if settings.cloud_provider == "external":
                taints.append(policy.UNINITIALIZED)
            status, _ = await self._status({})
            node = policy.new_node(settings.node_name, wanted, taints, settings.provider_id, status)
            try:
                return await ordinary.create("/api/v1/nodes", node)
            except AlreadyExists:
                found = await ordinary.get(self._path)
        log.info("the Node %s was there already", settings.node_name)
        patch = policy.reconciled(found, wanted)
        return found if patch is None else await ordinary.patch(self._path, patch, MERGE)

    def _take(self, node: Object) -> None:
        self._uid = node["metadata"]["uid"]

    async def _write_status(self) -> None:
        _, heartbeat = await self._connected()
        try:
            node = await heartbeat.get(self._path, {"resourceVersion": "0"})
        except NotFound:
            node = await self._look_again(heartbeat)
        self._take(node)
        stored = node.get("status") or {}
        wanted, events = await self._status(stored)
        if policy.due(wanted, stored, self._written, self.settings.node_status_report_frequency_s, time.monotonic()):
            patch = policy.patch_of(wanted, stored)
            after = await heartbeat.patch(f"{self._path}/status", patch)
            self._written = Written(wanted, after.get("status") or {}, time.monotonic())
        self._said = wanted["conditions"]
        for reason in events:
            self._events.node("Normal", reason, f"Node {self.settings.node_name} status is now: {reason}")
        if not self._was_ready and self._said[-1]["status"] == "True":
            self._was_ready = True
            log.info("the node is Ready")

    async def _look_again(self, heartbeat: KubeClient) -> Object:
        """A server's cache may not have the Node yet. One that was deleted is registered anew."""
        try:
            return await heartbeat.get(self._path)
        except NotFound:
            self._uid, self._written = "", None
            if self.settings.register_node:
                await self._register()
            return await heartbeat.get(self._path)

    async def _status(self, stored: Object) -> tuple[Object, list[str]]:
        """The status as it should be, and the events of what changed since it was last said."""
        settings = self.settings
        found = await self.blocking(DISK_S, look, settings.root_dir)
        runtime_version, problems, extra = await self._runtime()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before = stored.get("conditions") or ()
        conditions = policy.conditions(await self._pressure(), problems, before, now)
        status: Object = {
            "addresses": [
                *({"type": "InternalIP", "address": address} for address in host_ips(settings.node_ip)),
                {"type": "Hostname", "address": settings.node_name},
            ],
            "capacity": policy.quantities(capacity(found, settings)),
            "allocatable": policy.quantities(allocatable(found, settings)),
            "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": machine.node_info(runtime_version),
            **extra,
        }
        return status, policy.transitions(self._said, conditions)

    async def _pressure(self) -> tuple[str, ...]:
        try:
            self._pressures = (await self.peer("eviction").ask(GetPressure(), PRESSURE_S)).conditions
        except ActorError as error:
            log.debug("eviction does not say what the node is short of: %s; as before", error)
        return self._pressures

    async def _runtime(self) -> tuple[str, list[str], Object]:
        """The runtime's version, why it is not ready, and images and handlers."""
        try:
            version = await self._cri.version()
            status = await self._cri.status()
            listed = await self._cri.list_images()
        except CriError as error:
            log.debug("the runtime does not answer: %s", error)
            return self._known_version(), ["container runtime is down"], {}
        problems = policy.runtime_problems(
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in status.status.conditions
        )
        named = (((*image.repo_digests, *image.repo_tags), image.size) for image in listed)
        extra: Object = {"images": policy.images(named, self.settings.node_status_max_images)}
        handlers = [
            {
                "name": one.name,
                "features": {
                    "recursiveReadOnlyMounts": one.features.recursive_read_only_mounts,
                    "userNamespaces": one.features.user_namespaces,
                },
            }
            for one in status.runtime_handlers
        ]
        if handlers:
            extra["runtimeHandlers"] = handlers
        if status.HasField("features"):
            extra["features"] = {"supplementalGroupsPolicy": status.features.supplemental_groups_policy}
        return f"{version.runtime_name}://{version.runtime_version}", problems, extra

    def _known_version(self) -> str:
        known: str = self._written.sent["nodeInfo"]["containerRuntimeVersion"] if self._written else ""
        return known

    # The Lease

    async def _renew(self) -> None:
        """Write the Lease; up to five times at once, with new connections, before it waits for its next turn."""
        for attempt in range(LEASE_TRIES):
            try:
                await self._write_lease()
            except ApiError as error:
                self._lease = None  # read again what there is
                self._lease_error = f"{type(error).__name__}: {error}"
                if attempt > 0 and not isinstance(error, Conflict):
                    await self._try_rebuilding()
            else:
                if self._lease_error:
                    log.info("the Lease is renewed again")
                self._lease_error, self._renewed = "", time.monotonic()
                return
        log.warning("cannot renew the Lease of %s: %s; tried again", self.settings.node_name, self._lease_error)

    async def _try_rebuilding(self) -> None:
        if self._clients is not None:
            await self._rebuild_connections()

    async def _write_lease(self) -> None:
        _, heartbeat = await self._connected()
        path = f"{LEASES}/{self.settings.node_name}"
        existing = self._lease
        if existing is None:
            try:
                existing = await heartbeat.get(path)
            except NotFound:
                existing = None
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        seconds = round(self.settings.node_lease_duration_s)
        wanted = policy.lease(self.settings.node_name, self._uid, seconds, now, existing)
        if existing is None:
            self._lease = await heartbeat.create(LEASES, wanted)
        else:
            self._lease = await heartbeat.update(path, wanted)


ACTOR = Node
