"""Creates the files on the node that are mounted into a container: /etc/hosts and the termination log.

Source: pkg/kubelet/kubelet_pods.go (managed hosts file) and
pkg/kubelet/kuberuntime/kuberuntime_container.go (termination log) of Kubernetes 1.36.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from actors._host.files import paths, untrusted_files
from actors.pod_workers.cri_config.hostname import hostname_and_domain
from actors.pod_workers.model.view import SandboxView
from proto.agent.settings import Settings
from proto.v1 import Container, HostAlias, Pod

HOSTS = "/etc/hosts"
MAX_NODE_FILE_BYTES = 4 * 1024 * 1024
_HEADER = "# Kubernetes-managed hosts file.\n"
_HOST_NETWORK_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


@dataclass(frozen=True, slots=True)
class HostFiles:
    """Paths on the host; empty for a file that is not mounted."""

    etc_hosts: str = ""
    termination_log: str = ""


def hosts_content(ips: tuple[str, ...], hostname: str, domain: str, aliases: tuple[HostAlias, ...]) -> str:
    """The hosts file of a pod with its own network."""
    names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
    return _HEADER + _LOCAL + "".join(f"{ip}\t{names}\n" for ip in ips) + _aliases(aliases)


def host_network_hosts_content(node_file: str, aliases: tuple[HostAlias, ...]) -> str:
    """The hosts file of a host-network pod: the node's own `node_file` and the pod's aliases."""
    return _HOST_NETWORK_HEADER + node_file + _aliases(aliases)


def _aliases(aliases: tuple[HostAlias, ...]) -> str:
    if not aliases:
        return ""
    lines = (f"{alias.ip}\t" + "\t".join(alias.hostnames) + "\n" for alias in aliases)
    return "\n# Entries added by HostAliases.\n" + "".join(lines)


def gets_hosts_file(pod: Pod, container: Container, ips: tuple[str, ...]) -> bool:
    """False if a volume is mounted at /etc/hosts, or the pod has no address yet."""
    mounted = any(os.path.normpath(mount.mount_path) == HOSTS for mount in container.volume_mounts)
    return not mounted and (bool(pod.spec.host_network) or bool(ips))


def prepare(pod: Pod, container: Container, sandbox: SandboxView, settings: Settings) -> HostFiles:
    """Create the files for the next instance of `container`. Raises OSError.

    A pod has one hosts file. It is rewritten in place, since running containers have its inode mounted. Each instance
    gets a new termination log with a random name, so that none reads another's message.
    """
    uid = pod.metadata.uid
    etc_hosts = termination_log = ""
    if gets_hosts_file(pod, container, sandbox.ips):
        etc_hosts = paths.etc_hosts_path(settings.root_dir, uid)
        os.makedirs(os.path.dirname(etc_hosts), mode=0o750, exist_ok=True)
        # Every user in the container reads it. Root in the container may have replaced it by a link.
        untrusted_files.write_in_place(etc_hosts, _hosts(pod, sandbox, settings).encode(), 0o644)
    if container.termination_message_path:
        directory = Path(paths.container_dir(settings.root_dir, uid, container.name))
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        termination_log = str(directory / os.urandom(4).hex())
        _create_for_all(termination_log)
    return HostFiles(etc_hosts, termination_log)


def _hosts(pod: Pod, sandbox: SandboxView, settings: Settings) -> str:
    if pod.spec.host_network:
        node_file = _node_file().decode("utf-8", "replace")
        return host_network_hosts_content(node_file, pod.spec.host_aliases)
    hostname, domain = hostname_and_domain(pod, settings.cluster_domain)
    return hosts_content(sandbox.ips, hostname, domain, pod.spec.host_aliases)


def _node_file() -> bytes:
    """The node's own file, which may be a link, up to 4 MiB."""
    with open(HOSTS, "rb", buffering=0) as file:
        return untrusted_files.read_bounded(file.fileno(), MAX_NODE_FILE_BYTES, HOSTS)


def _create_for_all(path: str) -> None:
    """Writable for any user, since the user of the container's process is not known."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    os.chmod(path, 0o666)
