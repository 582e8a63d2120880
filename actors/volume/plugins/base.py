"""The interface of volume plugins, and helpers that they share. Pure.

A plugin makes the step that sets a pod's volume up, from the pod, the objects that it names, and facts of the node. A
helper process carries the step out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from actors._host.node.downward import NodeFacts
from actors._host.selinux import SELinux
from actors.volume.steps.codec import SetUp
from proto.pods.objects import ApiObject, GetPodCertificate, GetToken, ObjectRef, PodCertificate, Token
from proto.v1 import Pod, Volume
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim

CredentialRequest: TypeAlias = GetToken | GetPodCertificate
Credential: TypeAlias = Token | PodCertificate

MOUNT_OPTIONS_ANNOTATION = "volume.beta.kubernetes.io/mount-options"
GID_ANNOTATION = "pv.beta.kubernetes.io/gid"
"""The group of a volume's files; containers that use the volume get it as a supplemental group."""

MOST_ID = 2**31 - 1
"""Largest user or group of the API."""

SET_UP_FAILED = "MountVolume.SetUp failed"
ATTACH_FAILED = "MountVolume.WaitForAttach failed"
AFFINITY_FAILED = "MountVolume.NodeAffinity check failed"

_REMOVED = ("cephfs", "flocker", "glusterfs", "photonPersistentDisk", "quobyte", "rbd", "scaleIO", "storageos")
_REFUSED = {
    "flexVolume": "it runs no FlexVolume plugins",
    "iscsi": "it logs in to no iSCSI targets",
    "fc": "it attaches no Fibre Channel disks",
} | dict.fromkeys(_REMOVED, "Kubernetes has removed it")


def not_supported(what: str, source: str) -> str:
    """Reason to refuse a volume; `source`: the API's name of its type."""
    reason = f": {_REFUSED[source]}; use a CSI driver" if source in _REFUSED else ""
    return f"this agent does not support {what} of type `{source}`{reason}"


class CannotMount(Exception):
    """A volume cannot be set up now; the message is the kubelet's. `retry`: it may be possible later.

    `stage`: the failed operation, in the kubelet's words; empty when the volume's plugin is not known. `volume`: its
    name in the message, where that differs from the name in the pod. `soon`: another component works on it, so retries
    come every few seconds however often it failed. `exhausted`: the CSI driver whose volume limit is reached, if the
    driver updates its limit.
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
        super().__init__(message)
        self.retry, self.stage, self.volume, self.soon, self.exhausted = retry, stage, volume, soon, exhausted


def _no_driver(_: str) -> str:
    return ""


@dataclass(frozen=True)
class Context:
    """The inputs of plugins besides the pod."""

    allocatable_bytes: int = 0
    """Memory of the node that is allocatable to pods."""
    facts: NodeFacts = field(default_factory=NodeFacts)
    objects: Mapping[ObjectRef, ApiObject] = field(default_factory=dict)
    """The existing objects of `Plugin.refs` and `Plugin.further_refs`."""
    asked: frozenset[ObjectRef] = frozenset()
    """References of `further_refs` that have been read: an object that is not in `objects` does not exist."""
    credentials: Mapping[CredentialRequest, Credential | str] = field(default_factory=dict)
    """The tokens and certificates of `Plugin.credentials`, or the errors of their requests."""
    node_name: str = ""
    standalone: bool = True
    """Without an API server: objects come from a directory, and there are no tokens."""
    trust_bundles: bool = False
    """The feature gate ClusterTrustBundleProjection."""
    pod_certificates: bool = False
    """The feature gate PodCertificateRequest."""
    selinux: SELinux = field(default_factory=SELinux)
    endpoint: Callable[[str], str] = _no_driver
    """Socket of a CSI driver by name; empty for a driver that is not registered."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The node's labels."""
    mount_points: tuple[str, ...] = ()
    """Relative paths in the volume of the step where containers mount something else; see mount_points.py."""

    def with_objects(
        self,
        objects: Mapping[ObjectRef, ApiObject],
        credentials: Mapping[CredentialRequest, Credential | str] | None = None,
    ) -> Context:
        """The same node with other objects and credentials."""
        return replace(self, objects=objects, credentials=credentials or {})


class Plugin(ABC):
    """One source of volumes."""

    source: str
    """The attribute of `v1.Volume` that selects the plugin."""
    directory: ClassVar[str] = ""
    """Directory name below a pod's `volumes`; empty when its volumes are elsewhere."""
    refreshes: ClassVar[bool] = False
    """The content changes while the pod runs (the kubelet's RequiresRemount)."""

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:  # noqa: ARG002 - for subclasses
        """Objects that the volume uses."""
        return ()

    def further_refs(self, pod: Pod, volume: Volume, context: Context) -> tuple[ObjectRef, ...]:  # noqa: ARG002
        """Objects that the known objects name in turn; called again until it names no new one."""
        return ()

    def credentials(self, pod: Pod, volume: Volume, context: Context) -> tuple[CredentialRequest, ...]:  # noqa: ARG002
        """Service account tokens and certificates that the volume needs, given its objects."""
        return ()

    def claimed(self, pod: Pod, volume: Volume, context: Context) -> Claimed | None:  # noqa: ARG002
        """The PersistentVolume of the claim; None for a volume without a claim. Raises CannotMount."""
        return None

    @abstractmethod
    def step(self, pod: Pod, volume: Volume, context: Context) -> SetUp:
        """The step that sets the volume up. Raises CannotMount."""


