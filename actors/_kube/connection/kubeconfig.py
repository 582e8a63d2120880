"""Parses kubeconfig files: the cluster and the user of the current context.

https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/. Relative paths are relative to the file. `credentials`
reads the files that it names, runs plugins and follows rotation.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from actors._host.files.stamp import Stamp, stamp
from proto.common import untrusted

T = TypeVar("T")

MOST_DATA_BYTES = 16 << 20
"""Limit of a file with certificates or a key. A system's bundle of authorities is some 200 KB."""


class KubeconfigError(Exception):
    """The file cannot be used. The message says why, and where in the file."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A part of the file; fields have its names."""


class Cluster(_Part, frozen=True, kw_only=True):
    """The API server's address, and how to verify it."""

    server: str
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""


class ExecVariable(_Part, frozen=True, kw_only=True):
    """A variable of a plugin's environment."""

    name: str
    value: str


class Exec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A credential plugin (client.authentication.k8s.io)."""

    command: str
    api_version: str
    args: tuple[str, ...] | None = None
    env: tuple[ExecVariable, ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class User(_Part, frozen=True, kw_only=True):
    """The user's credentials: a client certificate, and a token, plugin or password."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: Exec | None = None
    auth_provider: Any = None
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] | None = msgspec.field(default=None, name="as-groups")
    impersonate_extra: dict[str, tuple[str, ...]] | None = msgspec.field(default=None, name="as-user-extra")


