"""The requests of HTTP probes and hooks: the first one, and those after redirects."""

import pytest

from actors._net.probing.http import BadResponse, redirect_headers, redirect_of, request_headers, with_referer
from actors._net.probing.target import Url, url_of
from proto.v1 import HTTPGetAction, HTTPHeader

URL = Url("http", "10.0.0.1", 8080, "/", "10.0.0.1:8080")


@pytest.mark.parametrize(
    ("path", "target"),  # the targets are those of the kubelet's formatURL
    [
        ("/a?b?c", "/a?b?c"),
        ("/a#f", "/a"),
        ("//foo/bar", "/bar"),
        ("//foo?x=1", "/?x=1"),
        ("//", "/"),
        ("//[::1]:80/x", "/x"),
        ("http://localhost:8080/healthz?x", "/healthz?x"),
        ("///foo/bar", "///foo/bar"),
        ("//foo:bad/x", "//foo:bad/x"),
        ("//fo o/x", "//fo%20o/x"),
        ("/a//b", "/a//b"),
        ("/100%", "/100%25"),
        ("/a%20b%4", "/a%2520b%254"),
        ("/a%zz?x=1#y", "/a%25zz%3Fx=1%23y"),
        ("/a#%zz", "/a%23%25zz"),
        ("//foo/a%zz(b)", "//foo/a%25zz%28b%29"),
        ("/a%20b?x=100%", "/a%20b?x=100%"),
    ],
)
def test_odd_path_gives_the_kubelets_request(path: str, target: str) -> None:
    url = url_of(HTTPGetAction(port=8080, path=path), "10.0.0.1", ())
    assert url == URL._replace(path=target)


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("/new", b"foo"),
        ("new", b"foo"),
        ("//10.0.0.1:8080/new", b"foo"),
        ("http://10.0.0.1:8080/new", b"10.0.0.1:8080"),
        ("HTTP://10.0.0.1:8080/new", b"10.0.0.1:8080"),
    ],
)
def test_redirect_to_an_absolute_url_ends_a_given_host(location: str, host: bytes) -> None:
    given = (HTTPHeader(name="hOst", value="foo"), HTTPHeader(name="X-Other", value="a"))
    url = redirect_of(URL, location, URL.host)
    assert url == URL._replace(path="/new")
    sent = request_headers(url, redirect_headers(given, location))
    assert [value for name, value in sent if name == b"Host"] == [host]
    assert (b"X-Other", b"a") in sent


GIVEN = HTTPHeader(name="referer", value="http://given/")
OTHER = HTTPHeader(name="X-Other", value="a")


@pytest.mark.parametrize(
    ("last", "scheme", "given", "referers"),
    [
        ("http://10.0.0.1:8080/a?b#c", "http", [], ["http://10.0.0.1:8080/a?b#c"]),
        ("http://10.0.0.1:8080/a", "https", [], ["http://10.0.0.1:8080/a"]),
        ("https://10.0.0.1:8080/a", "https", [], ["https://10.0.0.1:8080/a"]),
        ("https://10.0.0.1:8080/a", "http", [], []),
        ("http://10.0.0.1:8080/a", "http", [GIVEN, GIVEN], ["http://given/"]),
        ("https://10.0.0.1:8080/a", "http", [GIVEN], ["http://given/"]),
        ("http://a/", "http", [HTTPHeader(name="Referer", value=""), GIVEN], ["http://a/"]),
    ],
)
def test_referer_is_the_last_url_unless_given(
    last: str, scheme: str, given: list[HTTPHeader], referers: list[str]
) -> None:
    """As in refererForURL and makeHeadersCopier of Go's net/http."""
    found = with_referer([*given, OTHER], last, URL._replace(scheme=scheme))
    assert [header.value for header in found if header.name.lower() == "referer"] == referers
    assert OTHER in found


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("http://h:bad/x", '"http://h:bad/x": parse "http://h:bad/x": invalid port ":bad" after host'),
        ("http://[::1]:0x/x#y", '"http://[::1]:0x/x#y": parse "http://[::1]:0x/x": invalid port ":0x" after host'),
        ("http://[::1/x", '"http://[::1/x": parse "http://[::1/x": missing \']\' in host'),
        ("/100%", '"/100%": parse "/100%": invalid URL escape "%"'),
        ("/a#%zz", '"/a#%zz": parse "/a#%zz": invalid URL escape "%zz"'),
        (":x", '":x": parse ":x": missing protocol scheme'),
        ('10.0.0.1:80/"', r'"10.0.0.1:80/\"": parse "10.0.0.1:80/\"": first path segment in URL cannot contain colon'),
    ],
)
def test_location_that_is_no_url_fails_the_probe(location: str, text: str) -> None:
    """With the text of Go's client."""
    with pytest.raises(BadResponse) as caught:
        redirect_of(URL, location, URL.host)
    assert str(caught.value) == f"failed to parse Location header {text}"


@pytest.mark.parametrize(
    "location", ["", "ftp://elsewhere/x", "mailto:x", "mailto:100%", "http:/x", "http://elsewhere:99999/x"]
)
def test_answer_without_a_redirect_within_the_host_is_final(location: str) -> None:
    assert redirect_of(URL, location, URL.host) is None
