"""Reads the state of SELinux and the labels of containers, and labels directories that plugins share with the kubelet.

Sources: go-selinux (GetEnabled, ContainerLabels, InitLabels) as Kubernetes 1.36 uses it, and selinux(8). A kernel
without a loaded policy counts as one without SELinux; permissive mode counts as SELinux.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from dataclasses import dataclass

from proto.common.machine import mountinfo
from proto.v1 import SELinuxOptions

log = logging.getLogger(__name__)

SHARED_LABEL = "system_u:object_r:container_file_t:s0"
"""The label of the kubelet's directories with sockets of plugins (KubeletPluginsDirSELinuxLabel)."""
ATTRIBUTE = "security.selinux"
"""Extended attribute with a file's label."""
SECLABEL = "seclabel"
"""Mount option of a file system whose files have labels of their own."""
_FILE_SYSTEM = "selinuxfs"
_NO_POLICY = "kernel"
"""Label of each process until a policy is loaded."""
_MOST_CONTEXT_BYTES = 64 * 1024
_PARTS = 3
"""User, role and type; the level comes after them where the policy has levels."""
_PART = re.compile(r"[A-Za-z0-9_.-]+")
_LEVEL = re.compile(r"[A-Za-z0-9_.,:-]+")
"""A level has sensitivities and categories, which a policy may rename."""
_MOST_PART, _MOST_LEVEL = 256, 3072
"""Characters. mount(2) takes a page of options; every second one of 1024 categories needs fewer."""


@dataclass(frozen=True)
class Places:
    """Files that `read` reads."""

    mounts: str = mountinfo.SELF
    current: str = "/proc/thread-self/attr/current"
    policies: str = "/etc/selinux"
    contexts: str = "/usr/share/containers/selinux/contexts"


PLACES = Places()


@dataclass(frozen=True)
class SELinux:
    """The machine's SELinux, and the labels that container runtimes give without other instructions."""

    enabled: bool = False
    process: str = ""
    """Label of a container's processes; empty when no policy for containers is installed."""
    file: str = ""
    """Label of a container's files, likewise."""


class LabelError(Exception):
    """The options of a pod make no label."""


def read(places: Places = PLACES) -> SELinux:
    """Return the machine's SELinux. It can change at a boot only. Reads small files of /proc and /etc."""
    if not _is_enabled(places):
        return SELinux()
    labels = _labels(places)
    return SELinux(enabled=True, process=labels.get("process", ""), file=labels.get("file", ""))


def _is_enabled(places: Places) -> bool:
    try:
        table = mountinfo.mounts(mountinfo.read(places.mounts))
        writable = any(one.fs_type == _FILE_SYSTEM and _is_writable(one.mount_point) for one in table)
    except OSError:
        return False
    return writable and _text(places.current).strip("\0\n") != _NO_POLICY


def _is_writable(path: str) -> bool:
    # A container's selinuxfs is read-only: libselinux takes that for a machine without SELinux.
    try:
        return not os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError:
        return False


def _labels(places: Places) -> dict[str, str]:
    text = _text(places.contexts)
    if not text:
        policy = _assignments(_text(f"{places.policies}/config")).get("SELINUXTYPE", "")
        text = _text(f"{places.policies}/{policy}/contexts/lxc_contexts")
    return _assignments(text)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_CONTEXT_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _assignments(text: str) -> dict[str, str]:
    """NAME=VALUE lines; a value may be in quotes."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line and line[0] not in ";#")
    return {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def file_label(options: SELinuxOptions, selinux: SELinux) -> str:
    """Return the label of the files of a container with these options. Pure. Raises LabelError.

    It is the runtime's default with the options' user and level; role and type are those of processes. Empty when it
    is not known: the options have no level, and the runtime chooses one, or no policy for containers is installed.
    """
    parts = ("user", options.user, _PART, _MOST_PART), ("level", options.level, _LEVEL, _MOST_LEVEL)
    for name, text, pattern, most in parts:
        if text and (len(text) > most or not pattern.fullmatch(text)):
            raise LabelError(f"failed to construct SELinux label from context: invalid {name} {text[:64]!r}")
    process, file = selinux.process.split(":", _PARTS), selinux.file.split(":", _PARTS)
    is_set = any((options.user, options.role, options.type, options.level))
    if not is_set or len(process) < _PARTS or len(file) < _PARTS:
        return ""
    has_levels = len(process) > _PARTS
    if has_levels and not options.level:
        return ""
    level = options.level or (file[_PARTS] if len(file) > _PARTS else "")
    return ":".join(part for part in (options.user or file[0], file[1], file[2], level) if part)


def has_seclabel(path: str, table: str = mountinfo.SELF) -> bool:
    """Return True when the file system at `path` has a label for each file. Raises OSError.

    A mount with one label for all of its files (`context=`) has none for each. The mount `table` tells it, so a file
    system that hangs does not block the call.
    """
    content = mountinfo.read(table)
    if SECLABEL.encode() not in content:
        return False
    real = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}/"
    found = [one for one in mountinfo.mounts(content) if real.startswith(f"{one.mount_point.rstrip('/')}/")]
    return bool(found) and SECLABEL in found[-1].options.split(",")


def share_content(directory: int) -> None:
    """Let what is made in an open directory have a label that containers may read. Without SELinux do nothing.

    It is for links: a runtime with opencontainers/selinux 1.10.0, as containerd 1.6 of Debian 12, relabels their
    targets in their place (https://github.com/opencontainers/selinux/issues/172). A policy without this label is left
    to the runtime, as is a file system that has one label for all files.
    """
    with contextlib.suppress(OSError):
        os.getxattr(directory, ATTRIBUTE)
        os.setxattr(directory, ATTRIBUTE, SHARED_LABEL.encode())


def share_with_plugins(*directories: str) -> None:
    """Make directories, and give them the label of what containers may use. A failure is logged."""
    for one in directories:
        try:
            os.makedirs(one, mode=0o750, exist_ok=True)
            os.setxattr(one, ATTRIBUTE, SHARED_LABEL.encode())
        except OSError as error:
            log.warning("cannot label %s for SELinux: %s; plugins in unprivileged containers may not work", one, error)
