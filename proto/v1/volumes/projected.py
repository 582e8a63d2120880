"""Records of volumes with files from API objects: configMap, secret, downwardAPI and projected.

File modes are decimal integers: 0644 is 420.
"""

from proto.v1.meta import LabelSelector, ObjectFieldSelector, ResourceFieldSelector
from proto.v1.scalars.base import Int32, Int64, Record


class KeyToPath(Record, frozen=True, kw_only=True):
    """A key, the relative path of its file and the file's mode."""

    key: str = ""
    path: str = ""
    mode: Int32 | None = None


class SecretVolumeSource(Record, frozen=True, kw_only=True):
    """Files from a Secret."""

    secret_name: str | None = None
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class ConfigMapVolumeSource(Record, frozen=True, kw_only=True):
    """Files from a ConfigMap."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class DownwardAPIVolumeFile(Record, frozen=True, kw_only=True):
    """A file with a field of the pod or a resource of a container."""

    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: Int32 | None = None


class DownwardAPIVolumeSource(Record, frozen=True, kw_only=True):
    """Files about the pod itself."""

    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: Int32 | None = None


class SecretProjection(Record, frozen=True, kw_only=True):
    """A Secret's part of a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class ConfigMapProjection(Record, frozen=True, kw_only=True):
    """A ConfigMap's part of a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class DownwardAPIProjection(Record, frozen=True, kw_only=True):
    """The downward API's part of a projected volume."""

    items: tuple[DownwardAPIVolumeFile, ...] = ()


class ServiceAccountTokenProjection(Record, frozen=True, kw_only=True):
    """A bound token for an audience, renewed before it expires."""

    audience: str | None = None
    expiration_seconds: Int64 | None = None
    path: str = ""


class ClusterTrustBundleProjection(Record, frozen=True, kw_only=True):
    """Trust anchors by name, or by signer and labels (KEP-3257)."""

    name: str | None = None
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: str = ""


class PodCertificateProjection(Record, frozen=True, kw_only=True):
    """A key and certificate issued to the pod (KEP-4317)."""

    signer_name: str | None = None
    key_type: str | None = None
    max_expiration_seconds: Int32 | None = None
    credential_bundle_path: str | None = None
    key_path: str | None = None
    certificate_chain_path: str | None = None
    user_annotations: dict[str, str] = {}


class VolumeProjection(Record, frozen=True, kw_only=True):
    """One source of a projected volume. Without any, it adds no file."""

    secret: SecretProjection | None = None
    downward_api: DownwardAPIProjection | None = None
    config_map: ConfigMapProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(Record, frozen=True, kw_only=True):
    """Several sources in one directory."""

    sources: tuple[VolumeProjection, ...] = ()
    default_mode: Int32 | None = None
