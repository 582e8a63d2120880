"""Messages the image_pull actor receives: from pod_workers what to have, from image_gc what there is."""

from __future__ import annotations

from typing import Literal

from proto.wire.message import Message, Request


class ImageEnsured(Message, frozen=True, kw_only=True):
    """The image is on the node."""

    image_ref: str
    """What CreateContainer takes: the image's ID as the runtime names it."""
    pulled: bool = False
    """This request caused a pull, rather than finding it present."""
    user: str = ""
    """The image's configured user, `UID` or name, `0` where it sets none; empty: not known. Decides runAsNonRoot."""


class EnsureImage(Request[ImageEnsured], frozen=True, kw_only=True):
    """Have the image on the node by the container's pull policy; answered when it is, or when it is known not to be.

    Refused with reason ErrImagePull, ImagePullBackOff, ErrImageNeverPull, InvalidImageName, ImageInspectError,
    RegistryUnavailable or SignatureValidationFailed, and the kubelet's message. A repeat during a pull joins it; during
    back-off it is refused.
    """

    pod_uid: str
    pod_namespace: str
    pod_name: str
    container: str
    image: str
    policy: Literal["Always", "IfNotPresent", "Never"]
    field_path: str = ""
    """Of the container in the pod's spec, for its events: `spec.containers{NAME}`. Empty for an image volume's."""
    pull_secrets: tuple[str, ...] = ()
    """Names of the pod's imagePullSecrets, in their order."""


class ImagesPresent(Message, frozen=True, kw_only=True):
    """All images of the node: who may use others need not be remembered. A repeat is harmless."""

    image_ids: tuple[str, ...]
    time: float
    """Unix seconds before the runtime was asked: what was pulled later may be missing here."""
