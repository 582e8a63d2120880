"""Registers the node: creates the Node, or adopts the existing one."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from actors._base import Actor
from actors._host.files.checkpoint import CheckpointFile
from actors._host.machine import architecture
from actors._host.system import agent_id
from actors._kube.client import MERGE, KubeClient
from actors._kube.errors import AlreadyExists, ApiError, NotFound
from actors._kube.shapes import Node
from actors.node import policy
from actors.node.node_resources import reset_patch
from actors.node.policy import Object
from proto.agent.settings import Settings

log = logging.getLogger(__name__)


DISK_S = 5.0
CLUSTER_PATH = "/api/v1/namespaces/default/services/kubernetes"
"""The service that an API server makes in each new etcd. Nodes may read services."""
CLUSTER_TRIES = 10


class Registration:
    """Knows if this run of the agent has registered its Node. It does so once, as the kubelet.

    A Node that is deleted afterwards stays away: its administrator meant it. But if the API server has lost all data,
    the node joins anew. A restarted actor goes on like the one before, so RUN_DIR has the fact, with the process of the
    supervisor. An upgrade keeps that process.
    """

    def __init__(self, actor: Actor) -> None:
        """Read the file; blocks."""
        self._agent = agent_id(actor.bus.supervisor_pidfd)
        path = f"{actor.settings.run_dir}/node-registered.json"
        loss = "after a restart of the actor a deleted Node would be registered again"
        self._file = CheckpointFile(actor, path, 1, loss, deadline_s=DISK_S)
        saved = self._file.load()
        agent, cluster = map(str, saved) if isinstance(saved, list) and len(saved) == 2 else ("", "")
        self._cluster = cluster
        self.done = self._agent != "" and agent == self._agent
        self._file.holds(self._content())
        self._tries = 0

    def complete(self) -> None:
        """The Node is registered; `save` follows."""
        self.done, self._cluster, self._tries = True, "", 0

    def forget(self) -> None:
        """Register once more: the machine has joined anew."""
        self.done = False

    async def learn_cluster(self, client: KubeClient) -> None:
        """Note the cluster's identity once, in a few tries."""
        if self.done and not self._cluster and self._tries < CLUSTER_TRIES:
            self._tries += 1
            self._cluster = await _cluster(client)

    async def is_of_other_data(self, client: KubeClient) -> bool:
        """Return True when the API server has not the data in which the Node was registered."""
        return self._cluster != "" and await _cluster(client) not in ("", self._cluster)

    async def save(self) -> None:
        """Write the file if there is something to write."""
        await self._file.save_changed(self._content())

    def _content(self) -> list[str]:
        return [self._agent if self.done else "", self._cluster]


async def _cluster(client: KubeClient) -> str:
    """UID of the service `kubernetes`; empty if it cannot be read."""
    try:
        return str((await client.get(CLUSTER_PATH))["metadata"].get("uid") or "")
    except ApiError as error:
        log.debug("cannot read the identity of the cluster: %s", error)
        return ""


class Registered(NamedTuple):
    """The Node as the server has it now; `created`: it did not exist."""

    node: Object
    created: bool


async def register(client: KubeClient, settings: Settings, status: Object, *, had_devices: bool) -> Registered:
    """Create the Node with `status`, or restore the default labels of the existing one. Raises ApiError.

    If the existing one was written by a machine that is replaced, its extended resources are set to 0: what that had
    is not here. `had_devices`: this machine had device plugins, which report theirs again. The kubelet asks for their
    checkpoint alone, and finds its own socket in that directory (kubernetes/kubernetes#126943).
    """
    path = f"/api/v1/nodes/{settings.node_name}"
    wanted = policy.labels(settings.node_name, architecture(), settings.node_labels)
    found, created = await _found_or_created(client, settings, wanted, status)
    if created:
        return Registered(found, created=True)
    log.info("the Node %s exists already", settings.node_name)
    patch = policy.registration_patch(found, wanted)
    if patch is not None:
        found = await client.patch(path, patch, MERGE, shape=Node)
    stored = found.get("status") or {}
    replaced = policy.is_replaced_machine(stored.get("nodeInfo") or {}, status["nodeInfo"])
    reset = reset_patch(stored) if replaced and not had_devices else None
    if reset is not None:
        log.info("the Node was another machine's: its extended resources are 0 until they are reported again")
        found = await client.patch(f"{path}/status", reset, shape=Node)
    return Registered(found, created=False)


async def _found_or_created(
    client: KubeClient, settings: Settings, wanted: dict[str, str], status: Object
) -> Registered:
    """The existing Node as it is, or a new one. Raises ApiError.

    As in the kubelet, an existing Node is adopted without the right to create Nodes. With the feature gate
    KubeletRegistrationGetOnExistsOnly the Node is read only after the server has answered that it exists.
    """
    path = f"/api/v1/nodes/{settings.node_name}"
    if not settings.create_node_first:
        with suppress(NotFound):
            return Registered(await client.get(path, shape=Node), created=False)
    node = policy.new_node(settings.node_name, wanted, _taints(settings), settings.provider_id, status)
    try:
        return Registered(await client.create("/api/v1/nodes", node, shape=Node), created=True)
    except AlreadyExists:
        return Registered(await client.get(path, shape=Node), created=False)


def _taints(settings: Settings) -> list[Object]:
    taints = [{"key": one.key, "value": one.value, "effect": one.effect} for one in settings.register_with_taints]
    return [*taints, policy.UNINITIALIZED] if settings.cloud_provider == "external" else taints


def is_fresh(lease: Object | None) -> bool:
    """True when the Lease was renewed within its duration, by this machine's clock."""
    spec = (lease or {}).get("spec") or {}
    try:
        renewed = datetime.fromisoformat(spec.get("renewTime") or "").timestamp()
    except ValueError:
        return False
    return abs(time.time() - renewed) < float(spec.get("leaseDurationSeconds") or 0)
