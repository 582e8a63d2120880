"""Volume plugins: what each source of a pod's volume needs set up. Pure; one module each.

A plugin turns a volume of a pod into a step for a helper, from the pod, the objects it names and facts of the node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from actors._host.node.downward import NodeFacts
from actors.volume.steps.codec import SetUp
from proto.pods.objects import ApiObject, GetToken, ObjectRef, Token
from proto.v1 import Pod, Volume
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim

MOUNT_OPTIONS_ANNOTATION = "volume.beta.kubernetes.io/mount-options"
GID_ANNOTATION = "pv.beta.kubernetes.io/gid"
"""The group that a volume's files belong to; containers that use the volume get it besides their own."""


SET_UP_FAILED = "MountVolume.SetUp failed"


class CannotMount(Exception):
    """A volume cannot be set up as things stand; the message is the kubelet's. `retry`: it may be possible later.

    `stage`: how far it came, in the kubelet's words; empty when it is not even known what the volume is. `volume`: its
    name where that is not the one in the pod.
    """

    def __init__(
        self,
        message: str,
        *,
        retry: bool = True,
        stage: str = SET_UP_FAILED,
        volume: str = "",
        soon: bool = False,
        exhausted: str = "",
    ) -> None:
        """`soon`: somebody else is at it, so that it is tried again in a moment, however often it failed. `exhausted`:
        the CSI driver of which the node has as many volumes as it takes, where the driver says so."""
        super().__init__(message)
        self.retry, self.stage, self.volume, self.soon, self.exhausted = retry, stage, volume, soon, exhausted


def _no_driver(_: str) -> str:
    return ""


@dataclass(frozen=True)
class Context:
    """What a plugin may look at besides the pod."""

    allocatable_bytes: int = 0
    """The node's memory for pods."""
    facts: NodeFacts = field(default_factory=NodeFacts)
    objects: Mapping[ObjectRef, ApiObject] = field(default_factory=dict)
    """Those of `Plugin.refs` and `Plugin.further_refs` that there are."""
    tokens: Mapping[GetToken, Token | str] = field(default_factory=dict)
    """Those of `Plugin.tokens`, or why there is none."""
    node_name: str = ""
    standalone: bool = True
    """There is no API server: objects come from a directory, and tokens from nowhere."""
    trust_bundles: bool = False
    """ClusterTrustBundles are projected: the feature gate is on."""
    endpoint: Callable[[str], str] = _no_driver
    """The socket of a CSI driver by its name; empty for one that is not registered."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The node's."""

    def with_objects(
        self, objects: Mapping[ObjectRef, ApiObject], tokens: Mapping[GetToken, Token | str] | None = None
    ) -> Context:
        """The same node, with these."""
        return replace(self, objects=objects, tokens=tokens or {})


class Plugin(ABC):
    """One source of volumes. A plugin that needs more than files and mounts has its own steps for it in steps.py."""

    source: ClassVar[str]
    """The attribute of `v1.Volume` that selects it."""
    directory: ClassVar[str] = ""
    """Its name below a pod's `volumes`; empty when its volumes are elsewhere."""
    refreshes: ClassVar[bool] = False
    """Whether what it sets up changes while the pod runs (the kubelet's RequiresRemount)."""

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:  # noqa: ARG002 - for those that have some
        """The objects the volume is made of."""
        return ()

    def further_refs(self, pod: Pod, volume: Volume, context: Context) -> tuple[ObjectRef, ...]:  # noqa: ARG002
        """The objects that those found so far name in turn; asked again until there is none that is new."""
        return ()

    def tokens(self, pod: Pod, volume: Volume, context: Context) -> tuple[GetToken, ...]:  # noqa: ARG002
        """The service account tokens it needs, once its objects are there."""
        return ()

    def claimed(self, pod: Pod, volume: Volume, context: Context) -> Claimed | None:  # noqa: ARG002
        """The persistent volume behind it; None for a volume that is the pod's own. Raises CannotMount."""
        return None

    @abstractmethod
    def step(self, pod: Pod, volume: Volume, context: Context) -> SetUp:
        """What sets the volume up. Raises CannotMount."""


