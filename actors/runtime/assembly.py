"""Builds the runtime and recovers its sandboxes and containers after a kill, a restart or a boot."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from actors._cgroup.hierarchy import hierarchy
from actors._host import selinux
from actors._host.files.paths import checkpoints_dir
from actors.runtime.containers import host_image
from actors.runtime.containers.containers import Containers
from actors.runtime.containers.orphaned_execs import end_orphaned_execs
from actors.runtime.engine.engine import Engine, MonitorManager
from actors.runtime.engine.monitor_client import MonitorError
from actors.runtime.filesystems.image_volumes import ImageVolumes
from actors.runtime.filesystems.rootfs import RootFs, can_overlay
from actors.runtime.helper.plan import PLAIN, ROOT
from actors.runtime.images.local.store import ImageStore
from actors.runtime.model import processes
from actors.runtime.model.disk import remove_tree
from actors.runtime.model.records import (
    ContainerRecord,
    Records,
    SandboxRecord,
    UnreadableError,
    boot_id,
    read_started,
)
from actors.runtime.model.state import Container, Sandbox, State
from actors.runtime.network.choice import PodNetwork, choose_network
from actors.runtime.network.host import HostNetwork
from actors.runtime.oci import cdi, interpreter
from actors.runtime.oci.helper import HELPER, can_seal, features, helper_command
from actors.runtime.oci.runtime import OciRuntime
from actors.runtime.oci.spec.build import Machine
from actors.runtime.oci.spec.security import bounding_set
from actors.runtime.policy import Isolation, MachineFeatures, choose_isolation
from actors.runtime.sandboxes import users_trial
from actors.runtime.sandboxes.sandboxes import Sandboxes
from actors.runtime.selinux import kernel
from actors.runtime.selinux.kernel import Labelling
from actors.runtime.selinux.labels import BadLabel
from actors.runtime.service.image_service import ImageService
from actors.runtime.service.service import RuntimeService
from actors.runtime.stats.stats import Stats
from actors.runtime.streaming.sessions import Sessions
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.runtime import CDI_DIRECTORIES, ISOLATION, OCI_PROGRAM, OCI_PROGRAMS, PROGRAMS_PATH, TEMPORARY

STARTING_S = 10.0
"""Waits this long before it serves for containers that were starting when the actor was killed.

A thread waits for a longer start: the OCI runtime may hang, for example in a mount of a dead NFS server.
"""
NO_OVERLAY = "no-overlay"
"""Empty file in the data directory whose file system refused an overlayfs at the last trial."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class Unusable(Exception):
    """Containers cannot run here; the message says what is missing."""


@dataclass
class Runtime:
    """The parts that the actor serves."""

    engine: Engine
    containers: Containers
    images: ImageService
    service: RuntimeService
    network: PodNetwork | HostNetwork
    sessions: Sessions
    isolation: Isolation
    stats: Stats
    sandboxes: Sandboxes
    _clearing: threading.Lock = field(default_factory=threading.Lock)

    def save_unsaved(self) -> None:
        """Write the records that a full disk refused."""
        self.sandboxes.save_unsaved()
        self.containers.save_unsaved()

    def clear_leftovers(self) -> None:
        """Delete what kills, errors and limits of time left of removals. Takes minutes on a slow disk.

        So it is no part of the start. A second call returns at once while the first one works.
        """
        if not self._clearing.acquire(blocking=False):
            return
        try:
            self.engine.containers.empty_trash()  # the sandboxes' records have the same one
            self.engine.store.clear_leftovers()
        finally:
            self._clearing.release()

    def stop(self) -> None:
        """Leave containers and their monitor running. The server has stopped before."""
        self.save_unsaved()
        self.sessions.stop()
        self.stats.written.close()
        self.engine.monitor.close()
        with contextlib.suppress(OSError):
            interpreter.release(self.engine.run)


def isolation_here() -> Isolation:
    """The isolation level that this machine offers, or that the environment variable asks for."""
    found = {name: path for name in OCI_PROGRAMS if (path := shutil.which(name, path=PROGRAMS_PATH)) is not None}
    program = os.environ.get(OCI_PROGRAM, "")
    setting = os.environ.get(ISOLATION, "")
    asked = int(setting) if setting in ("1", "2", "3") else 0
    offers = MachineFeatures(found=found, root=os.geteuid() == 0, split_cgroups=_split_cgroups())
    if (chosen := choose_isolation(offers, asked, program)).level == 1:
        return chosen  # probing for the other levels takes two processes
    offered = features()
    offers = replace(offers, mount=offered.get("mount", False), user=offered.get("user", False))
    return choose_isolation(offers, asked, program)


