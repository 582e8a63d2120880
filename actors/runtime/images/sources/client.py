"""Pulls from a registry of OCI or Docker v2: https://github.com/opencontainers/distribution-spec.

Covers addresses, credentials, redirects and resumed downloads. A registry's data is hostile: documents and blobs must
match their digests. Credentials go over TLS to the registry and to the token service that it names, to no other host.
Plain HTTP is for loopback addresses only.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import re
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import urllib3

from actors.runtime.images.blobs import checked_digest, digest_of
from actors.runtime.images.errors import FULL, BadImage, Denied, NoSuchImage, RegistryError, StoreFull
from actors.runtime.images.limits import check_room, check_room_for
from actors.runtime.images.local.compression import Unpacked
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.manifest import INDEXES, MANIFESTS, Descriptor
from actors.runtime.images.sources.challenges import choose
from actors.runtime.images.sources.connections import Pools
from actors.runtime.images.sources.hosts import Host, hosts_of, is_loopback, is_server_of
from actors.runtime.images.sources.partial import downloaded
from actors.runtime.images.sources.progress import Pull
from proto.common import untrusted
from proto.cri import api_pb2 as pb

CONNECT_S = 15.0
STALL_S = 30.0
"""A connection without a byte for this long is closed; the download continues with another."""
ATTEMPTS = 5
"""Attempts in a row without a byte of progress."""
BETWEEN_S = 1.0
MOST_REDIRECTS = 5
SLOW_S = 60.0
"""A download of fewer than SLOW_BYTES in this time has stalled."""
SLOW_BYTES = 64 * 1024
DOCUMENT_S = 60.0
"""From first to last byte of a manifest or a configuration, which have some KiB."""
TOKEN_BYTES = 64 * 1024
_CHUNK = 256 * 1024
_ACCEPT = ", ".join((*MANIFESTS, *INDEXES))
_CONNECTION = re.compile(r"\A(?:<urllib3[^>]*>|\w+\(host=[^)]*\)): ")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of one registry; all empty for none."""

    username: str = ""
    password: str = ""
    identity_token: str = ""
    """Sent to the token service, in place of user and password."""
    registry_token: str = ""
    """Sent to the registry itself."""

    @classmethod
    def of(cls, auth: pb.AuthConfig, registry: str) -> Credentials:
        """From a pull request; none when they name the server of another registry, as in containerd (ParseAuth).

        `registry` is the image's, HOST[:PORT]. Raises BadImage for an invalid `auth`.
        """
        if auth.server_address and not is_server_of(auth.server_address, registry):
            return cls()
        username, password = auth.username, auth.password
        if auth.auth and not username:
            try:
                username, _, password = base64.b64decode(auth.auth, validate=True).decode().partition(":")
            except ValueError:
                raise BadImage("cannot read the pull's credentials: auth is not base64 of user:password") from None
        return cls(username, password, auth.identity_token, auth.registry_token)

    @property
    def basic(self) -> str:
        """Value of the header Authorization; empty without a user."""
        if not self.username:
            return ""
        return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"


