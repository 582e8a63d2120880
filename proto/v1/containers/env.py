"""Records of `env` and `envFrom`: environment variables of a container and the sources of their values."""

from proto.v1.meta import ObjectFieldSelector, ResourceFieldSelector
from proto.v1.scalars.base import Record


class ConfigMapKeySelector(Record, frozen=True, kw_only=True):
    """One key of a ConfigMap."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class SecretKeySelector(Record, frozen=True, kw_only=True):
    """One key of a Secret."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FileKeySelector(Record, frozen=True, kw_only=True):
    """One key of an environment file in an emptyDir volume (KEP-3721)."""

    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None


class EnvVarSource(Record, frozen=True, kw_only=True):
    """Exactly one source of the value."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(Record, frozen=True, kw_only=True):
    """A variable with a value, which may use $(OTHER), or a source."""

    name: str = ""
    value: str | None = None
    value_from: EnvVarSource | None = None


class ConfigMapEnvSource(Record, frozen=True, kw_only=True):
    """All keys of a ConfigMap."""

    name: str = ""
    optional: bool | None = None


class SecretEnvSource(Record, frozen=True, kw_only=True):
    """All keys of a Secret."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(Record, frozen=True, kw_only=True):
    """A ConfigMap or Secret whose keys become variables, after `prefix`."""

    prefix: str | None = None
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None