def _split_cgroups() -> bool:
    tree = hierarchy()
    with contextlib.suppress(KeyError, OSError):
        return not tree.unified and bool(Path(tree.mounts[""], "cgroup.controllers").read_text().split())
    return False


def build(settings: Settings) -> Runtime:
    """Build all parts and recover their state. Blocks while it reads the disk. Raises Unusable, OSError."""
    isolation = isolation_here()
    if isolation.level == 0:
        raise Unusable(isolation.why)
    root, run = data_dir(settings), Path(settings.run_dir, "runtime")
    for directory in (root, run):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = _engine(settings, isolation, root, run)
    network = choose_network(settings, engine.state, root, privileged=engine.privileged)
    containers = Containers(engine)
    sandboxes = Sandboxes(engine, containers, network)
    _recover(engine, containers, sandboxes)
    network.reconcile()
    stats = Stats(engine)
    images = ImageService(engine, stats, Path(settings.images_dir or root / "import"), settings.registries_dir)
    engine.users_problems = users_trial.problems(engine)
    about = _about(engine, isolation, network)
    sessions = Sessions(engine, settings.streaming_idle_timeout_s)
    service = RuntimeService(engine, containers, sandboxes, stats, network, sessions, about)
    return Runtime(engine, containers, images, service, network, sessions, isolation, stats, sandboxes)


def data_dir(settings: Settings) -> Path:
    """Directory of images and records."""
    return Path(checkpoints_dir(settings.root_dir), "runtime")


def _engine(settings: Settings, isolation: Isolation, root: Path, run: Path) -> Engine:
    state = State()
    durable = os.environ.get(TEMPORARY) != "1"
    store = ImageStore(root / "images", in_use=state.layers_in_use, durable=durable)
    overlay = isolation.level < 3 and _overlays(root)
    rootfs = RootFs(store, overlay=overlay, links=isolation.level == 3)
    systemd = settings.cgroup_driver == "systemd"
    ocis = {one.name: one for one in _ocis(isolation, run, systemd=systemd)}
    offered = isolation.offered or (HELPER,)
    return Engine(
        root=root,
        run=run,
        store=store,
        rootfs=rootfs,
        volumes=ImageVolumes(store, rootfs, run / "volumes" if rootfs.overlay else root / "volumes"),
        ocis=ocis,
        offered=offered,
        monitor=MonitorManager(run / "monitor.sock"),
        machine=_machine(systemd, isolation),
        state=state,
        labelling=_labelling(isolation, [ocis[name] for name in offered], state),
        sandboxes=Records(root, "sandboxes", SandboxRecord),
        containers=Records(root, "containers", ContainerRecord),
        boot=boot_id(),
        hidden=host_image.hidden(settings),
        host_image_for_all=settings.host_image_for_all,
        privileged=isolation.level < 3,
        default_cgroup="/nodevisor.slice" if systemd else "/nodevisor",
        cdi_directories=_cdi_directories(),
    )


def _overlays(root: Path) -> bool:
    """Return True when root file systems are overlayfs.

    A full or read-only disk cannot be tried. There the last trial counts; without a failed one, overlayfs is taken.
    """
    refused = root / NO_OVERLAY
    try:
        able = can_overlay(root / "probe")
    except OSError as error:
        able = not refused.exists()
        kind = "overlayfs" if able else "copies of images"
        log.warning("cannot try overlayfs in %s: %s; root file systems are %s, as before", root, error, kind)
        return able
    with contextlib.suppress(OSError):
        refused.unlink(missing_ok=True) if able else refused.touch()
    return able


def _cdi_directories() -> tuple[str, ...]:
    asked = tuple(one for one in os.environ.get(CDI_DIRECTORIES, "").split(":") if one.startswith("/"))
    return asked or cdi.DIRECTORIES


