"""Pulls from misbehaving registries, over HTTP on the loopback."""

import base64
import contextlib
import gzip
import json
import os
import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zstandard

from actors.runtime.images.errors import BadImage, Denied, ImageError, NoSuchImage, RegistryError
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import Image, ImageStore
from actors.runtime.images.sources import client
from actors.runtime.images.sources.challenges import Challenge, parse
from actors.runtime.images.sources.client import Credentials, Registry
from actors.runtime.images.sources.hosts import is_loopback
from actors.runtime.images.sources.source import add_image
from proto.cri import api_pb2 as pb
from tests.runtime.images.build import Made, entry, tar

LAYER = tar(*(entry(f"f{number}", os.urandom(20_000)) for number in range(40)))  # incompressible, for long transfers
NOBODY = Credentials()
INDEX = "application/vnd.oci.image.index.v1+json"


class FakeRegistry:
    """Serves one image; `answer` may handle any request and then returns True."""

    def __init__(self) -> None:
        self.made = Made(LAYER, how="gzip")
        described = self.made.described()
        self.digest = str(described["digest"])
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.answer: Callable[[Any], bool] = lambda _: False
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
                if not fake.answer(self):
                    fake.serve(self)

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client has disconnected
                    super().handle()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def content(self, path: str) -> bytes | None:
        name = path.rpartition("/")[2]
        return self.made.blobs.get(self.digest if name == "1" else name)

    def serve(self, request: Any) -> None:
        content = self.content(request.path)
        if content is None:
            self.say(request, 404, b"{}")
            return
        begin = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.say(request, 206 if begin else 200, content[begin:])

    def say(self, request: Any, status: int, body: bytes, **headers: str) -> None:
        request.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(key.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    def ranges(self) -> list[str]:
        return [headers["range"] for path, headers in self.seen if "/blobs/" in path and "range" in headers]


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with closing(FakeRegistry()) as one:
        yield one


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    monkeypatch.setattr(client, "BETWEEN_S", 0.01)
    monkeypatch.setattr(client, "STALL_S", 10.0)  # longer than a busy machine pauses, which would cost an attempt
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))


def pull(store: ImageStore, fake: FakeRegistry, name: str = "", credentials: Credentials = NOBODY) -> Image:
    full = name or f"{fake.host}/team/app:1"
    source = Registry(store, full, credentials)
    return add_image(store, source, full, source.resolve())


def test_pull_by_tag_and_by_digest(fake: FakeRegistry, store: ImageStore) -> None:
    image = pull(store, fake)
    assert image.tags == (f"{fake.host}/team/app:1",)
    assert store.stack(image.layers).find("f39") is not None
    before = len(fake.seen)
    again = pull(store, fake, f"{fake.host}/team/app@{fake.digest}")
    assert again.id == image.id
    assert not [path for path, _ in fake.seen[before:] if str(fake.made.layers[0]["digest"]) in path]
    assert list((store.root / "partial").iterdir()) == []


def test_manifest_list_gives_this_machines_image(fake: FakeRegistry, store: ImageStore) -> None:
    platform = {"os": "linux", "architecture": fake.made.config["architecture"]}
    manifest = fake.made.described()
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**manifest, "platform": platform}]})
    fake.digest = str(fake.made.blob(index.encode())["digest"])
    assert pull(store, fake).id


def test_broken_download_resumes(fake: FakeRegistry, store: ImageStore) -> None:
    broken = iter([100_000, 50_000, 200_000])

    def answer(request: Any) -> bool:
        if str(fake.made.layers[0]["digest"]) not in request.path or (part := next(broken, None)) is None:
            return False
        content = fake.content(request.path) or b""
        begin = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        request.send_response(206 if begin else 200)
        request.send_header("Content-Length", str(len(content) - begin))
        request.end_headers()
        request.wfile.write(content[begin : begin + part])
        request.close_connection = True
        return True

    fake.answer = answer
    assert pull(store, fake).id
    assert fake.ranges() == ["bytes=100000-", "bytes=150000-", "bytes=350000-"]


def test_download_restarts_if_the_registry_cannot_resume(fake: FakeRegistry, store: ImageStore) -> None:
    first = [True]

    def answer(request: Any) -> bool:
        if str(fake.made.layers[0]["digest"]) not in request.path:
            return False
        content = fake.content(request.path) or b""
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[: 1000 if first else len(content)])
        request.close_connection = bool(first)
        first.clear()
        return True

    fake.answer = answer
    assert pull(store, fake).id


def test_next_pull_resumes_a_download(fake: FakeRegistry, store: ImageStore) -> None:
    digest = str(fake.made.layers[0]["digest"])
    store.partial(digest).write_bytes(fake.made.blobs[digest][:70_000])
    assert pull(store, fake).id
    assert fake.ranges() == ["bytes=70000-"]


