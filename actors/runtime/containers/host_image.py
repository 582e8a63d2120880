"""The image `host`: which pods may use it, and the paths of the machine that its containers do not see.

It shows the machine's root file system and bypasses all rules for hostPath. So only static pods may use it: an author
of their manifests can read the machine anyway. The sandbox's annotation says where a pod comes from. pod_workers and
the kubelet set it themselves and overwrite the API server's value.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping

from proto.agent.settings import Settings

SOURCE_ANNOTATION = "kubernetes.io/config.source"
_STATIC = ("file", "http")
_HIDDEN = (
    *("/root", "/home/*/.ssh", "/home/*/.kube"),
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd"),
    *("/etc/ssh/ssh_host_*", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt"),
    *("/etc/kubernetes", "/etc/rancher", "/etc/cni/net.d", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/rancher"),
    *("/run/containerd", "/run/crio", "/run/docker.sock", "/run/k3s", "/run/nodevisor", "/var/lib/nodevisor"),
)
"""Patterns of paths with passwords, keys and the node's cluster credentials."""


def refusal(annotations: Mapping[str, str], *, for_all: bool) -> str:
    """The reason to refuse the image to a pod with these sandbox annotations; empty if it is allowed. Pure."""
    if for_all or annotations.get(SOURCE_ANNOTATION, "") in _STATIC:
        return ""
    return (
        "image 'host' shows the files of the machine and is for static pods only; "
        "start the agent with --host-image-for-all to let every pod have it"
    )


def hidden(settings: Settings) -> tuple[str, ...]:
    """Patterns of the paths that containers of the image do not see. Pure."""
    own = (
        settings.root_dir,
        settings.run_dir,
        settings.cert_dir,
        settings.kubeconfig,
        settings.bootstrap_kubeconfig,
        settings.tls_private_key_file,
        settings.objects_dir,
        settings.pod_manifest_path,
        settings.registries_dir,
        settings.image_credential_provider_config,
    )
    escaped = (glob.escape(path.rstrip("/")) for path in own if path)
    return tuple(dict.fromkeys(path for path in (*escaped, *_HIDDEN) if path))


def present(patterns: Iterable[str]) -> tuple[str, ...]:
    """Paths of this machine that match, and the plain paths, which may appear later."""
    found: dict[str, None] = {}
    for pattern in patterns:
        for path in glob.glob(pattern) if glob.has_magic(pattern) else (pattern,):
            found[path] = None
    return tuple(found)