def _ocis(isolation: Isolation, run: Path, *, systemd: bool) -> list[OciRuntime]:
    """The OCI runtimes in order. Older versions had one, whose containers are in the same directory."""
    root = run / "oci"
    if isolation.level == 1:
        return [OciRuntime([path], os.path.basename(path), root, systemd=systemd) for path in isolation.programs]
    scopes = systemd and isolation.mode == ROOT
    return [OciRuntime(_helper(isolation, run), HELPER, root, systemd=False, scopes=scopes)]


def _labelling(isolation: Isolation, offered: Sequence[OciRuntime], state: State) -> Labelling:
    """SELinux labels for pods, where the policy has some and the OCI runtimes give them to processes and mounts."""
    machine = selinux.read()
    if not machine.enabled:
        return Labelling(None, "", state.levels_in_use)
    problem = f"isolation level {isolation.level} labels nothing; install runc or crun" if isolation.level != 1 else ""
    if not problem and any(oci.name == "crun" and "+SELINUX" not in oci.about() for oci in offered):
        problem = f"crun is built without SELinux; have only runc: {OCI_PROGRAM}=runc in the agent's environment"
    try:
        found = None if problem else kernel.find_defaults(machine)
    except BadLabel as error:
        found, problem = None, str(error)
    if problem:
        log.warning("SELinux is enabled and pods get no labels: %s", problem)
    return Labelling(found, problem, state.levels_in_use)


def _helper(isolation: Isolation, run: Path) -> list[str]:
    """The helper's command line, with an interpreter that containers cannot write to."""
    if isolation.mode == ROOT:
        try:
            return helper_command(ROOT, interpreter.seal(run))
        except OSError as error:
            log.warning("cannot mount the interpreter read-only: %s; it is copied for each start instead", error)
    # A plain process runs as the agent's user and sees the interpreter's file anyway.
    return helper_command(isolation.mode, sealed=isolation.mode != PLAIN and can_seal())


def _machine(systemd: bool, isolation: Isolation) -> Machine:
    status = Path("/proc/self/status").read_text().splitlines()
    masks = {key: int(value, 16) for key, _, value in (line.partition(":") for line in status) if key.startswith("Cap")}
    can_lower = bool(masks["CapEff"] >> 24 & 1)  # CAP_SYS_RESOURCE
    return Machine(
        unified=hierarchy().unified,
        capabilities=tuple(bounding_set(masks["CapBnd"])),
        systemd_cgroups=systemd,
        hugetlb=_limits_huge_pages(),
        apparmor=isolation.level == 1 and _has_apparmor(),
        lowest_oom_score_adj=-1000 if can_lower else int(Path("/proc/self/oom_score_adj").read_text()),
    )


def _has_apparmor() -> bool:
    with contextlib.suppress(OSError):
        return Path("/sys/module/apparmor/parameters/enabled").read_text().startswith("Y")
    return False


def _limits_huge_pages() -> bool:
    tree = hierarchy()
    if not tree.unified:
        return "hugetlb" in tree.mounts
    return "hugetlb" in Path(tree.mounts[""], "cgroup.controllers").read_text().split()


def _about(engine: Engine, isolation: Isolation, network: PodNetwork | HostNetwork) -> dict[str, Any]:
    oci, paths = engine.ocis[engine.offered[0]], {os.path.basename(path): path for path in isolation.programs}
    return {
        "version": importlib.metadata.version("nodevisor"),
        "isolation": isolation.level,
        "isolationMode": isolation.mode,
        "isolationReason": isolation.why,
        "ociRuntime": paths.get(oci.name, oci.name),
        "ociRuntimeVersion": oci.version(),
        "rootFileSystems": "overlay" if engine.rootfs.overlay else "copy",
        "network": network.kind,
        "userNamespaces": engine.users_by_oci(),
        "selinux": "on" if engine.labelling.works else engine.labelling.problem or "off",
        "root": str(engine.root),
        "run": str(engine.run),
    }


# After a start


