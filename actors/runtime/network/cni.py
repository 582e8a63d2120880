"""Pod networks by CNI plugins: ADD and DEL, with the first configuration in the usual directory.

https://github.com/containernetworking/cni/blob/main/SPEC.md. A plugin is a program: it reads the configuration on stdin
and the command from its environment, and prints a result on stdout.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors._host.files.untrusted_files import read_regular
from actors.runtime.model import namespaces
from actors.runtime.model.output import collect
from actors.runtime.model.state import Sandbox
from actors.runtime.network.api import BANDWIDTH_ANNOTATIONS, Network, NetworkError
from proto.common import untrusted
from proto.cri import api_pb2 as pb
from proto.v1.scalars import quantity

CONF_DIR = "/etc/cni/net.d"
BIN_DIRS = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")
INTERFACE = "eth0"
PLUGIN_S = 60.0
"""Time limit of a plugin."""
MOST_RESULT_BYTES = 1024 * 1024
MOST_ERROR_BYTES = 16 * 1024
MOST_STATE_BYTES = 8 * 1024 * 1024
"""Size of the state file: a result, and annotations, of which the API takes 256 KiB."""
LEAST_RATE, MOST_RATE = 1000, 10**15
"""Bits per second of a bandwidth annotation, as in containerd."""
BURST_BITS = 2**32 - 1
"""Burst of a limited direction, as in containerd: the most that the plugin bandwidth takes."""
POD_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
"""Capability of plugins that read the pod's annotations."""
STATE_FILE = "network.json"
log = logging.getLogger(__name__)
_PROTOCOLS = {pb.TCP: "tcp", pb.UDP: "udp", pb.SCTP: "sctp"}