@dataclass(frozen=True)
class Claimed:
    """A PersistentVolume and the claim that is bound to it, as one pod uses it (upstream's volume.Spec)."""

    volume: PersistentVolume
    claim: PersistentVolumeClaim
    sources: tuple[str, ...]
    """JSON names of the volume's sources; a valid volume has one."""
    read_only: bool = False
    """The pod's volume says read-only."""

    @property
    def name(self) -> str:
        """Name of the PersistentVolume, and of its directory in the pod's."""
        return self.volume.metadata.name

    @property
    def is_block(self) -> bool:
        """A raw device (volumeMode Block)."""
        return self.volume.spec.volume_mode == "Block"

    @property
    def exclusive(self) -> bool:
        """One pod only may use it. With several access modes the intended one is not known."""
        return self.volume.spec.access_modes == ("ReadWriteOncePod",)

    @property
    def group(self) -> int | None:
        """GID of its files, from the volume's annotation."""
        text = self.volume.metadata.annotations.get(GID_ANNOTATION, "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Mount options of the older annotation, then of the field."""
        before = self.volume.metadata.annotations.get(MOUNT_OPTIONS_ANNOTATION, "")
        return (*(option for option in before.split(",") if option), *self.volume.spec.mount_options)


class PersistentPlugin(ABC):
    """One source of PersistentVolumes."""

    source: ClassVar[str]
    """The attribute of `v1.PersistentVolumeSpec` that selects it."""
    takes_mount_options: ClassVar[bool] = True
    """Volumes may have mount options; with False a volume that has some is refused."""

    def refs(self, pod: Pod, claimed: Claimed, context: Context) -> tuple[ObjectRef, ...]:  # noqa: ARG002 - for subclasses
        """Objects that the volume uses besides its claim."""
        return ()

    def credentials(self, pod: Pod, claimed: Claimed, context: Context) -> tuple[CredentialRequest, ...]:  # noqa: ARG002
        """See Plugin."""
        return ()

    @abstractmethod
    def step(self, pod: Pod, claimed: Claimed, context: Context) -> SetUp:
        """The step that sets the volume up. Raises CannotMount."""

    def device(self, pod: Pod, claimed: Claimed, context: Context) -> SetUp:  # noqa: ARG002 - for subclasses
        """The step that sets a raw device up. Raises CannotMount."""
        text = "BlockVolume mapper plugin is nil: this type of volume has no volumeMode Block"
        raise CannotMount(text, retry=False, stage="MapVolume.FindMapperPluginBySpec failed")


def fs_group(pod: Pod) -> int | None:
    """The pod's fsGroup. Raises CannotMount for a number beyond the API's: chown(2) cannot take each."""
    security = pod.spec.security_context
    return _checked("fsGroup", security.fs_group) if security is not None else None


def fs_user(pod: Pod) -> int | None:
    """UID that all of the pod's containers run as; None when they differ or set none. Raises CannotMount, as above."""
    users = set()
    for one in (*pod.spec.init_containers, *pod.spec.containers):
        own, common = one.security_context, pod.spec.security_context
        user = own.run_as_user if own is not None else None
        users.add(common.run_as_user if user is None and common is not None else user)
    return _checked("runAsUser", users.pop()) if len(users) == 1 else None


def _checked(field: str, number: int | None) -> int | None:
    if number is not None and not 0 <= number <= MOST_ID:
        raise CannotMount(f"cannot use {field} {number}: must be between 0 and {MOST_ID}", retry=False)
    return number


def token_request(pod: Pod, audience: str, expiration_s: int | None) -> GetToken:
    """The request for a token of the pod's service account; an empty audience is the API server's."""
    return GetToken(
        namespace=pod.metadata.namespace,
        service_account=pod.spec.service_account_name or "default",
        pod_name=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        audiences=(audience,) if audience else (),
        expiration_s=expiration_s,
    )


def token_of(request: GetToken, context: Context) -> Token:
    """The token for a request. Raises CannotMount with the kubelet's message when there is none."""
    if context.standalone:
        problem = "cannot use TokenManager when kubelet is in standalone mode"
        raise CannotMount(f"failed to fetch token: {problem}", retry=False)
    found = context.credentials.get(request, "failed to fetch token: it was not requested")
    if isinstance(found, str):
        raise CannotMount(found)
    assert isinstance(found, Token)
    return found