def _recover(engine: Engine, containers: Containers, sandboxes: Sandboxes) -> None:
    unfinished: list[Path] = []

    def leave(directory: Path) -> bool:
        unfinished.append(directory)
        return False

    for record in engine.sandboxes.load(leave):
        engine.state.sandboxes.add(Sandbox(record))
    found = list(engine.containers.load())
    _require_whole(engine, found, {path.name for path in unfinished if (path / "record.json").exists()})
    for record in found:
        if engine.state.sandboxes.find(record.sandbox_id) is None:
            log.warning("container %s has no pod sandbox: removed", record.id)
            _try_to_remove(engine.containers.remove, record.id)
            continue
        container = Container(record)
        container.started = read_started(engine.containers.path(record.id))
        engine.state.containers.add(container)
    starting = _meet_monitor(engine, containers, sandboxes)
    for container in engine.state.containers.all():
        containers.reconcile(container)
    for sandbox in engine.state.sandboxes.all():
        sandboxes.reconcile(sandbox)
    _clear(engine, sandboxes, {one.record.id for one in starting}, {path.name for path in unfinished})
    for container in starting:
        containers.finish_start(container)
    sandboxes.remove_unfinished(unfinished)


def _require_whole(engine: Engine, containers: Sequence[ContainerRecord], damaged: Collection[str]) -> None:
    """Raise UnreadableError when a container runs in one of these sandboxes: without the sandbox it would end."""
    for record in containers:
        started = read_started(engine.containers.path(record.id)) if record.sandbox_id in damaged else None
        if started is not None and processes.is_alive(started.pid, started.ticks):
            sandbox = engine.sandboxes.path(record.sandbox_id)
            raise UnreadableError(
                f"cannot use {sandbox / 'record.json'}, and its container {record.id} runs: put a copy of the file "
                f"back, or move {sandbox} away to end the container"
            )


def _meet_monitor(engine: Engine, containers: Containers, sandboxes: Sandboxes) -> list[Container]:
    """Return the containers whose start still goes on."""

    def on_exited(id_: str, code: int, at_ns: int) -> None:
        sandbox = engine.state.sandboxes.find(id_)
        if sandbox is not None:
            sandboxes.on_exited(sandbox)
        else:
            containers.on_exited(id_, code, at_ns)

    engine.monitor.on_exited = on_exited
    engine.monitor.adopt = containers.adopt
    unfinished = [one for one in engine.state.containers.all() if one.record.finished is None]
    if not unfinished:
        return []  # the first container's start starts a monitor
    try:
        return _wait_for_starts(engine, [one for one in unfinished if one.started is None])
    except (MonitorError, TimeoutError, OSError) as error:
        log.warning("cannot ask the containers' monitor which containers run: %s", error)
        return []


def _wait_for_starts(engine: Engine, created: list[Container]) -> list[Container]:
    """Wait until each container that the former actor was starting has started or failed. Return the late ones."""
    deadline = time.monotonic() + STARTING_S
    while True:
        _, watched = engine.monitor.client.containers()
        for container in created:
            container.started = read_started(engine.containers.path(container.record.id))
        late = [one for one in created if one.record.id in watched and one.started is None]
        if not late or time.monotonic() >= deadline:
            return late
        time.sleep(0.05)


def _try_to_remove(remove: Callable[[T], None], leftover: T) -> None:
    """A leftover of one container must not keep the runtime from serving all others."""
    try:
        remove(leftover)
    except OSError as error:
        log.warning("cannot remove what container %s left: %s; trying again at the next start", leftover, error)


def _clear(engine: Engine, sandboxes: Sandboxes, starting: set[str], unfinished: set[str]) -> None:
    """Remove mounts, containers and files that no record owns.

    Leaves those of containers that are `starting`, and the namespaces of `unfinished` sandboxes.
    """
    running = {one.record.id for one in engine.state.containers.all() if one.state == pb.CONTAINER_RUNNING} | starting
    pauses = {one.record.id for one in engine.state.sandboxes.all() if one.record.pause_pid and not one.record.stopped}
    for id_ in next(iter(engine.ocis.values())).known():
        if id_ not in running | pauses:
            log.info("removing leftovers of container %s", id_)
            engine.oci_with(id_).delete(id_)
    mounts = engine.run / "rootfs"
    for path in list(mounts.iterdir()) if mounts.is_dir() else ():
        if path.name not in running:
            _try_to_remove(engine.rootfs.remove, path)
    for id_ in engine.volumes.orphaned(running):
        _try_to_remove(engine.volumes.remove, id_)
    sandboxes.release_orphaned(unfinished)
    end_orphaned_execs(engine, (one.record.cgroup for one in engine.state.containers.all()))
    remove_tree(engine.root / "probe")