def test_stalling_registry_fails_in_time(
    fake: FakeRegistry, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "STALL_S", 0.5)
    over = threading.Event()

    def answer(request: Any) -> bool:
        if "/blobs/" not in request.path:
            return False
        over.wait(20)
        return True

    fake.answer = answer
    began = time.monotonic()
    with pytest.raises(RegistryError, match=r"cannot (reach|download)"):
        pull(store, fake)
    over.set()
    assert time.monotonic() - began < 15
    assert store.list() == []


def lies(fake: FakeRegistry, what: str) -> None:
    digest = str(fake.made.layers[0]["digest"])
    if what == "layer":
        fake.made.blobs[digest] = fake.made.blobs[digest][:-1] + b"x"
    elif what == "longer layer":
        fake.made.blobs[digest] += b"more"
    elif what == "config":
        config = fake.made.manifest()["config"]["digest"]
        fake.made.blobs[config] = fake.made.blobs[config].replace(b"linux", b"linus")
    elif what == "header":
        fake.answer = lambda request: (
            "/manifests/" in request.path
            and fake.say(request, 200, fake.content(request.path) or b"", Docker_Content_Digest="sha256:" + "0" * 64)
            is None
        )


@pytest.mark.parametrize("what", ["layer", "longer layer", "config", "header"])
def test_wrong_digest_of_a_registry_is_refused(fake: FakeRegistry, store: ImageStore, what: str) -> None:
    lies(fake, what)
    with pytest.raises(BadImage):
        pull(store, fake)
    assert store.list() == []
    assert os.listdir(store.layers_dir) == []


def test_pull_by_digest_refuses_other_content(fake: FakeRegistry, store: ImageStore) -> None:
    wanted = f"sha256:{'1' * 64}"
    fake.made.blobs[wanted] = fake.made.blobs[fake.digest]
    with pytest.raises(BadImage, match="was asked for"):
        pull(store, fake, f"{fake.host}/team/app@{wanted}")


def test_missing_image_is_an_error(fake: FakeRegistry, store: ImageStore) -> None:
    with pytest.raises(NoSuchImage, match="not found"):
        pull(store, fake, f"{fake.host}/team/app:none")


def with_basic(fake: FakeRegistry, user: str, password: str) -> None:
    wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def answer(request: Any) -> bool:
        if request.headers.get("Authorization") == wanted:
            return False
        fake.say(request, 401, b"{}", WWW_Authenticate='Basic realm="tests"')
        return True

    fake.answer = answer


def test_basic_credentials(fake: FakeRegistry, store: ImageStore) -> None:
    with_basic(fake, "me", "secret")
    with pytest.raises(Denied):
        pull(store, fake)
    with pytest.raises(Denied):
        pull(store, fake, credentials=Credentials("me", "wrong"))
    assert pull(store, fake, credentials=Credentials("me", "secret")).id


def with_tokens(fake: FakeRegistry, service: FakeRegistry, wanted: str = "") -> None:
    def token(request: Any) -> bool:
        if wanted and request.headers.get("Authorization") != wanted:
            service.say(request, 401, b"{}")
        else:
            service.say(request, 200, b'{"token": "t0ken"}')
        return True

    def answer(request: Any) -> bool:
        if request.headers.get("Authorization") == "Bearer t0ken":
            return False
        challenge = f'Bearer realm="http://{service.host}/token",service="reg",scope="repository:team/app:pull"'
        fake.say(request, 401, b"{}", WWW_Authenticate=challenge)
        return True

    service.answer, fake.answer = token, answer


def test_anonymous_and_authenticated_tokens(fake: FakeRegistry, store: ImageStore) -> None:
    with closing(FakeRegistry()) as service:
        with_tokens(fake, service)
        assert pull(store, fake).id
        assert "scope=repository%3Ateam%2Fapp%3Apull" in service.seen[0][0]
        with_tokens(fake, service, "Basic " + base64.b64encode(b"me:secret").decode())
        with pytest.raises(Denied, match="refuses the credentials"):
            pull(store, fake)
        assert pull(store, fake, credentials=Credentials("me", "secret")).id


def test_credentials_are_not_sent_to_redirect_targets(fake: FakeRegistry, store: ImageStore) -> None:
    with closing(FakeRegistry()) as elsewhere:
        elsewhere.made = fake.made
        wanted = "Basic " + base64.b64encode(b"me:secret").decode()

        def answer(request: Any) -> bool:
            if request.headers.get("Authorization") != wanted:
                fake.say(request, 401, b"{}", WWW_Authenticate='Basic realm="tests"')
            elif "/blobs/" in request.path:
                fake.say(request, 307, b"", Location=f"http://{elsewhere.host}{request.path}")
            else:
                return False
            return True

        fake.answer = answer
        assert pull(store, fake, credentials=Credentials("me", "secret")).id
        assert elsewhere.seen
        assert not [headers for _, headers in elsewhere.seen if "authorization" in headers]


