"""The table of flags: the kubelet's from `kubelet-1.36.txt`, and this agent's own in `OWN`.

Each row has a name, a type, the field or setting of its value, and its help. The file is read at the first use.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from supervisor.config.flags.kinds import KINDS, Kind

CADVISOR = "cAdvisor"
_STATISTICS = "statistics come from cgroups directly, without cAdvisor"
_SHORTHANDS = {"v": "v"}


class Flag(NamedTuple):
    """A flag. At most one of `field`, `setting` and `ignored` is set; with none, `supervisor start` handles it."""

    name: str
    kind: Kind
    group: str
    """Group in the help."""
    default: str
    """As in the kubelet's help; empty: none."""
    metavar: str
    help: str
    deprecated: bool = False
    field: str = ""
    """Path in KubeletConfiguration, joined with dots."""
    setting: str = ""
    """Attribute of proto.agent.settings.Settings."""
    ignored: str = ""
    """Reason why the flag has no effect here."""
    own: bool = False
    """A flag that the kubelet does not have."""

    @property
    def shorthand(self) -> str:
        """The letter for `-X`; empty: none."""
        return _SHORTHANDS.get(self.name, "")

    def default_value(self) -> object:
        """The parsed default; None without one."""
        text = self.default.strip("[]") if self.kind.name == "stringSlice" else self.default
        return self.kind.read(text, None) if text else None


def _own(
    name: str, group: str, metavar: str, help_: str, default: str = "", field: str = "", setting: str = ""
) -> Flag:
    kinds = {"DURATION": "duration", "NAMES": "stringSlice", "MIB": "int32", "": "bool"}
    kind = KINDS[kinds.get(metavar, "string")]
    return Flag(name, kind, group, default, metavar, help_, own=True, field=field, setting=setting)


OWN = (
    _own("run-dir", "Node", "DIR", "Private directory of sockets, lock and state.", "/run/nodevisor"),
    _own("supervisor-config", "Configuration", "FILE", "Restart policies and list of actors (etc/supervisor.yaml)."),
    _own("tune-kernel", "Node", "", "Check or set kernel settings, and share the root directory's mount.", "true"),
    _own(
        "take-over",
        "Node",
        "",
        "Take over pods that an ended agent has left in the runtime or below the cgroup root.",
        setting="take_over",
    ),
    _own("run-once", "Pods", "", "Start the static pods, wait until they are ready or completed, report, and exit."),
    _own("run-once-timeout", "Pods", "DURATION", "Longest wait of --run-once.", "5m0s"),
    _own("images-dir", "Pods", "DIR", "OCI layouts and archives for the embedded runtime.", setting="images_dir"),
    _own(
        "host-image-for-all",
        "Pods",
        "",
        "Let pods of the API server use the image host, the machine's files; static pods always may.",
        "false",
        setting="host_image_for_all",
    ),
    _own(
        "registries-dir",
        "Pods",
        "DIR",
        "Mirrors for the embedded runtime, as in containerd: REGISTRY/hosts.toml.",
        "/etc/containerd/certs.d",
        setting="registries_dir",
    ),
    _own("objects-dir", "Pods", "DIR", "ConfigMaps, Secrets and other objects for pods.", setting="objects_dir"),
    _own(
        "keep-images",
        "Container runtime and images",
        "",
        "Remove no image, even when the disk is full, because others use the container runtime too.",
        "false",
        setting="keep_images",
    ),
    _own(
        "protect-images",
        "Container runtime and images",
        "NAMES",
        "Never remove images with these names; * stands for any characters. Separated by commas.",
        setting="protected_images",
    ),
    _own(
        "collect-local-images",
        "Container runtime and images",
        "",
        "Also remove unused images without a registry's digest, such as imported ones.",
        "false",
        setting="collect_local_images",
    ),
    _own(
        "page-address",
        "Server and security",
        "[ADDRESS:]PORT",
        "Serve a web page of processes and pods without authentication; by default on 127.0.0.1.",
        setting="page_address",
    ),
    _own(
        "recorder-size",
        "Logging",
        "MIB",
        "MiB of the flight recorder's files in RUN-DIR/recorder, at most 64; 0 switches it off.",
        "8",
        setting="recorder_mib",
    ),
    _own(
        "console-address",
        "Server and security",
        "[ADDRESS:]PORT",
        "Serve consoles of other machines, by the keys of `supervisor console keys`; by default on 127.0.0.1.",
        setting="console_address",
    ),
    _own(
        "fault-injection",
        "Node",
        "",
        "Let `supervisor fault` inject faults, for tests and game days.",
        "false",
        setting="fault_injection",
    ),
    _own("pod-logs-dir", "Pods", "DIR", "Directory for container logs.", "/var/log/pods", field="podLogsDir"),
    _own(
        "container-logs-dir",
        "Pods",
        "DIR",
        "Directory for links to container logs.",
        "/var/log/containers",
        setting="container_logs_dir",
    ),
)


@functools.cache
def flags() -> dict[str, Flag]:
    """Every flag by name, in the order of the help."""
    kubelets = []
    group = ""
    for line in Path(__file__).with_name("kubelet-1.36.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif line and not line.startswith("#"):
            kubelets.append(_parse(line, group))
    groups = list(dict.fromkeys(flag.group for flag in kubelets))
    return {flag.name: flag for flag in sorted([*kubelets, *OWN], key=lambda flag: groups.index(flag.group))}


@functools.cache
def by_field() -> dict[str, Flag]:
    """Flags with a field, by the field's path."""
    return {flag.field: flag for flag in flags().values() if flag.field}


def find(name: str) -> Flag | None:
    """The flag of a name, with `_` or `-`; None for an unknown name."""
    return flags().get(name.replace("_", "-"))


def _parse(line: str, group: str) -> Flag:
    columns = [column.strip() for column in line.split(" | ")] + [""] * 3
    name, kind, default, deprecated, target, metavar, help_, why = columns[:8]
    setting = target.removeprefix("setting ") if target.startswith("setting ") else ""
    is_field = not setting and target not in ("start", "none")
    return Flag(
        name,
        KINDS[kind],
        group,
        default,
        metavar or KINDS[kind].metavar,
        help_,
        deprecated=bool(deprecated),
        field=target if is_field else "",
        setting=setting,
        ignored=(why or _STATISTICS) if target == "none" else "",
    )