class _Context(_Part, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The current context of a file."""

    path: str
    cluster: Cluster
    user: User
    stamp: Stamp | None = None
    """Of the file, from before it was read; None for a content that was given."""

    def data(self, inline: str, path: str, what: str) -> bytes:
        """The inline data, or the content of the file at `path`; empty without both. Raises KubeconfigError.

        Reads regular files only, so that a pipe in the place of a file does not block the calls of the API server.
        """
        if inline:
            try:
                return base64.b64decode(inline.replace("\n", "").replace("\r", ""), validate=True)  # as Go's decoder
            except ValueError as error:  # binascii.Error, or text that is not ASCII
                raise KubeconfigError(f"cannot use {self.path}: {what}-data: {error}") from error
        if not path:
            return b""
        try:
            return untrusted.read_file(path, MOST_DATA_BYTES)
        except OSError as error:
            raise KubeconfigError(f"cannot read {what} of {self.path}: {path}: {error.strerror}") from error


def load(path: str) -> Access:
    """The current context of the file. May block as the file does. Raises KubeconfigError."""
    before = stamp(path)
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    return msgspec.structs.replace(parse(text, path), stamp=before)


def parse(text: bytes, path: str) -> Access:
    """The current context of a file's content. Raises KubeconfigError."""
    config = _json(text) or _yaml(text, path)
    if not isinstance(config, dict):
        raise KubeconfigError(f"cannot use the kubeconfig {path}: it is no mapping with clusters, users and contexts")
    current = config.get("current-context") or ""
    if not isinstance(current, str):
        raise KubeconfigError(f"cannot use the kubeconfig {path}: current-context: it is no string")
    if not current:
        raise KubeconfigError(f"cannot use the kubeconfig {path}: current-context is not set")
    context = _named(config, "contexts", "context", current, _Context, path)
    cluster = _named(config, "clusters", "cluster", context.cluster, Cluster, path)
    user = _named(config, "users", "user", context.user, User, path) if context.user else User()
    access = Access(path=path, cluster=_absolute(cluster, path), user=_absolute(user, path))
    _check(access)
    return access


def _json(text: bytes) -> Any:
    """The content of a JSON file; None when it is none."""
    try:
        return untrusted.decode_json(text)
    except msgspec.DecodeError:
        return None


def _yaml(text: bytes, path: str) -> Any:
    import yaml  # noqa: PLC0415 - 2 MB that a process without a kubeconfig saves

    try:
        return untrusted.load_yaml(text)
    except yaml.YAMLError as error:
        raise KubeconfigError(f"cannot read the kubeconfig {path}: {error}") from error


def _named(config: dict[str, Any], list_: str, key: str, name: str, kind: type[T], path: str) -> T:
    """The first entry of that name, as in client-go."""
    entries = config.get(list_) or []
    if not isinstance(entries, list):
        raise KubeconfigError(f"cannot use the kubeconfig {path}: {list_}: it is no list")
    for index, entry in enumerate(entries):
        if isinstance(entry, dict) and entry.get("name") == name:
            try:
                return msgspec.convert(_without_nulls(entry.get(key) or {}), kind)
            except msgspec.ValidationError as error:
                raise KubeconfigError(f"cannot use the kubeconfig {path}: {list_}[{index}].{key}: {error}") from error
    raise KubeconfigError(f"cannot use the kubeconfig {path}: {list_}: there is none called {name!r}")


def _without_nulls(part: Any, depth: int = 4) -> Any:
    """The part without its null fields, which Go takes as missing. users[].user.exec.env has the deepest ones."""
    if depth and isinstance(part, dict):
        return {name: _without_nulls(field, depth - 1) for name, field in part.items() if field is not None}
    return [_without_nulls(one, depth - 1) for one in part] if depth and isinstance(part, list) else part


_PATHS = ("certificate_authority", "client_certificate", "client_key", "token_file")


def _absolute(part: T, path: str) -> T:
    directory = os.path.dirname(os.path.abspath(path))
    changes = {name: os.path.join(directory, found) for name in _PATHS if (found := getattr(part, name, ""))}
    if isinstance(part, User) and part.exec is not None and os.sep in part.exec.command:
        changes["exec"] = msgspec.structs.replace(part.exec, command=os.path.join(directory, part.exec.command))  # type: ignore[assignment]
    return msgspec.structs.replace(part, **changes) if changes else part  # type: ignore[type-var]


def _check(access: Access) -> None:
    """Check for errors that would fail later with a less clear message."""
    cluster, user, where = access.cluster, access.user, f"cannot use the kubeconfig {access.path}"
    if not cluster.server.startswith(("https://", "http://")):
        raise KubeconfigError(f"{where}: cluster.server: {cluster.server!r} is no URL with https:// or http://")
    for field, url in (("cluster.server", cluster.server), ("proxy-url", cluster.proxy_url)):
        try:
            _ = urlsplit(url).port  # urlsplit checks the port when it is read
        except ValueError as error:
            raise KubeconfigError(f"{where}: {field}: {url!r} is no URL: {error}") from error
    for name in _PATHS:
        if not _is_path(getattr(cluster, name, "") or getattr(user, name, "")):
            field = "tokenFile" if name == "token_file" else name.replace("_", "-")
            raise KubeconfigError(f"{where}: {field}: it is no path")
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority or cluster.certificate_authority_data):
        raise KubeconfigError(f"{where}: insecure-skip-tls-verify and a certificate authority exclude each other")
    if bool(user.client_certificate or user.client_certificate_data) != bool(user.client_key or user.client_key_data):
        raise KubeconfigError(f"{where}: a client certificate and its key are needed together")
    if user.auth_provider is not None:
        raise KubeconfigError(f"{where}: user.auth-provider is no longer in Kubernetes either; use exec")
    if user.exec is not None and not user.exec.api_version.startswith("client.authentication.k8s.io/v1"):
        raise KubeconfigError(f"{where}: user.exec.apiVersion: {user.exec.api_version!r} is not supported")
    if cluster.proxy_url and not cluster.proxy_url.startswith("http://"):
        raise KubeconfigError(f"{where}: proxy-url: the agent goes through http:// proxies only; name one")


def _is_path(text: str) -> bool:
    """False for what the calls of the operating system cannot take: a NUL, or half of a surrogate pair."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