class Registry:
    """One pull's requests to one repository. A source.Source."""

    def __init__(
        self, store: ImageStore, name: str, credentials: Credentials, host: Host | None = None, pull: Pull | None = None
    ) -> None:
        """`name` is in full; `host` is where to pull it, by default its own registry. Opens no connection.

        A mirror does not get the credentials, which are the registry's. Raises OSError for unreadable certificates.
        """
        repository, mark, reference = name.partition("@") if "@" in name else name.rpartition(":")
        registry, _, self._path = repository.partition("/")
        place = host or hosts_of(registry, "")[0]
        self.host = place.name if host is not None and not host.registry else registry
        self._reference = reference
        self._by_digest = mark == "@"
        self._store = store
        self._credentials = credentials if place.registry else Credentials()
        self._pull = pull or Pull(name)
        self._own_headers = place.headers
        self.plain = place.url.startswith("http:")
        self._base = f"{place.url}/{self._path}"
        self._query = "" if place.registry else f"?ns={urllib.parse.quote(registry)}"
        self._pools = Pools(place)
        self._authorization = f"Bearer {self._credentials.registry_token}" if self._credentials.registry_token else ""
        self._documents: dict[str, bytes] = {}

    def resolve(self) -> Descriptor:
        """The descriptor that the name leads to now. Raises ImageError."""
        content, headers = self._get_document(f"{self._base}/manifests/{self._reference}", self._most())
        digest = digest_of(content)
        claimed = headers.get("Docker-Content-Digest") or digest
        if self._by_digest and digest != self._reference:
            raise BadImage(f"registry {self.host} gives {digest} where {self._reference} was asked for")
        if claimed.startswith("sha256:") and claimed != digest:
            raise BadImage(f"registry {self.host} claims to give {claimed}, and gives {digest}")
        self._documents[digest] = content
        return Descriptor(digest=digest, size=len(content), media_type=headers.get("Content-Type") or "")

    def document(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """See source.Source."""
        known = self._documents.get(descriptor.digest)
        if known is not None:
            return known
        digest = checked_digest(descriptor.digest)
        is_manifest = descriptor.media_type in (*MANIFESTS, *INDEXES, "")
        content, _ = self._get_document(f"{self._base}/{'manifests' if is_manifest else 'blobs'}/{digest}", most_bytes)
        return content

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[IO[bytes]]:
        """See source.Source. Downloads the whole blob before reading: only a blob with the right digest is unpacked."""
        path = self._store.partial(checked_digest(descriptor.digest))
        with downloaded(path, lambda own: self.download(descriptor, own), self._pull) as file:
            yield file

    # Downloading

    def download(self, descriptor: Descriptor, path: Path) -> None:
        """Download a layer to the file, or resume its download. Raises ImageError, OSError."""
        if descriptor.size > self._store.limits.image_bytes:
            raise BadImage(f"a layer of {descriptor.size} bytes")
        begun = _size(path)
        self._fill(path, descriptor)
        if (found := _digest(path)) == descriptor.digest and _size(path) == descriptor.size:
            return
        path.unlink(missing_ok=True)
        if not begun:
            raise BadImage(f"registry {self.host} gives a layer of digest {found} for {descriptor.digest}")
        self.download(descriptor, path)  # the first bytes may be those of another host

    def _fill(self, path: Path, descriptor: Descriptor) -> None:
        """Download until the file has the layer's size."""
        url = f"{self._base}/blobs/{descriptor.digest}"
        failures, most = 0, 0
        while True:
            have = _size(path)
            self._pull.advance(descriptor.digest, have)
            if have >= descriptor.size:
                break
            check_room_for(descriptor.size - have, str(path.parent), self._store.limits.reserve_bytes)
            try:
                self._append(url, path, have, descriptor)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if isinstance(error, OSError) and error.errno in FULL:
                    raise StoreFull(f"no room for it: {error}") from error
                check_room(str(path.parent), self._store.limits)
                now = _size(path)
                # Progress is a new maximum: a download that restarts again and again would otherwise never fail.
                failures, most = (0 if now > max(most, have) else failures + 1), max(most, now, have)
                if failures >= ATTEMPTS:
                    raise RegistryError(f"cannot download a layer from {self.host}: {_plain(error)}") from error
                time.sleep(BETWEEN_S)

    def _append(self, url: str, path: Path, have: int, descriptor: Descriptor) -> None:
        size = descriptor.size
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self._get(url, headers) as answer, path.open("ab") as file:
            if have and answer.status != 206:
                file.truncate(0)  # the registry cannot resume
                have = 0
            unchecked = 0
            began, since = time.monotonic(), 0
            # Read available bytes, not whole chunks: a sender of single bytes would otherwise not be recognised as
            # slow.
            while chunk := answer.read1(_CHUNK, decode_content=False):
                have += len(chunk)
                since += len(chunk)
                if (now := time.monotonic()) - began > SLOW_S:
                    if since < SLOW_BYTES:
                        raise urllib3.exceptions.HTTPError(f"only {since} bytes in {SLOW_S:g} s")
                    began, since = now, 0
                self._pull.advance(descriptor.digest, have)
                if have > size:
                    raise BadImage(f"registry {self.host} gives more than the {size} bytes of a layer")
                file.write(chunk)
                unchecked += len(chunk)
                if unchecked > 64 * _CHUNK:
                    check_room(str(path.parent), self._store.limits)
                    unchecked = 0
            if have < size:  # the end of a body that says that it is complete
                raise urllib3.exceptions.HTTPError(f"it gives {have} of {size} bytes")

    def _get_document(self, url: str, most_bytes: int) -> tuple[bytes, Mapping[str, str]]:
        for attempt in range(ATTEMPTS):
            try:
                with self._get(url, {"Accept": _ACCEPT}) as answer:
                    return _whole(answer, most_bytes), answer.headers
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if attempt == ATTEMPTS - 1 or isinstance(error, urllib3.exceptions.SSLError):
                    raise RegistryError(f"cannot reach registry {self.host}: {_plain(error)}") from error
                time.sleep(BETWEEN_S)
        raise AssertionError("unreachable")

    # One request

    @contextlib.contextmanager
    def _get(self, url: str, headers: Mapping[str, str]) -> Iterator[Any]:
        """The response of a successful GET. Raises ImageError, urllib3's HTTPError."""
        answer = self._follow(f"{url}{self._query}", headers)
        if answer.status == 401:
            challenges = answer.headers.getlist("WWW-Authenticate")
            answer.close()
            self._authorization = self._answer_to(challenges)
            answer = self._follow(f"{url}{self._query}", headers)
        try:
            self._check(answer, url)
            yield answer
        finally:
            answer.close()
            answer.release_conn()

    def _follow(self, url: str, headers: Mapping[str, str]) -> Any:
        for _ in range(MOST_REDIRECTS):
            own = _address(url).netloc == _address(self._base).netloc
            sent = {**headers, **(self._own_headers if own else {})}
            if own and self._authorization:
                sent["Authorization"] = self._authorization
            answer = self._request(url, sent)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            answer.close()
            target = _redirected(url, answer.headers.get("Location", ""))
            if _address(target).scheme != "https" and not self.plain:
                raise RegistryError(f"registry {self.host} redirects to {target[:200]}, which is not https")
            url = target
        raise RegistryError(f"registry {self.host} redirects more than {MOST_REDIRECTS} times")

    def _request(self, url: str, headers: Mapping[str, str], **more: Any) -> Any:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=STALL_S)
        return self._pools.request(
            more.pop("method", "GET"), url, headers={"Accept-Encoding": "identity", **headers}, redirect=False,
            retries=False, preload_content=False, timeout=timeout, **more,
        )  # fmt: skip

    def _check(self, answer: Any, url: str) -> None:
        if 200 <= answer.status < 300:
            return
        what = f"{self.host}/{self._path}"
        if answer.status in (401, 403):
            raise Denied(f"pull access denied for {what}: the registry wants other credentials ({answer.status})")
        if answer.status == 404:
            raise NoSuchImage(f"{what}: not found in the registry: {url.rpartition('/')[2]}")
        if answer.status == 429 or answer.status >= 500:
            raise urllib3.exceptions.HTTPError(f"status {answer.status}")
        raise RegistryError(f"registry {self.host} answers with status {answer.status}")

    # Credentials

    def _answer_to(self, challenges: Iterable[str]) -> str:
        """The header Authorization that a 401 asks for by its headers WWW-Authenticate. Raises ImageError."""
        basic = self._credentials.basic
        chosen = choose(challenges, with_user=bool(basic))
        if chosen is None:
            raise Denied(f"pull access denied for {self.host}/{self._path}: the registry wants credentials")
        return basic if chosen.scheme == "basic" else f"Bearer {self._token(chosen.fields)}"

    def _token(self, challenge: Mapping[str, str]) -> str:
        realm = challenge.get("realm", "")
        address = _address(realm)
        if address.scheme != "https" and not is_loopback(address.netloc):
            raise RegistryError(f"registry {self.host} names the token service {realm[:200]}, which is not https")
        fields = {
            "service": challenge.get("service", ""),
            "scope": challenge.get("scope") or f"repository:{self._path}:pull",
        }
        try:
            answer = self._ask_token(realm, {key: value for key, value in fields.items() if value})
            content = _whole(answer, TOKEN_BYTES)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RegistryError(f"cannot get a token from {address.netloc}: {_plain(error)}") from error
        if answer.status in (401, 403):
            raise Denied(f"pull access denied for {self.host}/{self._path}: {address.netloc} refuses the credentials")
        try:
            given = untrusted.decode_json(content, dict[str, Any])
            token = given.get("token") or given.get("access_token")
        except (msgspec.DecodeError, msgspec.ValidationError):
            token = None
        if answer.status != 200 or not isinstance(token, str) or "\n" in token or "\r" in token:
            raise RegistryError(f"{address.netloc} gives no token: status {answer.status}")
        return token

    def _ask_token(self, realm: str, fields: dict[str, str]) -> Any:
        if self._credentials.identity_token:
            fields |= {"grant_type": "refresh_token", "client_id": "nodevisor"}
            fields["refresh_token"] = self._credentials.identity_token
            return self._request(realm, {}, method="POST", fields=fields, encode_multipart=False)
        basic = self._credentials.basic
        return self._request(realm, {"Authorization": basic} if basic else {}, fields=fields)

    def _most(self) -> int:
        return self._store.limits.document_bytes


