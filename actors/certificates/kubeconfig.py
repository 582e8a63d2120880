"""Writes the kubeconfig of a bootstrapped node, or its certificate paths. Blocks on the disk.

It is block YAML, as kubeadm and client-go write it: operators' tools look for lines such as `server: https://...`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from actors._kube.connection.kubeconfig import Access, KubeconfigError
from actors.certificates.store import write_private
from proto.common import untrusted


def bootstrapped(bootstrap: Access, certificate: str) -> dict[str, Any]:
    """A kubeconfig for the cluster of `bootstrap`, with certificate and key in one file; names as in the kubelet's."""
    cluster = bootstrap.cluster
    there = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority": "" if cluster.certificate_authority_data else cluster.certificate_authority,
        "certificate-authority-data": cluster.certificate_authority_data,
        "proxy-url": cluster.proxy_url,
    }
    context = {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": {key: value for key, value in there.items() if value}}],
        "contexts": [{"name": "default-context", "context": context}],
        "current-context": "default-context",
        "preferences": {},
        "users": [{"name": "default-auth", "user": _user(certificate)}],
    }


def pointed_at(path: str, certificate: str) -> dict[str, Any]:
    """The kubeconfig at `path` with the current user's certificate and key in `certificate`. Raises KubeconfigError."""
    try:
        config: dict[str, Any] = untrusted.load_yaml(Path(path).read_bytes())
        if config is None:
            raise KubeconfigError(
                f"cannot change the kubeconfig {path}: it is empty; another program may be writing it"
            )
        context = _named(config["contexts"], config["current-context"])["context"]
        _named(config["users"], context["user"])["user"] = _user(certificate)
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise KubeconfigError(f"cannot change the kubeconfig {path}: {error}") from error
    return config


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry.get("name") == name:
            return entry
    raise KeyError(name)


def _user(certificate: str) -> dict[str, str]:
    return {"client-certificate": certificate, "client-key": certificate}


def write(path: str, config: dict[str, Any]) -> None:
    """Replace the file atomically. Raises OSError."""
    text = yaml.safe_dump(config, sort_keys=False, default_flow_style=False, allow_unicode=True, width=math.inf)
    write_private(Path(path), text.encode())
