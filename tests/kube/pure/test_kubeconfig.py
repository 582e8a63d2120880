"""kubeconfig files: parsing, and the messages for invalid ones."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors._kube.connection.kubeconfig import KubeconfigError, load, parse


def config(user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "here",
        "contexts": [{"name": "other"}, {"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def of(content: Any) -> Any:
    return parse(yaml.safe_dump(content).encode(), "/etc/k/config")


def test_relative_paths_start_at_the_kubeconfigs_directory() -> None:
    access = of(
        config(
            {"client-certificate": "pki/a.crt", "client-key": "/abs.key", "tokenFile": "t",
             "exec": {"command": "bin/x", "apiVersion": "client.authentication.k8s.io/v1"}},
            **{"certificate-authority": "ca.crt"},
        )
    )  # fmt: skip
    assert access.cluster.certificate_authority == "/etc/k/ca.crt"
    user = access.user
    assert (user.client_certificate, user.client_key, user.token_file) == ("/etc/k/pki/a.crt", "/abs.key", "/etc/k/t")
    assert user.exec.command == "/etc/k/bin/x"
    plain = of(config({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1beta1"}}))
    assert plain.user.exec.command == "x"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "cannot read the kubeconfig"),
        ("- 1", "it is no mapping"),
        ({}, "current-context is not set"),
        (config() | {"current-context": "gone"}, "contexts: there is none called 'gone'"),
        (config() | {"clusters": []}, "clusters: there is none called 'c'"),
        (config() | {"users": None}, "users: there is none called 'u'"),
        (config(server="api:6443"), "'api:6443' is no URL"),
        (config(server=5), "clusters[0].cluster"),
        (config({"client-key": "k"}), "a client certificate and its key"),
        (config(**{"insecure-skip-tls-verify": True, "certificate-authority": "x"}), "exclude each other"),
        (config({"auth-provider": {"name": "gcp"}}), "use exec"),
        (config({"exec": {"command": "x", "apiVersion": "v0"}}), "'v0' is not supported"),
        (config(**{"proxy-url": "socks5://p"}), "proxy-url"),
        (config(**{"proxy-url": "https://p"}), "http:// proxies only"),
        (config({"tokenFile": "a\0b"}), "tokenFile: it is no path"),
        (config({"client-certificate": "a\0b", "client-key": "k"}), "client-certificate: it is no path"),
    ],
)
def test_invalid_kubeconfig_error_names_the_field(content: Any, said: str) -> None:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    with pytest.raises(KubeconfigError, match="/etc/k/config") as failure:
        parse(text.encode(), "/etc/k/config")
    assert said in str(failure.value)


def test_null_fields_are_missing_ones_as_in_go() -> None:
    plugin = {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "args": None, "installHint": None}
    content = config({"token": None, "exec": plugin, "as-groups": None}, **{"proxy-url": None})
    content["contexts"][1]["context"]["namespace"] = None
    access = of(content)
    assert (access.user.token, access.user.exec.install_hint, access.cluster.proxy_url) == ("", "", "")


def test_missing_file_and_invalid_base64_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="No such file"):
        load(str(tmp_path / "none"))
    access = of(config(**{"certificate-authority-data": base64.b64encode(b"PEM").decode()}))
    assert access.data(access.cluster.certificate_authority_data, "", "certificate-authority") == b"PEM"
    assert access.data("UE\r\nVN\n", "", "client-key") == b"PEM", "lines of a YAML block"
    with pytest.raises(KubeconfigError, match="client-key-data"):
        access.data("???", "", "client-key")
    with pytest.raises(KubeconfigError, match="client-key-data"):
        access.data("\u00e9abc", "", "client-key")
