"""The look at the machine: everything that `policy` decides on. Reads only, and every part of it is bounded.

What cannot be read counts as not there: the claims keep two nodevisors apart in any case.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from actors._cgroup.hierarchy import Hierarchy, parse_mountinfo
from actors._cgroup.names import qos_cgroup
from proto.agent.settings import Settings
from supervisor.config.kubeletconfig import loading
from supervisor.ownership import holders, kubelets, places, pods, ports, processes
from supervisor.ownership.claims import Claims
from supervisor.ownership.kubelets import Kubelet
from supervisor.ownership.places import Place
from supervisor.ownership.policy import Agent, Found, Held, Port
from supervisor.ownership.processes import Inode

log = logging.getLogger(__name__)

MAX_KUBELETS = 16
MAX_MOUNTINFO = 1024 * 1024
UNKNOWN_PORT_S = 1.0
"""A port without a visible process is looked at again for so long: a killed actor's socket closes a moment later."""
_POLL_S = 0.05
_DRIVERS = ("cgroupfs", "systemd")


def look(settings: Settings, tree: Hierarchy, claims: Claims, wanted: Sequence[ports.Wanted]) -> Found:
    """Everything that may keep the agent from starting."""
    own = processes.ancestors(os.getpid())
    return Found(
        held=tuple(held(settings, claims)),
        agents=tuple(agents(places.places(settings, tree), own)),
        ports=_ports(wanted),
        pods=tuple(pods.foreign(settings, tree, own)),
    )


def held(settings: Settings, claims: Claims) -> Iterator[Held]:
    """Places that other agents have locked, and locked cgroups that overlap ours."""
    locks = holders.locked()
    for place in claims.refused:
        yield Held(place, holders.holder(place, locks))
    name = places.pods_cgroup(settings)
    taken = [claim.place for claim in claims.taken if claim.place.cgroup]
    for place in taken[:1]:  # every hierarchy has the same tree of pods
        yield from holders.overlapping(place, name, locks)


def agents(ours: Sequence[Place], own: Collection[int]) -> Iterator[Agent]:
    """Living kubelets that serve a place of ours, whichever mount or cgroup namespace they are in."""
    locks = holders.locked()
    by_inode: dict[Inode, str] = {}
    for place in ours:
        if inode := processes.inode_of(place.path):
            by_inode[inode] = place.label
    for pid, kubelet in _kubelets(own):
        serves = tuple(dict.fromkeys(by_inode[inode] for inode in _served(pid, kubelet) if inode in by_inode))
        if serves and _has_its_kubelet(pid, kubelet):
            # By the table of locks: a kubelet with --exit-on-lock-contention ends when its lock file is opened.
            locked = kubelet.lock_file and processes.inode_in(pid, kubelet.lock_file) in locks
            lock_file = kubelet.lock_file if locked else ""
            yield Agent(processes.describe(pid)._replace(name=kubelet.name), serves, lock_file)


def _kubelets(own: Collection[int]) -> Iterator[tuple[int, Kubelet]]:
    """An ordinary user's process is none that could serve what is root's; neither is one above us, or a zombie."""
    count = 0
    for pid in processes.pids():
        if pid in own or processes.uid(pid) not in (0, os.geteuid()):
            continue
        kubelet = kubelets.recognize(processes.name(pid), processes.arguments(pid))
        if kubelet is not None and processes.alive(pid):
            count += 1
            if count > MAX_KUBELETS:
                log.warning("more than %d processes look like kubelets; the others are not looked at", MAX_KUBELETS)
                return
            yield pid, kubelet


def _has_its_kubelet(pid: int, kubelet: Kubelet) -> bool:
    """A k3s server may have no kubelet in it, and hides its flags: with one, its pod resources socket is there."""
    if kubelet.name != "k3s":
        return True
    return f"{kubelet.root_dir}/pod-resources/".encode() in processes.read(pid, "net/unix", MAX_MOUNTINFO)


def _served(pid: int, kubelet: Kubelet) -> Iterator[Inode]:
    """The directories of the kubelet, as it sees them, and its cgroup of all pods in every hierarchy."""
    configured = _configured(pid, kubelet)
    paths = [kubelet.root_dir, configured.pod_logs_dir or kubelets.POD_LOGS_DIR, kubelets.CONTAINER_LOGS_DIR]
    text = os.fsdecode(processes.read(pid, "mountinfo", MAX_MOUNTINFO))
    with contextlib.suppress(ValueError, IndexError):
        tree = parse_mountinfo(text)
        # Without a configured driver the names of both count: the runtime may have told it.
        drivers = (configured.cgroup_driver,) if configured.cgroup_driver in _DRIVERS else _DRIVERS
        for driver in drivers:
            paths += tree.paths(qos_cgroup(driver, configured.cgroup_root, "Guaranteed"))
    for path in paths:
        if inode := processes.inode_in(pid, path):
            yield inode


class _Configured(NamedTuple):
    cgroup_root: str
    cgroup_driver: str
    pod_logs_dir: str


def _configured(pid: int, kubelet: Kubelet) -> _Configured:
    """The flags' values, else those of the configuration file; empty for a value in neither."""
    config = None
    if kubelet.config:
        text = processes.text_in(pid, kubelet.config, loading.MAX_BYTES)
        config = loading.parse(kubelet.config, text).config if text else None
    return _Configured(
        kubelet.cgroup_root or (config.cgroup_root if config else None) or "/",
        kubelet.cgroup_driver or (config.cgroup_driver if config else None) or "",
        (config.pod_logs_dir if config else None) or "",
    )


def _ports(wanted: Sequence[ports.Wanted]) -> tuple[Port, ...]:
    deadline = time.monotonic() + UNKNOWN_PORT_S
    while True:
        found = ports.taken(wanted, os.getpid())
        if all(port.by is not None for port in found) or time.monotonic() >= deadline:
            return tuple(found)
        time.sleep(_POLL_S)
