"""Collects the facts that `policy` decides on: locks, other agents, ports and pods. Reads only; all reads are bounded.

An unreadable fact counts as absent: the locks keep two nodevisors apart in any case.
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
from proto.node import runtime
from supervisor.config.kubeletconfig import loading
from supervisor.host import last_start, settings_file
from supervisor.ownership import holders, kubelets, places, pods, ports, processes
from supervisor.ownership.claims import Claims
from supervisor.ownership.kubelets import Kubelet
from supervisor.ownership.places import Place
from supervisor.ownership.policy import Agent, Facts, LockedPlace, Port, RuntimeFacts
from supervisor.ownership.processes import Inode

log = logging.getLogger(__name__)

MAX_KUBELETS = 16
MAX_MOUNTINFO = 1024 * 1024
UNKNOWN_PORT_S = 1.0
"""Time of repeated checks of a port without a visible process: a killed actor's socket closes a moment later."""
_POLL_S = 0.05


def collect(settings: Settings, tree: Hierarchy, claims: Claims, wanted: Sequence[ports.Wanted]) -> Facts:
    """Collect everything that may keep the agent from starting."""
    own = processes.ancestors(os.getpid())
    return Facts(
        locked=tuple(locked_places(settings, claims)),
        agents=tuple(agents(places.places(settings, tree), own)),
        ports=_ports(wanted),
        pods=tuple(pods.foreign(settings, tree, own)),
        runtime=last_runtime(settings, tree),
    )


def last_runtime(settings: Settings, tree: Hierarchy) -> RuntimeFacts:
    """Find the container runtime of the last start, and a pod of ours that runs.

    The first source is the file of the last start. The next is the last agent's settings, of a release without that
    file. The third is the embedded runtime's running containers. Raises OSError as `pods.foreign` does.
    """
    last, damaged = None, ""
    try:
        last = last_start.read(settings.root_dir)
    except last_start.DamagedError as error:
        damaged = str(error)
    roots = (settings.cgroup_root, last.cgroup_root if last is not None else settings.cgroup_root)
    embedded = pods.embedded_one(settings.root_dir)
    present = last is not None and last.boot == last_start.boot_id()
    former = last.endpoint if last is not None else ""
    record = str(last_start.path(settings.root_dir))
    if last is None or not present or last.run_dir == settings.run_dir:
        # Every start writes settings, also that of a release without the file, which may have run since.
        if saved := _by_settings(settings):
            former, record = saved, f"{record} and {settings.run_dir}/{settings_file.SETTINGS}"
        former = former or (embedded and runtime.EMBEDDED)
    alive = pods.running_one(settings.root_dir, roots, tree, processes.ancestors(os.getpid())) or embedded
    hidden = last is not None and not last.cgroups_per_qos and former != runtime.EMBEDDED
    if not alive and hidden and present:  # no pod outlives a reboot
        alive = pods.marked_one(settings.root_dir)
    return RuntimeFacts(former, alive, embedded, damaged, record)


def _by_settings(settings: Settings) -> str:
    """The runtime in the last agent's settings in the run directory; empty without them."""
    with contextlib.suppress(OSError):
        last = settings_file.read(settings.run_dir)
        if last.root_dir == settings.root_dir:
            return last_start.endpoint_of(last)
    return ""


def locked_places(settings: Settings, claims: Claims) -> Iterator[LockedPlace]:
    """Find places that other agents have locked, and locked cgroups that overlap ours."""
    locks = holders.locked()
    for place in claims.refused:
        yield LockedPlace(place, holders.holder(place, locks))
    name = places.pods_cgroup(settings)
    taken = [claim.place for claim in claims.taken if claim.place.cgroup]
    for place in taken[:1]:  # every hierarchy has the same tree of pods
        yield from holders.overlapping(place, name, locks)


def agents(ours: Sequence[Place], own: Collection[int]) -> Iterator[Agent]:
    """Find living kubelets that serve a place of ours, in any mount or cgroup namespace."""
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
    """Pid and flags of kubelets. Ordinary users' processes cannot serve root's places; `own` and zombies do not
    count."""
    count = 0
    for pid in processes.pids():
        if pid in own or processes.uid(pid) not in (0, os.geteuid()):
            continue
        kubelet = kubelets.recognize(processes.name(pid), processes.arguments(pid))
        if kubelet is not None and processes.alive(pid):
            count += 1
            if count > MAX_KUBELETS:
                log.warning("more than %d processes look like kubelets; the others are not checked", MAX_KUBELETS)
                return
            yield pid, kubelet


_UNIX_INODE = 6
"""The field of a line of /proc/net/unix. Seven come before the path."""


def _has_its_kubelet(pid: int, kubelet: Kubelet) -> bool:
    """True unless it is a k3s server without a kubelet. Its flags are hidden; the pod resources socket tells.

    The list has the sockets of all processes of the network, also our own one: k3s must have its socket open.
    """
    if kubelet.name != "k3s":
        return True
    directory = f"{kubelet.root_dir}/pod-resources/".encode()
    lines = processes.read(pid, "net/unix", MAX_MOUNTINFO).split(b"\n")
    named = (line.split() for line in lines if directory in line)
    inodes = {os.fsdecode(fields[_UNIX_INODE]) for fields in named if len(fields) > _UNIX_INODE}
    sockets = {f"socket:[{inode}]" for inode in inodes}
    return bool(sockets) and any(target in sockets for _, target in processes.descriptors(pid))


def _served(pid: int, kubelet: Kubelet) -> Iterator[Inode]:
    """The inodes of the kubelet's directories, as it sees them, and of its cgroup of all pods in every hierarchy."""
    configured = _configured(pid, kubelet)
    paths = [kubelet.root_dir, configured.pod_logs_dir or kubelets.POD_LOGS_DIR, kubelets.CONTAINER_LOGS_DIR]
    table = processes.read(pid, "mountinfo", MAX_MOUNTINFO)
    with contextlib.suppress(ValueError, IndexError):
        tree = parse_mountinfo(table)
        # Without a configured driver both drivers' names count: the runtime may have set it.
        drivers = (configured.cgroup_driver,) if configured.cgroup_driver in pods.DRIVERS else pods.DRIVERS
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
    """Values of the flags, else of the configuration file; empty for a value in neither."""
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
