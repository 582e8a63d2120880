"""Records of ConfigMap and Secret."""

from proto.v1.meta import Object


class ConfigMap(Object, frozen=True, kw_only=True):
    """Text by key, and bytes (base64) by key."""

    immutable: bool | None = None
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Secret(Object, frozen=True, kw_only=True):
    """Bytes (base64) by key; its repr leaves them out."""

    immutable: bool | None = None
    data: dict[str, str] = {}
    string_data: dict[str, str] = {}
    type: str | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, {len(self.data)} keys)"
