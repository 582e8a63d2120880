"""csi: volumes of a CSI driver, through a claim or ephemeral with the pod. Source: pkg/volume/csi.

The step is made from the volume, CSIDriver, VolumeAttachment, Secrets and tokens. Without an API server these objects
come from the objects directory. A driver that then needs attachments or tokens is refused.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.volume.csi import policy as csi
from actors.volume.plugins.base import (
    ATTACH_FAILED,
    SET_UP_FAILED,
    CannotMount,
    Claimed,
    Context,
    PersistentPlugin,
    Plugin,
    fs_group,
    token_of,
    token_request,
)
from actors.volume.steps.csi import CsiMount, FsGroup, Secrets
from actors.volume.steps.csi import Volume as CsiVolume
from actors.volume.steps.errors import MOUNT_DEVICE_FAILED, SET_UP_DEVICE_FAILED
from actors.volume.steps.places import CSI
from proto.pods.objects import GetToken, ObjectRef, document_of
from proto.v1 import Pod, SecretReference, Volume
from proto.v1.cluster import CSIDriver, CSIDriverSpec, CSIPersistentVolumeSource, VolumeAttachment

RESOURCE_EXHAUSTED = 8
"""gRPC's code for a volume beyond the driver's limit."""


class CsiPlugin(Plugin):
    """Ephemeral volumes."""

    source = "csi"
    directory = CSI

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:
        """References to the CSIDriver and the publication's Secret."""
        source = volume.csi
        assert source is not None
        secret = source.node_publish_secret_ref
        named = (SecretReference(name=secret.name, namespace=pod.metadata.namespace),) if secret is not None else ()
        return (_driver_ref(source.driver), *map(_secret_ref, named))

    def credentials(self, pod: Pod, volume: Volume, context: Context) -> tuple[GetToken, ...]:
        """The tokens that the CSIDriver requests."""
        assert volume.csi is not None
        return tuple(_token_requests(pod, _spec(volume.csi.driver, context)).values())

    def step(self, pod: Pod, volume: Volume, context: Context) -> CsiMount:
        """See Plugin."""
        source = volume.csi
        assert source is not None
        driver = _driver(source.driver, context)
        endpoint = _endpoint(source.driver, context, *_OF_MOUNTS)
        _check_mode(source.driver, "Ephemeral", context)
        named = source.node_publish_secret_ref
        secret = SecretReference(name=named.name, namespace=pod.metadata.namespace) if named is not None else None
        return CsiMount(
            CsiVolume(
                pod.metadata.uid, volume.name, source.driver, csi.ephemeral_handle(pod.metadata.uid, volume.name)
            ),
            volume.name,
            endpoint,
            context.node_name,
            ephemeral=True,
            fs_type=source.fs_type or "",
            read_only=bool(source.read_only),
            context=source.volume_attributes,
            pod_info=_pod_info(pod, driver, ephemeral=True),
            fs_group=_group(pod, driver),
            secrets=_with_tokens(
                Secrets(publish=_secret(secret, "NodePublishSecretRef", context)), pod, driver, context
            ),
            republish=bool(driver.requires_republish),
        )


class PersistentCsi(PersistentPlugin):
    """PersistentVolumes of a driver."""

    source = "csi"

    def refs(self, pod: Pod, claimed: Claimed, context: Context) -> tuple[ObjectRef, ...]:  # noqa: ARG002
        """References to the CSIDriver, the Secrets, and the VolumeAttachment if the driver, once read, needs one.

        The API server forbids a node to read an attachment that does not exist.
        """
        source = claimed.volume.spec.csi
        assert source is not None
        secrets = (source.node_stage_secret_ref, source.node_publish_secret_ref, source.node_expand_secret_ref)
        known = _driver_ref(source.driver) in context.asked
        attachments = (_attachment_ref(claimed, context),) if known and attached(claimed, context) else ()
        return (
            _driver_ref(source.driver),
            *attachments,
            *(_secret_ref(one) for one in secrets if one is not None),
        )

    def credentials(self, pod: Pod, claimed: Claimed, context: Context) -> tuple[GetToken, ...]:
        """The tokens that the CSIDriver requests; none for a raw device, as in the kubelet."""
        assert claimed.volume.spec.csi is not None
        if claimed.is_block:
            return ()
        return tuple(_token_requests(pod, _spec(claimed.volume.spec.csi.driver, context)).values())

    def step(self, pod: Pod, claimed: Claimed, context: Context) -> CsiMount:
        """See PersistentPlugin."""
        spec = claimed.volume.spec
        source = spec.csi
        assert source is not None
        block = claimed.is_block
        driver = _spec(source.driver, context) if block else _driver(source.driver, context)
        endpoint = _endpoint(source.driver, context, *(_OF_DEVICES if block else _OF_STAGING))
        _check_mode(source.driver, "Persistent", context)
        publish_context = _publish_context(claimed, driver, context)  # first: only its errors are for another try soon
        secrets = _secrets(source, context)
        return CsiMount(
            CsiVolume(pod.metadata.uid, claimed.name, source.driver, source.volume_handle, block=block),
            claimed.name,
            endpoint,
            context.node_name,
            fs_type="" if block else source.fs_type or "",
            access_modes=spec.access_modes,
            mount_options=() if block else spec.mount_options,  # those of the annotation are for in-tree types
            read_only=claimed.read_only,  # the source's field is for the attachment (ControllerPublishVolume)
            context=source.volume_attributes,
            pod_info=_pod_info(pod, driver, ephemeral=False),
            publish_context=publish_context,
            fs_group=None if block else _group(pod, driver),
            secrets=secrets if block else _with_tokens(secrets, pod, driver, context),
            republish=bool(driver.requires_republish),
        )

    device = step