@dataclass(frozen=True)
class Claimed:
    """A PersistentVolume and the claim that is bound to it, as one pod uses it (upstream's volume.Spec)."""

    volume: PersistentVolume
    claim: PersistentVolumeClaim
    sources: tuple[str, ...]
    """The JSON names of what the volume is served by: one, if it is valid."""
    read_only: bool = False
    """The pod asks for it."""

    @property
    def name(self) -> str:
        """The volume's; the name of its directory in the pod's, too."""
        return self.volume.metadata.name

    @property
    def is_block(self) -> bool:
        """A raw device, without a file system (volumeMode)."""
        return self.volume.spec.volume_mode == "Block"

    @property
    def exclusive(self) -> bool:
        """One pod only may have it. Of a volume with several access modes it is not known which one is meant."""
        return self.volume.spec.access_modes == ("ReadWriteOncePod",)

    @property
    def group(self) -> int | None:
        """The group its files belong to, where the volume says so."""
        text = self.volume.metadata.annotations.get(GID_ANNOTATION, "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Of the annotation that came before the field, and of the field."""
        before = self.volume.metadata.annotations.get(MOUNT_OPTIONS_ANNOTATION, "")
        return (*(option for option in before.split(",") if option), *self.volume.spec.mount_options)


class PersistentPlugin(ABC):
    """One source of PersistentVolumes."""

    source: ClassVar[str]
    """The attribute of `v1.PersistentVolumeSpec` that selects it."""
    takes_mount_options: ClassVar[bool] = True

    def refs(self, pod: Pod, claimed: Claimed, context: Context) -> tuple[ObjectRef, ...]:  # noqa: ARG002 - for those that have some
        """The objects the volume needs besides its claim."""
        return ()

    def tokens(self, pod: Pod, claimed: Claimed, context: Context) -> tuple[GetToken, ...]:  # noqa: ARG002
        """See Plugin."""
        return ()

    @abstractmethod
    def step(self, pod: Pod, claimed: Claimed, context: Context) -> SetUp:
        """What sets the volume up. Raises CannotMount."""

    def device(self, pod: Pod, claimed: Claimed, context: Context) -> SetUp:  # noqa: ARG002 - for those that have some
        """The same of a raw device. Raises CannotMount."""
        text = "BlockVolume mapper plugin is nil: this type of volume has no volumeMode Block"
        raise CannotMount(text, retry=False, stage="MapVolume.FindMapperPluginBySpec failed")


def fs_group(pod: Pod) -> int | None:
    """The group the pod's volumes belong to."""
    security = pod.spec.security_context
    return security.fs_group if security is not None else None


def fs_user(pod: Pod) -> int | None:
    """The user all of the pod's containers run as; None when it is not the same one, or not said."""
    users = set()
    for one in (*pod.spec.init_containers, *pod.spec.containers):
        own, common = one.security_context, pod.spec.security_context
        user = own.run_as_user if own is not None else None
        users.add(common.run_as_user if user is None and common is not None else user)
    return users.pop() if len(users) == 1 else None


def token_request(pod: Pod, audience: str, expiration_s: int | None) -> GetToken:
    """A token of the pod's service account; an empty audience is the API server's own."""
    return GetToken(
        namespace=pod.metadata.namespace,
        service_account=pod.spec.service_account_name or "default",
        pod_name=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        audiences=(audience,) if audience else (),
        expiration_s=expiration_s,
    )


def token_of(wish: GetToken, context: Context) -> Token:
    """Raises CannotMount with the kubelet's words when there is none."""
    if context.standalone:
        problem = "cannot use TokenManager when kubelet is in standalone mode"
        raise CannotMount(f"failed to fetch token: {problem}", retry=False)
    found = context.tokens.get(wish, "failed to fetch token: it was not asked for")
    if isinstance(found, str):
        raise CannotMount(found)
    return found
