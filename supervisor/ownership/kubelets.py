"""Recognizes kubelets by name and command line, with the directories that they serve. Pure.

A process can set its command line freely, so the result is only a hint of directories to check. Defaults are those of
Kubernetes 1.36 (cmd/kubelet/app/options), k0s and MicroK8s.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_ROOT_DIR = "/var/lib/kubelet"
_ROOT_DIRS = {"k0s": "/var/lib/k0s/kubelet", "kubelite": "/var/snap/microk8s/common/var/lib/kubelet"}
_SUBCOMMANDS = {
    "kubelet": (),
    "kubelite": (),
    "k3s": ("server", "agent"),
    "rke2": ("server", "agent"),
    "k0s": ("worker", "controller"),
}
"""Program name to its subcommands with a kubelet; () for a program that is a kubelet itself."""
_WITH_A_WORKER = ("enable-worker", "single")
"""Flags that give `k0s controller` a kubelet."""
POD_LOGS_DIR = "/var/log/pods"
CONTAINER_LOGS_DIR = "/var/log/containers"
"""Fixed: a kubelet has no flag or field for it."""


class Kubelet(NamedTuple):
    """The relevant flags of a kubelet. Paths are those of its own mount namespace."""

    name: str
    root_dir: str = _ROOT_DIR
    cgroup_root: str = ""
    """Empty if not on the command line; `config` may have it."""
    cgroup_driver: str = ""
    config: str = ""
    lock_file: str = ""


def recognize(comm: str, arguments: Sequence[str]) -> Kubelet | None:
    """Recognize a kubelet by the process's name and command line; None for every other process."""
    words = arguments[0].split() if len(arguments) == 1 else list(arguments)  # k3s shows its title as one word
    program = os.path.basename(words[0]) if words else ""
    name = next((one for one in (program, comm) if one in _SUBCOMMANDS), "")
    if not name:
        return None
    flags = dict(_flags(words[1:]))
    subcommands = _SUBCOMMANDS[name]
    if subcommands:
        subcommand = words[1] if len(words) > 1 else ""
        if subcommand not in subcommands or flags.get("disable-agent", "false") != "false":
            return None
        if subcommand == "controller" and not any(flags.get(one, "false") != "false" for one in _WITH_A_WORKER):
            return None
    return Kubelet(
        name,
        root_dir=flags.get("root-dir") or _ROOT_DIRS.get(name, _ROOT_DIR),
        cgroup_root=flags.get("cgroup-root", ""),
        cgroup_driver=flags.get("cgroup-driver", ""),
        config=flags.get("config", "") if name == "kubelet" else "",
        lock_file=flags.get("lock-file", ""),
    )


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags and values, also those of `--kubelet-arg=root-dir=/x`, which k3s and rke2 pass on."""
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        if not word.startswith("--"):
            continue
        name, sign, value = word[2:].partition("=")
        if not sign:
            value = "" if following.startswith("-") else following
        name = name.replace("_", "-")
        if name == "kubelet-arg":
            name, _, value = value.partition("=")
        yield name, value
