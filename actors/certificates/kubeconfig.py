"""The kubeconfig of a bootstrapped node: whose certificate it names, and how it is written. Blocks as the disk does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from actors._kube.connection.kubeconfig import Access, KubeconfigError
from proto.common import untrusted


def bootstrapped(bootstrap: Access, certificate: str) -> dict[str, Any]:
    """A kubeconfig for the cluster of another one, with the certificate and key of a file; in the kubelet's words."""
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
        "preferences": {},
        "current-context": "default-context",
        "contexts": [{"name": "default-context", "context": context}],
        "clusters": [{"name": "default-cluster", "cluster": {key: value for key, value in there.items() if value}}],
        "users": [{"name": "default-auth", "user": _user(certificate)}],
    }


def pointed_at(path: str, certificate: str) -> dict[str, Any]:
    """The kubeconfig of a path, its current user having the certificate and key of a file. Raises KubeconfigError."""
    import yaml  # noqa: PLC0415 - needed once in a node's life

    try:
        config: dict[str, Any] = untrusted.load_yaml(Path(path).read_bytes())
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
    """Replace the file, whole. JSON, which is YAML. Raises OSError."""
    target = Path(path)
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
