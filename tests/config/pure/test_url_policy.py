"""Requests of a URL with static pods: headers, redirects, and answers that are not used."""

import json

import pytest

from actors.config.pods.static_pods import load_answer
from actors.config.sources.url_policy import FetchError, answer_problem, first, redirected, shown
from actors.config.validation.problems import ManifestError
from tests.config.lying_server import pod, pod_list

SECRET = {"X-Key": ("s3cret",)}


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://h/p", "http://h/p"),
        ("https://me:pass@h:8443/p", "https://h:8443/p"),
        ("http://h/p?token=x", "http://h/p?..."),
        ("http://a@b@[::1]:80/", "http://[::1]:80/"),
        ("http://[::1/", "(a URL that cannot be parsed)"),
    ],
)
def test_url_is_shown_without_secrets(url: str, text: str) -> None:
    assert shown(url) == text


@pytest.mark.parametrize(
    ("start", "location", "url", "kept"),
    [
        ("http://h/a", "/b", "http://h:80/b", True),
        ("http://h/a/b", "c?d=e", "http://h:80/a/c?d=e", True),
        ("http://h/a", "http://H:80/b", "http://h:80/b", True),
        ("http://h/a", "//other/b", "http://other:80/b", False),
        ("http://h/a", "http://h:81/b", "http://h:81/b", False),
        ("http://h/a", "https://h/b", "https://h:443/b", False),
        ("https://h/a", "https://h.evil/b", "https://h.evil:443/b", False),
        ("http://h/a", "http://u:p@h/b", "http://h:80/b", True),
        ("http://[::1]:8/a", "/b c\u00e4", "http://[::1]:8/b%20c%C3%A4", True),
    ],
)
def test_redirect_keeps_headers_within_its_origin(start: str, location: str, url: str, kept: bool) -> None:
    following = redirected(first(start, SECRET), location)
    assert following.url() == url
    assert bool(following.headers) is kept


@pytest.mark.parametrize(
    ("start", "location", "problem"),
    [
        ("https://h/a", "http://h/b", "from https to http://h:80/b"),
        ("http://h/a", "", "without a Location"),
        ("http://h/a", "ftp://h/b", "no http or https"),
        ("http://h/a", "http://h:99999/b", "no http or https"),
        ("http://h/a", "http://[::1/b", "no http or https"),
    ],
)
def test_redirect_that_is_not_followed(start: str, location: str, problem: str) -> None:
    with pytest.raises(FetchError, match=problem):
        redirected(first(start, SECRET), location)


def test_redirects_are_counted() -> None:
    request = first("http://h/a", {})
    for _ in range(10):
        request = redirected(request, "/a")
    with pytest.raises(FetchError, match="more than 10 times"):
        redirected(request, "/a")


def test_headers_of_the_client_are_not_replaced() -> None:
    header = {"Host": ("x",), "Content-Length": ("5",), "transfer-encoding": ("chunked",), "Accept": ("a", "b")}
    assert first("http://h/", header).headers == (("Accept", "a"), ("Accept", "b"))


def test_user_of_the_url_is_sent_unless_a_header_is() -> None:
    assert first("http://me:p%40ss@h/", {}).headers == (("Authorization", "Basic bWU6cEBzcw=="),)
    assert first("http://me:pass@h/", {"authorization": ("x",)}).headers == (("authorization", "x"),)


@pytest.mark.parametrize(
    ("status", "header", "problem"),
    [
        (200, {"content-length": "5"}, ""),
        (200, {"transfer-encoding": "chunked"}, ""),
        (200, {"content-length": "5", "content-encoding": "identity"}, ""),
        (206, {"content-length": "5"}, "must be 200"),
        (200, {}, "no Content-Length"),
        (200, {"content-length": "-1"}, "no Content-Length"),
        (200, {"content-length": "\u0665"}, "no Content-Length"),
        (200, {"content-length": "9" * 5000}, "more than 10485760"),
        (200, {"content-length": "10485761"}, "more than 10485760"),
        (200, {"content-length": "5", "content-encoding": "br"}, "encoded as 'br'"),
    ],
)
def test_answer_that_is_not_read(status: int, header: dict[str, str], problem: str) -> None:
    found = answer_problem(status, "OK", header)
    assert problem in found
    assert bool(found) is bool(problem)


def test_uid_of_a_url_pod_depends_on_the_url_alone() -> None:
    def uid(url: str, node: str) -> str:
        return load_answer(url, url, pod("a"), node)[0].pod.metadata.uid

    assert uid("http://h/a", "n") == uid("http://h/a", "m")
    assert uid("http://h/a", "n") != uid("http://h/b", "n")


def test_list_items_may_leave_out_their_kind() -> None:
    one, two = load_answer("u", "u", pod_list(("a", "one"), ("b", "two")), "n")
    assert (one.pod.metadata.name, two.pod.metadata.name) == ("a-n", "b-n")
    assert one.pod.status.phase == "Pending"
    with pytest.raises(ManifestError, match=r"items\[0\]\.kind: must be Pod, not 'Job'"):
        load_answer("u", "u", b'{"apiVersion": "v1", "kind": "PodList", "items": [{"kind": "Job"}]}', "n")


def test_uid_that_is_there_leaves_the_later_pod_out() -> None:
    items = (
        {"metadata": {"name": name, "uid": "1"}, "spec": {"containers": [{"name": "c", "image": "i"}]}} for name in "ab"
    )
    data = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": list(items)}).encode()
    duplicates: list[ManifestError] = []
    (found,) = load_answer("u", "u", data, "n", duplicates)
    assert found.pod.metadata.name == "a-n"
    assert [one.field for one in duplicates] == ["items[1].metadata.uid"]


@pytest.mark.parametrize("text", ["{}", "items: []", "items: ~", ""])
def test_list_without_items_ends_the_pods(text: str) -> None:
    data = f"apiVersion: v1\nkind: PodList\n{text if text != '{}' else ''}"
    assert load_answer("u", "u", data.encode(), "n") == ()