def attached(claimed: Claimed, context: Context) -> tuple[str, str] | None:
    """(driver, handle) of a volume that a controller attaches to the node; None for other volumes."""
    source = claimed.volume.spec.csi
    if source is None or _spec(source.driver, context).attach_required is False:
        return None
    return source.driver, source.volume_handle


def mounted_volume(pod: Pod, volume: Volume, claimed: Claimed | None) -> tuple[str, str] | None:
    """(driver, handle) of a CSI volume with a file system; None for other volumes. `claimed` as of Plugin.claimed."""
    if claimed is None:
        name, uid = volume.name, pod.metadata.uid
        return (volume.csi.driver, csi.ephemeral_handle(uid, name)) if volume.csi is not None else None
    source = claimed.volume.spec.csi
    return (source.driver, source.volume_handle) if source is not None and not claimed.is_block else None


def mounts_by_label(driver: str, context: Context) -> bool:
    """True when the driver's volumes may be mounted with an SELinux label (CSIDriver.seLinuxMount)."""
    return bool(_spec(driver, context).se_linux_mount)


def republishes(driver: str, context: Context) -> bool | None:
    """True when the driver wants repeated publications; None while its CSIDriver is not known."""
    if _driver_ref(driver) not in context.objects:
        return None
    return bool(_spec(driver, context).requires_republish)


def _driver_ref(name: str) -> ObjectRef:
    return ObjectRef(kind="CSIDriver", name=name)


def _secret_ref(ref: SecretReference) -> ObjectRef:
    return ObjectRef(kind="Secret", namespace=ref.namespace or "default", name=ref.name or "")


def _attachment_ref(claimed: Claimed, context: Context) -> ObjectRef:
    source = claimed.volume.spec.csi
    assert source is not None
    name = csi.attachment_name(source.volume_handle, source.driver, context.node_name)
    return ObjectRef(kind="VolumeAttachment", name=name)


def _spec(name: str, context: Context) -> CSIDriverSpec:
    # Without a CSIDriver object the API's defaults hold.
    found = context.objects.get(_driver_ref(name))
    if found is None:
        return CSIDriverSpec()
    driver: CSIDriver = document_of(found, CSIDriver)
    return driver.spec


def _driver(name: str, context: Context) -> CSIDriverSpec:
    spec = _spec(name, context)
    if spec.token_requests and context.standalone:
        text = (
            f"driver {name} requests service account tokens (tokenRequests of its CSIDriver), "
            "which only an API server can issue"
        )
        raise CannotMount(text, retry=False)
    return spec


def _token_requests(pod: Pod, driver: CSIDriverSpec) -> dict[str, GetToken]:
    return {one.audience: token_request(pod, one.audience, one.expiration_seconds) for one in driver.token_requests}


def _with_tokens(secrets: Secrets, pod: Pod, driver: CSIDriverSpec, context: Context) -> Secrets:
    tokens = {audience: token_of(request, context) for audience, request in _token_requests(pod, driver).items()}
    if not tokens:
        return secrets
    if driver.service_account_token_in_secrets:
        return replace(secrets, publish=secrets.publish | csi.token_attributes(tokens))
    return replace(secrets, attributes=csi.token_attributes(tokens))


_OF_MOUNTS = SET_UP_FAILED, "mounter.SetUpAt failed to get CSI client"
_OF_STAGING = MOUNT_DEVICE_FAILED, "attacher.MountDevice failed to create newCsiDriverClient"
_OF_DEVICES = SET_UP_DEVICE_FAILED, "blockMapper.SetUpDevice failed to get CSI client"
"""The operation that needs the driver first, and its error, in the kubelet's words."""


