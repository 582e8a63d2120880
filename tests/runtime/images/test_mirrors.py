"""Mirrors: parsing of hosts.toml, and pulls that continue at the next host after an error."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from actors.runtime.images.errors import NoSuchImage, RegistryError
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import Image, ImageStore
from actors.runtime.images.sources import client, connections, partial
from actors.runtime.images.sources.client import Credentials
from actors.runtime.images.sources.hosts import BadHosts, Host, hosts_of
from actors.runtime.images.sources.mirrors import Mirrored
from actors.runtime.images.sources.progress import Cancelled, Pull, Pulls
from actors.runtime.images.sources.source import add_image
from tests.harness import wait_for
from tests.runtime.images.test_registry import FakeRegistry

SECRET = Credentials(username="me", password="secret")


def write(directory: Path, registry: str, text: str) -> str:
    (directory / registry).mkdir(parents=True)
    (directory / registry / "hosts.toml").write_text(text)
    return str(directory)


def test_registry_without_files_is_its_own_host(tmp_path: Path) -> None:
    assert hosts_of("docker.io", str(tmp_path)) == (Host("https://registry-1.docker.io/v2", registry=True),)
    assert hosts_of("127.0.0.1:5000", str(tmp_path))[0].url == "http://127.0.0.1:5000/v2"


def test_mirrors_keep_their_order_before_the_registry(tmp_path: Path) -> None:
    text = """
    server = "https://own.example"
    [host."https://one.example:5000"]
      capabilities = ["pull"]
      ca = "ca.pem"
      client = [["client.pem", "client.key"]]
      [host."https://one.example:5000".header]
        X-Team = ["a", "b"]
    [host."http://two.example/proxy/path"]
      override_path = true
      skip_verify = true
    """
    one, two, own = hosts_of("reg.example:5000", write(tmp_path, "reg.example_5000", text))
    assert (one.url, one.capabilities) == ("https://one.example:5000/v2", frozenset({"pull"}))
    assert one.ca == (f"{tmp_path}/reg.example_5000/ca.pem",)
    assert one.client == tuple(f"{tmp_path}/reg.example_5000/client.{end}" for end in ("pem", "key"))
    assert one.headers == {"X-Team": "a, b"}
    assert (two.url, two.skip_verify) == ("http://two.example/proxy/path", True)
    assert (own.url, own.registry) == ("https://own.example/v2", True)
    assert [host.registry for host in (one, two)] == [False, False]


def test_default_file_is_for_registries_without_their_own(tmp_path: Path) -> None:
    write(tmp_path, "_default", '[host."https://mirror.example"]')
    write(tmp_path, "own.example", "")
    assert [host.name for host in hosts_of("any.example", str(tmp_path))] == ["mirror.example", "any.example"]
    assert [host.name for host in hosts_of("own.example", str(tmp_path))] == ["own.example"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("server = [", "cannot use"),
        ('server = "ftp://x"', "not a URL"),
        ('server = "https://user:word@x"', "not a URL"),
        ('[host."https://x"]\ncapabilities = ["fly"]', "unknown fly"),
        ('[host."https://x"]\nskip_verify = "yes"', "true or false"),
        ('[host."https://x"]\nca = 5', "ca"),
        ('[host."https://x".header]\nA = "b\\r\\nC: d"', "line break"),
        ("host = 5", "tables"),
    ],
)
def test_error_names_file_and_field(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadHosts, match=why) as told:
        hosts_of("reg.example", write(tmp_path, "reg.example", text))
    assert "reg.example/hosts.toml" in str(told.value)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    monkeypatch.setattr(client, "BETWEEN_S", 0.01)
    monkeypatch.setattr(client, "STALL_S", 5.0)
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))


@pytest.fixture
def fakes() -> Iterator[tuple[FakeRegistry, FakeRegistry]]:
    """A mirror and the registry, with the same image."""
    with ExitStack() as stack:
        mirror, own = (stack.enter_context(closing(FakeRegistry())) for _ in range(2))
        yield mirror, own


def pull(store: ImageStore, mirror: FakeRegistry, own: FakeRegistry, told: Pull | None = None) -> Image:
    name = f"{own.host}/team/app:1"
    told = told or Pull(name)
    hosts = (Host(f"http://{mirror.host}/v2"), Host(f"http://{own.host}/v2", registry=True))
    source = Mirrored(store, name, SECRET, hosts, told)
    return add_image(store, source, name, source.resolve(), told)


def test_mirror_replaces_registry_without_credentials(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry]
) -> None:
    mirror, own = fakes
    mirror.content = lambda path: FakeRegistry.content(mirror, path.partition("?")[0])  # type: ignore[method-assign]
    image = pull(store, mirror, own)
    assert image.tags == (f"{own.host}/team/app:1",)
    assert own.seen == []
    assert all(path.endswith(f"?ns={own.host.replace(':', '%3A')}") for path, _ in mirror.seen)
    assert not any("authorization" in headers for _, headers in mirror.seen)


def refuse(fake: FakeRegistry, request: Any) -> bool:
    fake.say(request, 401, b"{}", WWW_Authenticate='Basic realm="x"')
    return True


def lie(fake: FakeRegistry, request: Any) -> bool:
    if "/blobs/" not in request.path:
        return False
    content = fake.content(request.path.partition("?")[0]) or b""
    fake.say(request, 200, bytes(len(content)))
    return True


def break_off(fake: FakeRegistry, request: Any) -> bool:
    content = fake.content(request.path.partition("?")[0]) or b""
    if "/blobs/" not in request.path or len(content) < 100_000:
        return False
    request.send_response(200)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if "range" not in {key.lower() for key in request.headers}:
        request.wfile.write(content[:100_000])
    request.close_connection = True
    return True


@pytest.mark.parametrize("how", [refuse, lie, break_off])
def test_registry_gives_what_a_mirror_lacks(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry], how: Callable[[FakeRegistry, Any], bool]
) -> None:
    mirror, own = fakes
    mirror.content = lambda path: FakeRegistry.content(mirror, path.partition("?")[0])  # type: ignore[method-assign]
    own.made, own.digest = mirror.made, mirror.digest
    mirror.answer = lambda request: how(mirror, request)
    image = pull(store, mirror, own)
    assert store.get(image.id).layers
    assert own.seen
    assert list(store.partial_dir.iterdir()) == []


def test_registrys_error_is_reported_if_all_hosts_fail(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry]
) -> None:
    mirror, own = fakes
    for one in fakes:
        one.answer = lambda request, one=one: (one.say(request, 404, b"{}"), True)[1]  # type: ignore[func-returns-value]
    with pytest.raises(NoSuchImage, match=own.host):
        pull(store, mirror, own)


# Slow hosts


def drip(fake: FakeRegistry, pause_s: float, over: threading.Event) -> Callable[[Any], bool]:
    """A layer, a few bytes at a time."""

    def answer(request: Any) -> bool:
        content = fake.content(request.path) or b""
        if "/blobs/" not in request.path or len(content) < 100_000:
            return False
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        for begin in range(0, len(content), 100):
            if over.wait(pause_s):
                break
            request.wfile.write(content[begin : begin + 100])
        return True

    return answer


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def only(store: ImageStore, fake: FakeRegistry, told: Pull) -> Image:
    source = Mirrored(store, told.name, SECRET, (Host(f"http://{fake.host}/v2", registry=True),), told)
    return add_image(store, source, told.name, source.resolve(), told)


def test_trickling_registry_fails(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry], over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SLOW_S", 0.3)
    monkeypatch.setattr(client, "ATTEMPTS", 1)
    own = fakes[1]
    own.answer = drip(own, 0.05, over)
    failures = iter(range(1000))

    def no_progress(path: Path, *_: Any) -> None:
        next(failures)
        path.unlink(missing_ok=True)  # else downloaded bytes count as progress

    monkeypatch.setattr(client, "check_room", lambda where, _: [no_progress(path) for path in Path(where).iterdir()])
    with pytest.raises(RegistryError, match=r"only \d+ bytes in 0.3 s"):
        only(store, own, Pull(f"{own.host}/team/app:1"))
    assert next(failures) > 0


@pytest.fixture
def slow(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry], over: threading.Event
) -> Iterator[Callable[[], Pull]]:
    """Starts a pull that takes for ever; the other registry has the same layers."""
    mirror, own = fakes
    own.made, own.digest = mirror.made, mirror.digest
    mirror.answer = drip(mirror, 0.05, over)
    told = Pull(f"{mirror.host}/team/app:1")

    def work() -> None:
        with contextlib.suppress(Cancelled):
            only(store, mirror, told)

    thread = threading.Thread(target=work)

    def begin() -> Pull:
        thread.start()
        wait_for(lambda: told.done_bytes, 20, "it downloads")
        return told

    yield begin
    told.cancel()
    over.set()
    thread.join()


def test_a_slow_registry_does_not_hold_up_others_pulls_of_a_layer(
    store: ImageStore,
    fakes: tuple[FakeRegistry, FakeRegistry],
    slow: Callable[[], Pull],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partial, "SHARE_S", 0.3)
    first = slow()
    own = fakes[1]
    image = only(store, own, Pull(f"{own.host}/team/app:1"))
    assert store.get(image.id).layers
    assert first.done_bytes < first.total_bytes
    assert [path.suffix for path in store.partial_dir.iterdir()] == [""]  # the slow one's


def test_pull_that_waits_for_another_can_be_cancelled(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry], slow: Callable[[], Pull]
) -> None:
    slow()
    own = fakes[1]
    waiting = Pull(f"{own.host}/team/app:1")
    timer = threading.Timer(0.5, waiting.cancel)
    timer.start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        only(store, own, waiting)
    assert time.monotonic() - began < partial.SHARE_S
    timer.join()


def test_endless_response_head_fails(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry], over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(client, "ATTEMPTS", 2)
    own = fakes[1]

    def answer(request: Any) -> bool:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.wait(0.05):
            request.wfile.write(b"x")
            request.wfile.flush()
        return True

    own.answer = answer
    began = time.monotonic()
    with pytest.raises(RegistryError, match="cannot reach"):
        only(store, own, Pull(f"{own.host}/team/app:1"))
    assert time.monotonic() - began < 20


def test_cancelled_pull_ends_and_is_resumed_later(
    store: ImageStore, fakes: tuple[FakeRegistry, FakeRegistry], over: threading.Event
) -> None:
    own, pulls = fakes[1], Pulls()
    own.answer = drip(own, 0.01, over)
    name = f"{own.host}/team/app:1"
    failed: list[Exception] = []

    def work() -> None:
        with pulls.track(name) as told:
            try:
                only(store, own, told)
            except Cancelled as error:
                failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 20
    while not (pulls.list() and pulls.list()[0].done_bytes > 1000):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (told,) = pulls.list()
    assert 0 < told.done_bytes < told.total_bytes
    assert (told.layers_done, len(told.sizes)) == (0, 1)
    assert str(told).endswith("MB, 0 of 1 layers")
    told.cancel()
    thread.join(20)
    assert not thread.is_alive()
    assert len(failed) == 1
    assert pulls.list() == []
    (partial,) = store.partial_dir.iterdir()
    have = partial.stat().st_size
    own.answer = lambda _: False
    only(store, own, Pull(name))
    assert own.ranges()[-1] == f"bytes={have}-"
