"""Static pods from a URL: the config actor in its own process, and a server that lies."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors._pki.pki import Names, self_signed
from actors.config.sources import fetch as fetching
from actors.config.sources.fetch import fetch
from actors.config.sources.url_policy import FetchError
from proto.agent.actor import Describe
from proto.pods.config import ListSources, Relist, SourceProblem
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import PodUpdate
from tests.config.lying_server import (
    HUGE,
    Answer,
    LyingServer,
    drip,
    drip_head,
    huge_chunks,
    pod,
    pod_list,
    redirect,
    whole,
)
from tests.harness import ActorProcess, wait_for

GOOD = whole(pod("a"))


@contextmanager
def config(url: str, **overrides: object) -> Iterator[ActorProcess]:
    """The actor; it asks the server when a test says so, and once at its start."""
    settings = {"static_pod_url": url, "http_check_frequency_s": 3600.0, **overrides}
    with ActorProcess("config", peers=("pod_workers", "events"), **settings) as process:
        yield process


def updates(process: ActorProcess) -> list[PodUpdate]:
    return [one for one in process.peers["pod_workers"].of(PodUpdate) if one.source == "http"]


def ops(process: ActorProcess) -> list[str]:
    """Of the updates. A SET is sent again when pod_workers' start is heard of after the first: they count once."""
    found = [update.op for update in updates(process)]
    while found[:2] == ["SET", "SET"]:
        found.pop(0)
    return found


def images(process: ActorProcess) -> dict[str, str | None]:
    found: dict[str, tuple[str, str | None]] = {}
    for update in updates(process):
        if update.op == "SET":
            found = {}
        for one in update.pods:
            if update.op == "REMOVE":
                found.pop(one.metadata.uid, None)
            else:
                found[one.metadata.uid] = (one.metadata.name, one.spec.containers[0].image)
    return dict(found.values())


def read_again(process: ActorProcess) -> None:
    process.ask(Relist(), timeout_s=30)


def problems(process: ActorProcess) -> tuple[SourceProblem, ...]:
    return process.ask(ListSources()).problems


def seen(process: ActorProcess) -> bool:
    return bool(wait_for(lambda: updates(process), what="the SET of the URL's pods"))


def test_pods_of_a_list_follow_the_answer() -> None:
    with LyingServer(whole(pod_list(("a", "one"), ("b", "one")))) as server, config(server.url) as process:
        assert seen(process)
        assert images(process) == {"a-node": "one", "b-node": "one"}
        (first, _) = updates(process)[0].pods
        assert first.metadata.annotations["kubernetes.io/config.source"] == "http"
        assert first.metadata.annotations["kubernetes.io/config.hash"] == first.metadata.uid
        assert first.metadata.namespace == "default"
        assert not first.spec.tolerations
        read_again(process)
        assert ops(process) == ["SET"], "an unchanged answer is no update"
        server.answer = whole(pod_list(("a", "two"), ("b", "one")))
        read_again(process)
        wait_for(lambda: images(process) == {"a-node": "two", "b-node": "one"})
        server.answer = whole(pod_list())
        read_again(process)
        wait_for(lambda: images(process) == {})
        assert problems(process) == ()


def test_the_period_is_kept() -> None:
    with LyingServer(GOOD) as server, config(server.url, http_check_frequency_s=1.0) as process:
        assert seen(process)
        server.answer = whole(pod("a", "other"))
        wait_for(lambda: images(process) == {"a-node": "other"}, 20, "the next fetch; the default is in an hour")


