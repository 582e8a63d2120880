"""Hosts to pull a registry's images from: mirrors named in hosts.toml files, and the registry itself.

The files are containerd's, https://github.com/containerd/containerd/blob/main/docs/hosts.md: DIR/REGISTRY/hosts.toml,
or DIR/_default/hosts.toml for other registries. The directory of a registry with a port is HOST_PORT_. Known fields:
`server`, and ordered `host` tables with capabilities, override_path, skip_verify, ca, client and header. Each pull
reads them: a change needs no restart.
"""

from __future__ import annotations

import ipaddress
import tomllib
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors.runtime.images.errors import ImageError

DOCKER_HUB = {"docker.io": "registry-1.docker.io"}
_HUB_SERVERS = {"index.docker.io", "registry-1.docker.io"}
"""Other addresses of docker.io; `docker login` keeps its credentials under the first."""
_CAPABILITIES = frozenset({"pull", "resolve", "push"})


class BadHosts(ImageError):
    """A hosts.toml cannot be used; the message names file and field."""


@dataclass(frozen=True, slots=True)
class Host:
    """A mirror or a registry."""

    url: str
    """Base URL without a final slash: https://HOST/v2."""
    registry: bool = False
    """True for the registry itself: only it gets the pull's credentials."""
    capabilities: frozenset[str] = _CAPABILITIES
    """`resolve`: may resolve tags to digests. `pull`: gives content by digest."""
    skip_verify: bool = False
    ca: tuple[str, ...] = ()
    client: tuple[str, str] = ("", "")
    """Files of the certificate and its key."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """HOST:PORT, for messages."""
        return urllib.parse.urlsplit(self.url).netloc


def hosts_of(registry: str, directory: str) -> tuple[Host, ...]:
    """Hosts for images of `registry`, in the order to ask them. Raises BadHosts."""
    for name in _directories(registry):
        path = Path(directory, name, "hosts.toml")
        try:
            content = path.read_text()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise BadHosts(f"cannot read {path}: {error}") from error
        return _parse(content, path, registry)
    return (_itself(registry),)


def _directories(registry: str) -> Iterator[str]:
    """Names of a registry's directory, in the order of looking: HOST_PORT_ is containerd's, HOST_PORT our older one."""
    host, colon, port = registry.rpartition(":")
    if colon and host:
        yield f"{host}_{port}_"
    yield registry
    if colon and host:
        yield f"{host}_{port}"
    yield "_default"


def _itself(registry: str) -> Host:
    address = DOCKER_HUB.get(registry, registry)
    return Host(f"{'http' if is_loopback(address) else 'https'}://{address}/v2", registry=True)


def _parse(content: str, path: Path, registry: str) -> tuple[Host, ...]:
    try:
        document = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise BadHosts(f"cannot use {path}: {error}") from error
    tables = document.get("host", {})
    if not isinstance(tables, dict):
        raise BadHosts(f'cannot use {path}: host: tables [host."URL"] are expected')
    found = [_host(url, table, path) for url, table in tables.items()]
    server = document.get("server", "")
    if server:
        given = _host(server, {key: value for key, value in document.items() if key not in ("server", "host")}, path)
        own = Host(**{name: getattr(given, name) for name in Host.__slots__} | {"registry": True})
    else:
        own = _itself(registry)
    return (*found, own)


def _host(url: Any, table: Any, path: Path) -> Host:
    where = f"cannot use {path}: {url}"
    if not isinstance(url, str) or not isinstance(table, dict):
        raise BadHosts(f"{where}: a URL with a table is expected")
    address = _address(url, where)
    if address.scheme not in ("http", "https") or not address.netloc or address.query or address.username is not None:
        raise BadHosts(f"{where}: not a URL of a registry, such as https://mirror.example:5000")
    capabilities = frozenset(_texts(table.get("capabilities", list(_CAPABILITIES)), f"{where}: capabilities"))
    if unknown := capabilities - _CAPABILITIES:
        raise BadHosts(f"{where}: capabilities: unknown {', '.join(sorted(unknown))}; use pull, resolve and push")
    whole = address.path.rstrip("/")
    if not _flag(table, "override_path", where) and not whole.endswith("/v2"):
        whole += "/v2"
    return Host(
        url=f"{address.scheme}://{address.netloc}{whole}",
        capabilities=capabilities,
        skip_verify=_flag(table, "skip_verify", where),
        ca=tuple(_file(one, path) for one in _texts(table.get("ca", []), f"{where}: ca")),
        client=_client(table.get("client", []), path, f"{where}: client"),
        headers=_headers(table.get("header", {}), f"{where}: header"),
    )


def _address(url: str, where: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"https://{url}")
        _ = parts.port  # reading it checks it
    except ValueError as error:
        raise BadHosts(f"{where}: not a URL of a registry: {error}") from error
    return parts


def _flag(table: Mapping[str, Any], name: str, where: str) -> bool:
    value = table.get(name, False)
    if not isinstance(value, bool):
        raise BadHosts(f"{where}: {name}: true or false is expected")
    return value


def _texts(value: Any, where: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise BadHosts(f"{where}: a text or a list of texts is expected")
    return texts


def _client(value: Any, path: Path, where: str) -> tuple[str, str]:
    """The first pair; one file may hold both certificate and key."""
    first = value[0] if isinstance(value, list) and value and isinstance(value[0], list) else value
    texts = _texts(first, where)
    if not texts or not texts[0]:
        return ("", "")
    return (_file(texts[0], path), _file(texts[1], path) if len(texts) > 1 and texts[1] else "")


def _file(name: str, path: Path) -> str:
    """A path relative to hosts.toml."""
    return str(path.parent / name)


def _headers(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadHosts(f"{where}: a table is expected")
    headers = {name: ", ".join(_texts(given, f"{where}: {name}")) for name, given in value.items()}
    for name, text in headers.items():
        if any(mark in name + text for mark in "\r\n\0"):
            raise BadHosts(f"{where}: {name!r} has a line break in it")
    return headers


def is_server_of(address: str, registry: str) -> bool:
    """Return True when `address`, [https://]HOST[:PORT][/PATH], is the server of `registry`, HOST[:PORT]."""
    host = address.rpartition("://")[2].partition("/")[0]
    one, other = ("docker.io" if name.lower() in _HUB_SERVERS else name.lower() for name in (host, registry))
    return one == other


def is_loopback(address: str) -> bool:
    """Return True when HOST or HOST:PORT is this machine."""
    try:
        host = urllib.parse.urlsplit(f"//{address}").hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return True
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