class Conflist(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A network: plugins that run one after the other."""

    name: str
    cni_version: str = "0.4.0"
    plugins: tuple[dict[str, Any], ...] = ()


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Data to undo an attachment, written before it is made."""

    network: Conflist
    netns: str
    port_mappings: list[dict[str, Any]]
    capabilities: dict[str, Any] = {}
    """Values of the other capabilities that its plugins have, by name."""
    result: dict[str, Any] | None = None
    sandbox_id: str = ""
    arguments: dict[str, str] = {}
    """CNI_ARGS: they allow DEL without the sandbox's record, which is written later."""


def find(conf_dir: str) -> Conflist | None:
    """The first configuration by file name; None without one. Raises NetworkError for an invalid one."""
    directory = Path(conf_dir)
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    for path in files:
        if path.suffix in (".conflist", ".conf", ".json"):
            return parse(path.read_bytes(), str(path))
    return None


def parse(content: bytes, where: str) -> Conflist:
    """Parse a list of plugins, or a single plugin. Raises NetworkError."""
    try:
        raw = untrusted.decode_json(content, dict[str, Any])
        if "plugins" not in raw:
            raw = {"name": raw.get("name", ""), "cniVersion": raw.get("cniVersion", "0.4.0"), "plugins": [raw]}
        network = msgspec.convert(raw, Conflist)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise NetworkError(f"cannot use the network configuration {where}: {error}") from error
    if not network.name or not network.plugins or not all(isinstance(one.get("type"), str) for one in network.plugins):
        raise NetworkError(f"cannot use the network configuration {where}: it needs a name, and plugins with a type")
    return network


def maps_ports(network: Conflist) -> bool:
    """Return True when a plugin maps host ports, as portmap does."""
    return _any_has(network, "portMappings")


def _any_has(network: Conflist, capability: str) -> bool:
    return any((one.get("capabilities") or {}).get(capability) is True for one in network.plugins)


class CniNetwork(Network):
    """Attaches pods with the configuration that is present at that moment."""

    def __init__(self, conf_dir: str = CONF_DIR, bin_dirs: Sequence[str] = BIN_DIRS) -> None:
        self._conf_dir = conf_dir
        self._bin_dirs = tuple(bin_dirs)

    def is_configured(self) -> bool:
        """Return True when a configuration exists, valid or not."""
        try:
            return find(self._conf_dir) is not None
        except (NetworkError, OSError):
            return True

    def problem(self) -> str:
        """See Network."""
        try:
            network = find(self._conf_dir)
        except (NetworkError, OSError) as error:
            return str(error)
        if network is None:
            return f"no network configuration in {self._conf_dir}"
        lacking = [one["type"] for one in network.plugins if self._plugin(one["type"]) is None]
        return f"no CNI plugin {', '.join(lacking)} in {', '.join(self._bin_dirs)}" if lacking else ""

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
        """See Network."""
        network = find(self._conf_dir)
        if network is None:
            raise NetworkError(self.problem())
        metadata = sandbox.config.metadata
        if port_mappings(sandbox.config) and not maps_ports(network):
            log.warning(
                "pod %s/%s: its host ports are not mapped: no plugin of network %s (%s) has portMappings",
                metadata.namespace, metadata.name, network.name, self._conf_dir,
            )  # fmt: skip
        offered = capabilities(sandbox.config)
        if "bandwidth" in offered and not _any_has(network, "bandwidth"):
            log.warning(
                "pod %s/%s: its bandwidth annotations have no effect: no plugin of network %s (%s) has bandwidth",
                metadata.namespace, metadata.name, network.name, self._conf_dir,
            )  # fmt: skip
        attachment = Attachment(
            network=network,
            netns=netns,
            port_mappings=port_mappings(sandbox.config),
            capabilities={name: value for name, value in offered.items() if _any_has(network, name)},
            sandbox_id=sandbox.record.id,
            arguments=_arguments(sandbox),
        )
        _save(directory, attachment)
        result: dict[str, Any] | None = None
        for plugin in network.plugins:
            result = parse_result(self._run("ADD", attachment, plugin, result), plugin["type"]) or result
        _save(directory, msgspec.structs.replace(attachment, result=result))
        ips = addresses(result or {})
        if not ips:
            raise NetworkError(f"network {network.name} gave the pod no address")
        return {"name": network.name}, ips

    def detach(self, sandbox: Sandbox, directory: Path) -> None:
        """See Network."""
        self.release(directory, sandbox)

    def release(self, directory: Path, sandbox: Sandbox | None = None) -> None:
        """See Network. With a sandbox, completes a state file of an older version that lacks the ID and arguments."""
        path = directory / STATE_FILE
        if not path.exists():
            return
        try:
            attachment = untrusted.decode_json(read_regular(path, MOST_STATE_BYTES), Attachment)
        except (OSError, msgspec.DecodeError) as error:
            raise NetworkError(f"cannot read {path}: {error}") from error
        if sandbox is not None and not attachment.sandbox_id:
            attachment = msgspec.structs.replace(
                attachment, sandbox_id=sandbox.record.id, arguments=_arguments(sandbox)
            )
        for plugin in reversed(attachment.network.plugins):
            self._run("DEL", attachment, plugin, attachment.result)
        path.unlink(missing_ok=True)

    def _run(
        self,
        command: str,
        attachment: Attachment,
        plugin: Mapping[str, Any],
        previous: Mapping[str, Any] | None,
    ) -> bytes:
        program = self._plugin(plugin["type"])
        if program is None:
            raise NetworkError(f"no CNI plugin {plugin['type']} in {', '.join(self._bin_dirs)}")
        data = plugin_input(attachment, plugin, previous)
        try:
            code, result, errors = _call([program], data, self._environment(command, attachment))
        except OSError as error:
            raise NetworkError(f"cannot run the CNI plugin {program}: {error}") from error
        if code != 0:
            raise NetworkError(f"CNI plugin {plugin['type']} {command}: {_error_text(result, errors)}")
        return result

    def _environment(self, command: str, attachment: Attachment) -> dict[str, str]:
        """Raises OSError when the kernel does not tell whether the namespace is still there."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": attachment.sandbox_id,
            "CNI_NETNS": attachment.netns if namespaces.all_pinned([attachment.netns]) else "",
            "CNI_IFNAME": INTERFACE,
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in attachment.arguments.items()),
            "CNI_PATH": ":".join(self._bin_dirs),
        }

    def _plugin(self, type_: str) -> str | None:
        if "/" in type_:
            return None
        paths = (os.path.join(directory, type_) for directory in self._bin_dirs)
        return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), None)


def _call(command: Sequence[str], data: bytes, environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Run a plugin: exit code, stdout and stderr. Raises OSError, also TimeoutError."""
    with open(os.memfd_create("configuration"), "w+b") as configuration:
        configuration.write(data)
        configuration.seek(0)
        with subprocess.Popen(
            command, stdin=configuration, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        ) as process:
            try:
                result, errors = collect(process, time.monotonic() + PLUGIN_S, MOST_RESULT_BYTES + 1)
            except BaseException:
                process.kill()
                raise
            code = process.wait()
    if len(result) > MOST_RESULT_BYTES:
        raise OSError(errno.EFBIG, f"its result is larger than {MOST_RESULT_BYTES} bytes")
    return code, result, errors[:MOST_ERROR_BYTES]


def _arguments(sandbox: Sandbox) -> dict[str, str]:
    metadata = sandbox.config.metadata
    return {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": metadata.namespace,
        "K8S_POD_NAME": metadata.name,
        "K8S_POD_INFRA_CONTAINER_ID": sandbox.record.id,
        "K8S_POD_UID": metadata.uid,
    }


def plugin_input(attachment: Attachment, plugin: Mapping[str, Any], previous: Mapping[str, Any] | None) -> bytes:
    """The configuration that a plugin reads."""
    configuration: dict[str, Any] = {
        **plugin,
        "name": attachment.network.name,
        "cniVersion": attachment.network.cni_version,
    }
    has = configuration.pop("capabilities", None) or {}
    offered = attachment.capabilities | {"portMappings": attachment.port_mappings}
    if values := {name: value for name, value in offered.items() if has.get(name) is True and value}:
        configuration["runtimeConfig"] = values
    if previous is not None:
        configuration["prevResult"] = previous
    return msgspec.json.encode(configuration)


def port_mappings(config: pb.PodSandboxConfig) -> list[dict[str, Any]]:
    """Host ports as the plugin portmap reads them."""
    return [
        {
            "hostPort": mapping.host_port,
            "containerPort": mapping.container_port,
            "protocol": _PROTOCOLS[mapping.protocol],
            **({"hostIP": mapping.host_ip} if mapping.host_ip else {}),
        }
        for mapping in config.port_mappings
        if mapping.host_port > 0
    ]


def capabilities(config: pb.PodSandboxConfig) -> dict[str, Any]:
    """Values of a pod's capabilities beside portMappings, by name. Raises NetworkError.

    Names and forms: https://github.com/containernetworking/cni/blob/main/CONVENTIONS.md; the set is that of containerd
    (internal/cri/server, cniNamespaceOpts).
    """
    dns = config.dns_config
    offered: dict[str, Any] = {
        "bandwidth": bandwidth(config.annotations),
        "cgroupPath": config.linux.cgroup_parent,
        POD_ANNOTATIONS: dict(config.annotations),
    }
    if config.HasField("dns_config"):
        offered["dns"] = {"servers": [*dns.servers], "searches": [*dns.searches], "options": [*dns.options]}
    return {name: value for name, value in offered.items() if value}


def bandwidth(annotations: Mapping[str, str]) -> dict[str, int]:
    """The capability bandwidth, in bits and bits per second; empty without a limit. Raises NetworkError."""
    found: dict[str, int] = {}
    for direction, name in BANDWIDTH_ANNOTATIONS.items():
        if name not in annotations:
            continue
        try:
            rate = quantity.value(annotations[name])
        except quantity.QuantityError as error:
            raise NetworkError(f"cannot limit the pod's bandwidth: annotation {name}: {error}") from error
        if not LEAST_RATE <= rate <= MOST_RATE:
            raise NetworkError(f"cannot limit the pod's bandwidth: annotation {name}: {rate} is not between 1k and 1P")
        found |= {f"{direction}Rate": rate, f"{direction}Burst": BURST_BITS}
    return found


def parse_result(answer: bytes, plugin: str) -> dict[str, Any] | None:
    """The result that a plugin printed; None for empty output. Raises NetworkError."""
    if not answer.strip():
        return None
    try:
        return untrusted.decode_json(answer, dict[str, Any])
    except msgspec.DecodeError as error:
        raise NetworkError(f"cannot use the result of CNI plugin {plugin}: {error}") from error


def addresses(result: Mapping[str, Any]) -> tuple[str, ...]:
    """The pod's addresses in a result, IPv4 first, as in containerd."""
    found = []
    listed = result.get("ips")
    for one in listed if isinstance(listed, list) else ():
        try:
            found.append(ipaddress.ip_interface(one["address"]).ip)
        except (KeyError, TypeError, ValueError):
            continue
    return tuple(str(address) for address in sorted(found, key=lambda address: address.version))


def _save(directory: Path, attachment: Attachment) -> None:
    content = msgspec.json.encode(attachment)
    if len(content) > MOST_STATE_BYTES:
        raise NetworkError(f"cannot note the pod's network: it takes more than {MOST_STATE_BYTES} bytes")
    temporary = directory / f".{STATE_FILE}"
    temporary.write_bytes(content)
    temporary.replace(directory / STATE_FILE)


def _error_text(stdout: bytes, stderr: bytes) -> str:
    try:
        error = untrusted.decode_json(stdout)
        return " ".join(str(error[key]) for key in ("msg", "details") if error.get(key))
    except (msgspec.DecodeError, AttributeError):
        return (stderr or stdout).decode(errors="replace").strip() or "the plugin gave no reason"