def test_redirect_loop_ends(fake: FakeRegistry, store: ImageStore) -> None:
    fake.answer = lambda request: fake.say(request, 302, b"", Location=request.path) is None
    with pytest.raises(RegistryError, match="redirects"):
        pull(store, fake)


def test_token_service_without_tls_gets_no_credentials(fake: FakeRegistry, store: ImageStore) -> None:
    challenge = 'Bearer realm="http://tokens.example.com/token",service="x"'
    fake.answer = lambda request: fake.say(request, 401, b"{}", WWW_Authenticate=challenge) is None
    with pytest.raises(RegistryError, match="not https"):
        pull(store, fake, credentials=Credentials("me", "secret"))


def test_oversized_document_is_not_read(fake: FakeRegistry, store: ImageStore) -> None:
    fake.answer = lambda request: fake.say(request, 200, b" " * (5 << 20)) is None
    with pytest.raises(BadImage, match="document of more than"):
        pull(store, fake)


def test_only_loopback_is_plain_http(store: ImageStore) -> None:
    assert is_loopback("localhost:5000")
    assert is_loopback("127.0.0.1:5000")
    assert is_loopback("[::1]:5000")
    assert not is_loopback("localhost.example.com")
    assert not is_loopback("10.0.0.1:5000")
    assert not Registry(store, "registry.test/app:1", Credentials()).plain


def test_credentials_of_a_pull_request() -> None:
    packed = base64.b64encode(b"me:se:cret").decode()
    assert Credentials.of(pb.AuthConfig(auth=packed), "r.test") == Credentials("me", "se:cret")
    with pytest.raises(BadImage):
        Credentials.of(pb.AuthConfig(auth="no base64"), "r.test")


@pytest.mark.parametrize(
    ("server", "registry", "used"),
    [
        ("", "r.test", True),
        ("https://r.test", "r.test", True),
        ("https://R.test/v2/", "r.test", True),
        ("r.test:5000", "r.test:5000", True),
        ("https://index.docker.io/v1/", "docker.io", True),
        ("registry-1.docker.io", "docker.io", True),
        ("docker.io", "registry-1.docker.io", True),
        ("https://other.test", "r.test", False),
        ("https://r.test.evil.test", "r.test", False),
        ("https://r.test:5000", "r.test", False),
        ("https://other.test/r.test", "r.test", False),
        ("https://", "r.test", False),
    ],
)
def test_credentials_of_another_server_are_not_used(server: str, registry: str, used: bool) -> None:
    secrets = {"username": "me", "password": "secret", "identity_token": "i", "registry_token": "t"}
    found = Credentials.of(pb.AuthConfig(server_address=server, **secrets), registry)
    assert found == (Credentials(*secrets.values()) if used else Credentials())


def test_unreachable_registry_has_a_readable_error(store: ImageStore) -> None:
    with socket.socket() as taken:  # a port without a listener, reserved meanwhile
        taken.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RegistryError) as told:
            Registry(store, f"{host}/app/web:1", Credentials()).resolve()
    assert str(told.value).startswith(f"cannot reach registry {host}: Failed to establish a new connection: ")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_compressed_document_is_read_within_the_limit(fake: FakeRegistry, store: ImageStore, encoding: str) -> None:
    """The limit of a document is 4 MB. This one has 200 MB, which a decoder would hold in memory."""
    packer: Any = zstandard.ZstdCompressor().compressobj() if encoding == "zstd" else zlib.compressobj(wbits=31)
    bomb = b"".join([packer.compress(bytes(1 << 20)) for _ in range(200)]) + packer.flush()

    def answer(request: Any) -> bool:
        fake.say(request, 200, bomb, Content_Encoding=encoding)
        return True

    fake.answer = answer
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImageError):
        pull(store, fake)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 64 << 20


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_document_compressed_by_a_cache_is_read(fake: FakeRegistry, store: ImageStore, encoding: str) -> None:
    def answer(request: Any) -> bool:
        if "/manifests/" not in request.path:
            return False
        content = fake.content(request.path) or b""
        packed = zstandard.compress(content) if encoding == "zstd" else gzip.compress(content)
        fake.say(request, 200, packed, Content_Encoding=encoding)
        return True

    fake.answer = answer
    assert pull(store, fake).manifest == fake.digest


def test_challenge_of_letters_takes_no_quadratic_time() -> None:
    began = time.process_time()
    found = parse("a" * 60_000 + ' realm="x",service="y"')
    assert found == [Challenge("a" * 60_000, {"realm": "x", "service": "y"})]
    assert time.process_time() - began < 1