LIES = {
    "garbage": (whole(b"\x00\x01\x02 : ["), "not YAML"),
    "html": (whole(b"<html><body>It works!</body></html>"), "must be a mapping"),
    "not found": (whole(b"no", "404 Not Found"), "answers 404 'Not Found'"),
    "failure": (whole(pod("z"), "500 Oh"), "answers 500"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", "answers 204"),
    "empty": (whole(b""), "the answer is empty"),
    "huge": (f"HTTP/1.1 200 OK\r\nContent-Length: {HUGE}\r\n\r\n".encode(), "more than 10485760 bytes"),
    "huge chunks": (huge_chunks, "more than 10485760 bytes"),
    "truncated": (whole(pod("z"))[:-5], "IncompleteRead"),
    "no end": (b"HTTP/1.0 200 OK\r\n\r\n" + pod("z"), "no Content-Length"),
    "compressed": (whole(pod("z"), "200 OK", "Content-Encoding: gzip"), "encoded as 'gzip'"),
    "not utf-8": (whole(pod("z") + b"# \xff\n"), "not UTF-8"),
    "bad pod": (whole(pod_list(("w", "good"), ("z", "[]"))), "must be text"),
    "other kind": (whole(b"apiVersion: v1\nkind: Secret\nmetadata: {name: z}\n"), "must be Pod, not 'Secret'"),
    "items": (whole(b"apiVersion: v1\nkind: PodList\nitems: {}\n"), "must be a list"),
    "loop": (redirect("/pods"), "redirected more than 10 times"),
    "nowhere": (redirect("file:///etc/shadow"), "no http or https URL"),
    "no location": (whole(b"", "302 Found"), "without a Location"),
    "not http": (b"220 smtp.example ESMTP\r\n", "220 smtp"),
    "hangs up": (b"", "closed"),
}


def test_every_lie_keeps_the_last_good_pods() -> None:
    with LyingServer(GOOD) as server, config(server.url) as process:
        assert seen(process)
        wrong = {}
        for name, (answer, expected) in LIES.items():
            server.answer = answer
            read_again(process)
            found = problems(process)
            if not any(expected in one.problem and one.keeps_previous for one in found):
                wrong[name] = found
        assert not wrong
        assert images(process) == {"a-node": "busybox"}
        assert ops(process) == ["SET"]
        server.answer = GOOD
        read_again(process)
        assert problems(process) == ()
        assert len(process.peers["events"].of(RecordEvent)) == 6, "one event for each bad content"


def test_a_bad_pod_of_a_list_is_reported_with_its_field() -> None:
    with LyingServer(whole(pod_list(("w", "good"), ("z", "[]")))) as server, config(server.url) as process:
        (one,) = wait_for(lambda: problems(process))
        assert (one.file, one.line, one.field) == (server.url, 7, "items[1].spec.containers[0].image")
        assert not one.keeps_previous
        assert not updates(process)


def test_pod_with_a_name_that_is_there_is_left_out_alone() -> None:
    pods = pod_list(("w", "first"), ("w", "second"), ("z", "third"))
    with LyingServer(whole(pods)) as server, config(server.url) as process:
        assert seen(process)
        assert images(process) == {"w-node": "first", "z-node": "third"}
        (one,) = problems(process)
        assert (one.line, one.field, one.keeps_previous) == (6, "items[1].metadata.name", False)
        assert "items[0].metadata.name has the same; this pod is left out" in one.problem
        (event,) = process.peers["events"].of(RecordEvent)
        assert "Duplicate value" in event.message
        server.answer = whole(pod_list(("w", "second"), ("z", "third")))
        read_again(process)
        wait_for(lambda: images(process) == {"w-node": "second", "z-node": "third"})
        assert problems(process) == ()


@pytest.mark.parametrize("answer", [drip, drip_head])
def test_body_that_never_ends_has_a_deadline(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FETCH_S", 1.0)
    with LyingServer(answer) as server:
        began = time.monotonic()
        with pytest.raises(FetchError, match="no whole answer within 1 s"):
            fetch(server.url, {})
        assert time.monotonic() - began < 8


def test_headers_go_to_the_first_origin_only() -> None:
    header = {"Authorization": ("Bearer s3cret",), "X-Key": ("s3cret-1", "s3cret-2"), "Content-Length": ("9",)}
    with LyingServer(GOOD) as other, LyingServer() as server:
        server.paths = {"/pods": redirect("/there"), "/there": redirect(other.url, "307 There")}
        assert fetch(server.url, header) == pod("a")
        for head in server.heads:
            assert "Authorization: Bearer s3cret\r\n" in head
            assert "X-Key: s3cret-1\r\n" in head
            assert "X-Key: s3cret-2\r\n" in head
            assert "Content-Length" not in head
        assert len(server.heads) == 2
        (last,) = other.heads
        assert "s3cret" not in last


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with LyingServer(GOOD) as server:
        assert fetch(server.url, {}) == pod("a")


def test_tls_needs_an_authority_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = self_signed(Names(common_name="pods", addresses=("127.0.0.1",)))
    file = tmp_path / "pem"
    file.write_text(pem.key + pem.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with LyingServer(GOOD, tls=context) as server:
        with pytest.raises(FetchError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(server.url, {})
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert fetch(server.url, {}) == pod("a")
        with pytest.raises(FetchError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(server.url.replace("127.0.0.1", "localhost"), {})


def test_restart_without_the_server_keeps_the_pods() -> None:
    with LyingServer(GOOD) as server:
        port = server.port
        with config(server.url) as process:
            assert seen(process)
            server.answer = whole(pod("a", "newer"))
            read_again(process)
            wait_for(lambda: images(process) == {"a-node": "newer"})
            before = updates(process)[-1].pods
            server.answer = whole(b"", "503 Away")
            process.peers["pod_workers"].received.clear()
            process.restart()
            assert seen(process)
            assert ops(process) == ["SET"]
            assert updates(process)[-1].pods == before, "the same UID and the same first sight"
            assert problems(process)[0].keeps_previous
            assert str(port) in problems(process)[0].file


def test_saved_pods_are_removed_with_the_url() -> None:
    with LyingServer(GOOD) as server, config(server.url) as process:
        assert seen(process)
        saved = Path(process.settings.root_dir, "nodevisor", "config-url.json")
        wait_for(saved.exists)
        process.restart()
        assert saved.exists()
        process.settings = replace(process.settings, static_pod_url="")
        process.restart()
        assert not saved.exists()


def test_pods_are_not_seen_before_a_first_good_answer() -> None:
    with LyingServer(whole(b"", "503 Away")) as server, config(server.url) as process:
        wait_for(lambda: problems(process))
        read_again(process)
        assert not updates(process)
        server.answer = GOOD
        read_again(process)
        assert seen(process)
        assert images(process) == {"a-node": "busybox"}


def test_empty_answer_counts_as_read_before_any_pod_is_known() -> None:
    with LyingServer(whole(b"")) as server, config(server.url) as process:
        assert seen(process)
        assert images(process) == {}
        assert "the answer is empty" in problems(process)[0].problem
        read_again(process)
        assert ops(process) == ["SET"]
        server.answer = GOOD
        read_again(process)
        wait_for(lambda: images(process) == {"a-node": "busybox"})
        assert problems(process) == ()


def test_empty_answer_after_a_restart_keeps_the_saved_pods() -> None:
    with LyingServer(GOOD) as server, config(server.url) as process:
        assert seen(process)
        server.answer = whole(b"")
        process.peers["pod_workers"].received.clear()
        process.restart()
        assert seen(process)
        assert images(process) == {"a-node": "busybox"}


@pytest.mark.parametrize("content", ["{", '{"version": 1, "checksum": 0, "data": null}', None], ids=str)
def test_empty_answer_ends_no_pods_of_a_damaged_checkpoint(content: str | None) -> None:
    with LyingServer(GOOD) as server, config(server.url) as process:
        assert seen(process)
        saved = Path(process.settings.root_dir, "nodevisor", "config-url.json")
        wait_for(saved.exists)
        if content is None:
            saved.unlink()
            saved.mkdir()  # the read fails
        else:
            saved.write_text(content)
        server.answer = whole(b"")
        process.peers["pod_workers"].received.clear()
        process.restart()
        read_again(process)
        assert not updates(process)
        server.answer = GOOD
        read_again(process)
        assert seen(process)
        assert images(process) == {"a-node": "busybox"}


def test_another_url_does_not_take_the_pods_of_the_old_one() -> None:
    with LyingServer(GOOD) as server, config(server.url) as process:
        assert seen(process)
        root = process.settings.root_dir
        away = f"http://127.0.0.1:{server.port}/other"
        server.paths = {"/other": whole(b"", "503 Away")}
        with config(away, root_dir=root) as other:
            wait_for(lambda: problems(other))
            read_again(other)
            assert not updates(other)


def test_secrets_are_in_no_output_of_the_actor() -> None:
    with LyingServer(whole(b"", "401 No")) as server:
        url = server.url.replace("//", "//me:s3cret@") + "?token=s3cret"
        with config(url, static_pod_url_header={"X-Key": ("s3cret",)}) as process:
            shown = wait_for(lambda: problems(process))
            described = process.ask(Describe())
            assert "Authorization: Basic bWU6czNjcmV0\r\n" in server.heads[0]
            assert "X-Key: s3cret\r\n" in server.heads[0]
            assert "s3cret" not in repr(shown) + repr(described)
            assert shown[0].file == f"{server.url}?..."
