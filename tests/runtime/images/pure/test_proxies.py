"""Proxies of the environment, by Go's rules."""

import pytest

from actors._host.proxies import Proxy, proxy_for

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("no_proxy", "proxied", "direct"),
    [
        (
            "10.0.0.0/8,registry.corp:5000",
            "registry.corp 11.0.0.1 corp:5000",
            "10.1.2.3:5000 registry.corp:5000",
        ),
        ("*", "", "a.example 8.8.8.8"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.1 10.0.0.1:5000 [::ffff:10.0.0.1]"),
        ("10.0.0.1:443", "10.0.0.1:5000", "10.0.0.1"),
        ("fd00::/8, [fe80::1]:5000", "[fe80::1]", "[fd00::1] [fe80::1]:5000"),
        ("corp", "notcorp corp.example", "corp a.corp A.CORP a.b.corp:5000"),
        (".corp", "corp", "a.corp"),
        ("*.corp:443", "corp a.corp:5000", "a.corp"),
        ("Corp , ,:80", "other", "corp"),
        ("*corp,10.0.0.0/99", "corp 10.0.0.0", ""),
        ("", "a.example 8.8.8.8", "localhost localhost:5000 127.0.0.1 127.9.9.9:1 [::1]:5000"),
    ],
)
def test_no_proxy_has_gos_rules(no_proxy: str, proxied: str, direct: str) -> None:
    environment = {**PROXY, "NO_PROXY": no_proxy}
    found = {host: proxy_for(f"https://{host}/v2", environment) for host in (*proxied.split(), *direct.split())}
    assert [host for host, proxy in found.items() if proxy] == proxied.split()


@pytest.mark.parametrize(
    ("text", "url", "authorization"),
    [
        ("http://proxy:3128", "http://proxy:3128", ""),
        ("proxy:3128", "http://proxy:3128", ""),
        ("proxy", "http://proxy:80", ""),
        ("https://proxy/", "https://proxy:443", ""),
        ("http://[fd00::1]:3128", "http://[fd00::1]:3128", ""),
        ("http://user:p%40w@proxy", "http://proxy:80", "Basic dXNlcjpwQHc="),
        ("user:pw@proxy:3128", "http://proxy:3128", "Basic dXNlcjpwdw=="),
        ("http://user@proxy", "http://proxy:80", "Basic dXNlcjo="),
    ],
)
def test_proxy_may_lack_a_scheme_and_have_a_user(text: str, url: str, authorization: str) -> None:
    proxy = Proxy.of(text)
    assert (proxy.url, proxy.authorization) == (url, authorization)
    assert proxy.headers == ({"Proxy-Authorization": authorization} if authorization else {})
    assert "Basic" not in repr(proxy)


@pytest.mark.parametrize("text", ["socks5://user:secret@proxy", "http://", "http://user:secret@proxy:port"])
def test_error_of_an_unusable_proxy_hides_its_password(text: str) -> None:
    with pytest.raises(OSError, match="cannot use the proxy") as told:
        proxy_for("https://a.example", {"HTTPS_PROXY": text})
    assert "secret" not in str(told.value)


def test_variable_is_that_of_the_urls_scheme() -> None:
    environment = {"HTTP_PROXY": "http://plain:1", "https_proxy": "http://low:2", "no_proxy": "a.example"}
    urls = ("http://b.example", "https://b.example", "https://a.example", "ftp://b.example")
    assert [getattr(proxy_for(url, environment), "url", "") for url in urls] == [
        "http://plain:1",
        "http://low:2",
        "",
        "",
    ]
    assert proxy_for("https://b.example", {**environment, **PROXY}) == Proxy("http://proxy:3128")
    assert proxy_for("http://b.example", {**environment, "REQUEST_METHOD": "GET"}) is None