def _endpoint(driver: str, context: Context, stage: str, error: str) -> str:
    endpoint = context.endpoint(driver)
    if not endpoint:
        raise CannotMount(f"kubernetes.io/csi: {error}: {csi.not_registered(driver)}", stage=stage)
    return endpoint


def _check_mode(driver: str, mode: str, context: Context) -> None:
    """Raises CannotMount for a volume that the driver does not support: inline (Ephemeral) or of a claim."""
    is_known = _driver_ref(driver) in context.objects
    modes = _spec(driver, context).volume_lifecycle_modes or ("Persistent",)
    if mode in modes:
        return
    listed = " ".join(f'"{one}"' for one in modes)
    why = f"only supports [{listed}]" if is_known else "no CSIDriver object"
    text = f'volume mode "{mode}" not supported by driver {driver} ({why})'
    raise CannotMount(f"kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {text}")


def _pod_info(pod: Pod, driver: CSIDriverSpec, *, ephemeral: bool) -> dict[str, str]:
    if not driver.pod_info_on_mount:
        return {}
    meta = pod.metadata
    account = pod.spec.service_account_name or ""
    return csi.pod_attributes(meta.name, meta.namespace, meta.uid, account, ephemeral=ephemeral)


def _group(pod: Pod, driver: CSIDriverSpec) -> FsGroup | None:
    group, security = fs_group(pod), pod.spec.security_context
    if group is None or security is None:
        return None
    return FsGroup(
        group, security.fs_group_change_policy or "Always", driver.fs_group_policy or csi.DEFAULT_GROUP_POLICY
    )


def _secrets(source: CSIPersistentVolumeSource, context: Context) -> Secrets:
    # Only the helper sees if the volume has to be staged, and if the driver can grow it. Many mounts do neither, and
    # then need neither Secret.
    stage, stage_error = _if_there(source.node_stage_secret_ref, "NodeStageSecretRef", context)
    expand, expand_error = _if_there(source.node_expand_secret_ref, "NodeExpandSecretRef", context)
    publish = _secret(source.node_publish_secret_ref, "NodePublishSecretRef", context)
    return Secrets(stage, publish, expand, stage_error=stage_error, expand_error=expand_error)


def _if_there(named: SecretReference | None, field: str, context: Context) -> tuple[dict[str, str], str]:
    """The Secret and the error of its reading, one of them empty."""
    try:
        return _secret(named, field, context), ""
    except CannotMount as error:
        return {}, str(error)


def _secret(named: SecretReference | None, field: str, context: Context) -> dict[str, str]:
    if named is None:
        return {}
    ref = _secret_ref(named)
    found = context.objects.get(ref)
    if found is None:
        raise CannotMount(_no_secret(field, ref, f'secrets "{ref.name}" not found'))
    try:
        return {key: data.decode() for key, data in found.data.items()}
    except UnicodeDecodeError:
        raise CannotMount(_no_secret(field, ref, "it is not UTF-8")) from None


def _no_secret(field: str, ref: ObjectRef, problem: str) -> str:
    name = f"{ref.namespace}/{ref.name}"
    if field == "NodeExpandSecretRef":
        return f"expander.NodeExpand failed to get {field} {name}: {problem}"
    return f"fetching {field} {name} failed: {problem}"


def _publish_context(claimed: Claimed, driver: CSIDriverSpec, context: Context) -> dict[str, str]:
    # Raises CannotMount until the volume is attached.
    if driver.attach_required is False:
        return {}
    source = claimed.volume.spec.csi
    assert source is not None
    ref = _attachment_ref(claimed, context)
    found = context.objects.get(ref)
    if found is None:
        hint = (
            f". Attaching volumes for driver {source.driver} takes an API server; "
            "if the driver needs no attachments, add a CSIDriver with attachRequired: false"
        )
        text = f'volumeattachments.storage.k8s.io "{ref.name}" not found{hint if context.standalone else ""}'
        raise CannotMount(text, stage=ATTACH_FAILED, soon=not context.standalone)
    attachment: VolumeAttachment = document_of(found, VolumeAttachment)
    status = attachment.status
    if attachment.metadata.deletion_timestamp:
        raise CannotMount("volume attachment is being deleted", stage=ATTACH_FAILED, soon=True)
    if not status.attached:
        error = status.attach_error.message if status.attach_error is not None else ""
        text = error or f"volume {source.volume_handle} has not been attached yet"
        too_many = status.attach_error is not None and status.attach_error.error_code == RESOURCE_EXHAUSTED
        told = bool(driver.node_allocatable_update_period_seconds)
        exhausted = source.driver if too_many and told else ""
        raise CannotMount(text, stage=ATTACH_FAILED, soon=not error, exhausted=exhausted)
    return status.attachment_metadata