def _address(url: str) -> urllib.parse.SplitResult:
    """The parts of a URL from a registry. Raises RegistryError."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # reading it checks it
    except ValueError as error:
        raise RegistryError(f"cannot use the URL {url[:200]!r} that the registry names: {error}") from error
    return parts


def _redirected(url: str, location: str) -> str:
    """The target of a redirect. Raises RegistryError."""
    try:
        return urllib.parse.urljoin(url, location)
    except ValueError as error:
        raise RegistryError(f"cannot use the redirect to {location[:200]!r}: {error}") from error


def _whole(answer: Any, most_bytes: int) -> bytes:
    """A document's bytes. Raises BadImage when it is too large, HTTPError when it takes too long."""
    deadline, content = time.monotonic() + DOCUMENT_S, bytearray()
    while chunk := answer.read1(_CHUNK, decode_content=False):
        content += chunk
        if len(content) > most_bytes:
            raise BadImage(f"a document of more than {most_bytes} bytes")
        if time.monotonic() > deadline:
            raise urllib3.exceptions.HTTPError(f"a document takes more than {DOCUMENT_S:g} s")
    return _decoded(bytes(content), answer.headers.get("Content-Encoding", ""), most_bytes)


def _decoded(content: bytes, encoding: str, most_bytes: int) -> bytes:
    """Undo a Content-Encoding, which some registries' caches use without a request for it."""
    if encoding in ("", "identity"):
        return content
    if encoding not in ("gzip", "x-gzip", "zstd"):
        raise BadImage(f"a document with Content-Encoding {encoding[:50]!r}")
    plain = Unpacked(io.BytesIO(content)).read(most_bytes + 1)
    if len(plain) > most_bytes:
        raise BadImage(f"a document of more than {most_bytes} bytes")
    return plain


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _plain(error: Exception) -> str:
    """An error's message without the connection that urllib3 puts first."""
    return _CONNECTION.sub("", str(getattr(error, "reason", None) or error))
