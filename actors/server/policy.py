"""Pure decisions: a request's authorization attributes, its route, and the user of a certificate.

The attributes are those of the kubelet since 1.36 (KEP-2862, fine-grained authorization).
"""

from __future__ import annotations

from collections.abc import Iterable
from ssl import SSLCertVerificationError
from typing import Any, Generic, NamedTuple, TypeVar

from actors._net.tls import ClientCertificate
from actors.server.base.http import User
from actors.server.context import Handler

T = TypeVar("T")

VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FINE = {"/pods": "pods", "/runningpods/": "pods", "/healthz": "healthz", "/configz": "configz"}
_COARSE = {
    "/stats/": "stats",
    "/metrics": "metrics",
    "/logs/": "log",
    "/checkpoint/": "checkpoint",
    "/statusz": "statusz",
    "/flagz": "configz",
}
"""The flags have the same right as the configuration, as in the kubelet."""


class Attributes(NamedTuple):
    """`verb` on nodes/`subresource` of this node. One allowed subresource is enough; they are checked in order."""

    verb: str
    subresources: tuple[str, ...]


def attributes(method: str, path: str) -> Attributes:
    """The attributes of a request. An empty verb is allowed for no user."""
    fine = tuple(name for prefix, name in _FINE.items() if _is_below(path, prefix))
    coarse = next((name for prefix, name in _COARSE.items() if _is_below(path, prefix)), "proxy")
    return Attributes(VERBS.get(method, ""), (*fine[:1], coarse))


def _is_below(path: str, prefix: str) -> bool:
    prefix = prefix.rstrip("/")
    return path == prefix or path.startswith(prefix + "/")


class Route(NamedTuple):
    """A path pattern and its handler. `{name}` matches one segment; a final `{name:*}` matches the rest."""

    method: str
    pattern: str
    handler: Handler
    read_only: bool = False
    """True when the read-only port serves it too."""


class RouteMatch(NamedTuple):
    """A route with its parameters; or no route, with the methods that the path allows."""

    route: Route | None
    params: dict[str, str]
    allowed: tuple[str, ...] = ()
    """Set when only the method was wrong."""


class Table:
    """Finds a request's route by its segments; the first match counts."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._split = [(route, tuple(route.pattern.strip("/").split("/"))) for route in self.routes]

    def find(self, method: str, path: str) -> RouteMatch:
        """The route of a request; HEAD is answered by the route for GET."""
        segments = tuple(path.strip("/").split("/"))
        wanted = "GET" if method == "HEAD" else method
        allowed: list[str] = []
        for route, pattern in self._split:
            params = _match(pattern, segments)
            if params is None:
                continue
            if route.method == wanted:
                return RouteMatch(route, params)
            allowed.append(route.method)
        return RouteMatch(None, {}, tuple(dict.fromkeys(allowed)))


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for index, part in enumerate(pattern):
        if part.endswith(":*}"):
            params[part[1:-3]] = "/".join(segments[index:])
            return params
        if index >= len(segments):
            return None
        if part.startswith("{"):
            params[part[1:-1]] = segments[index]
        elif part != segments[index]:
            return None
    return params if len(pattern) == len(segments) else None


def user_of_certificate(certificate: ClientCertificate | None, *, with_uid: bool = True) -> User | None:
    """The user that a verified client certificate names: common name, organizations and UID.

    None without a common name. Raises SSLCertVerificationError for several UIDs or an empty one. `with_uid`: the
    feature gate AllowParsingUserUIDFromCertAuth.
    """
    if certificate is None or not certificate.common_name:
        return None
    uids = certificate.uids if with_uid else ()
    if len(uids) > 1:
        raise SSLCertVerificationError(f"the client's certificate has {len(uids)} UIDs, and may have one")
    if "" in uids:
        raise SSLCertVerificationError("the client's certificate has an empty UID")
    return User(certificate.common_name, certificate.organizations, uids[0] if uids else "")


def with_authenticated_group(user: User) -> User:
    """The user in system:authenticated, as the API server adds it to authenticated users."""
    if "system:authenticated" in user.groups or "system:unauthenticated" in user.groups:
        return user
    return user._replace(groups=(*user.groups, "system:authenticated"))


class Cache(Generic[T]):
    """Values with a time to live each; past `limit` of them the oldest is dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[Any, tuple[float, T]] = {}

    def get(self, key: Any, now: float) -> T | None:
        """The value; None when it is missing or expired."""
        found = self._values.get(key)
        if found is None or found[0] <= now:
            return None
        return found[1]

    def put(self, key: Any, value: T, now: float, ttl_s: float) -> None:
        """Store a value for `ttl_s` seconds; 0 stores nothing."""
        self._values.pop(key, None)
        if ttl_s > 0:
            self._values[key] = (now + ttl_s, value)
        while len(self._values) > self._limit:
            del self._values[next(iter(self._values))]

    def __len__(self) -> int:
        return len(self._values)
