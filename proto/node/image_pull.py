"""Messages that the image_pull actor receives: images to look for or to pull, ends of pods, and present images."""

from __future__ import annotations

from typing import Literal

from proto.wire.message import Message, Request


class ImageEnsured(Message, frozen=True, kw_only=True):
    """The image is on the node."""

    image_ref: str
    """The image's ID in the runtime, for CreateContainer."""
    pulled: bool = False
    """The image was pulled for this request; False: it was present."""
    user: str = ""
    """User in the image's configuration, a UID or a name, for runAsNonRoot. `0`: none is set; empty: unknown."""


class EnsureImage(Request[ImageEnsured], frozen=True, kw_only=True):
    """From pod_workers: pull the image if the pull policy asks for it. Answered when the image is present.

    Refused with reason ErrImagePull, ImagePullBackOff, ErrImageNeverPull, InvalidImageName, ImageInspectError,
    RegistryUnavailable or SignatureValidationFailed, and the kubelet's message. CreateContainerConfigError: it is
    pulled, but the runtime does not tell its user. Canceled: DropPulls or KeepPulls has withdrawn the request. A repeat
    joins a running pull. During back-off a repeat is refused.
    """

    pod_uid: str
    pod_namespace: str
    pod_name: str
    container: str
    image: str
    policy: Literal["Always", "IfNotPresent", "Never"]
    field_path: str = ""
    """The container's path in the spec, `spec.containers{NAME}`, for events. Empty for an image volume."""
    pull_secrets: tuple[str, ...] = ()
    """Names of the pod's imagePullSecrets, in the spec's order."""
    service_account: str = ""
    """The pod's service account, for credential providers; empty for a pod without one."""
    sandbox_config: bytes = b""
    """The serialized PodSandboxConfig of the pod without its annotations, for PullImage; empty: none is passed."""
    runtime_handler: str = ""
    """The pod's runtime handler, for ImageSpec. Empty: the default, or without gate RuntimeClassInImageCriApi."""
    annotations: dict[str, str] = {}
    """The pod's annotations, for PodSandboxConfig and ImageSpec. At most 256 KiB, as their validation checks."""


class ExpectImages(Message, frozen=True, kw_only=True):
    """From pod_workers: containers of these images start soon. image_pull looks for them meanwhile.

    Nothing is pulled, refused or reported. A repeat is harmless, and so is a loss: EnsureImage looks, too.
    """

    images: tuple[str, ...]
    runtime_handler: str = ""
    """As in EnsureImage."""
    annotations: dict[str, str] = {}
    """The pod's annotations, as in EnsureImage."""


class DropPulls(Message, frozen=True, kw_only=True):
    """From pod_workers: the pod ends, and waits for no image any more. A pull that no other pod waits for is cancelled.

    A repeat is harmless. After a loss KeepPulls follows.
    """

    pod_uid: str


class KeepPulls(Message, frozen=True, kw_only=True):
    """From pod_workers, once it knows all pods: requests of other pods than these are withdrawn. A repeat is harmless.

    An earlier process of pod_workers may have asked for pods that are gone, or a DropPulls may be lost.
    """

    pod_uids: tuple[str, ...]


class ImagesPresent(Message, frozen=True, kw_only=True):
    """From image_gc: all images of the node. Records of other images can be dropped. A repeat is harmless."""

    image_ids: tuple[str, ...]
    time: float
    """Unix seconds before the runtime's list was read. Images pulled later may be missing."""
