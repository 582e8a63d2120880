"""Creates, starts, stops, updates and removes containers, and records their exits.

Each operation holds the container's lock. Its steps are ordered so that a kill between any two is harmless. A container
exists once its record is written. It runs once the monitor has written `started`, and has exited once the monitor has
written `exit`. It is gone once its directory is in the trash. `reconcile` updates a container from its files; it runs
for all at start.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from actors.runtime.containers import container_labels
from actors.runtime.containers.bundle import BundleBuilder
from actors.runtime.containers.log_place import log_place
from actors.runtime.containers.mount_places import require_proc_uncovered
from actors.runtime.containers.pod_limits import pod_users, require_within_pod
from actors.runtime.engine.engine import Engine
from actors.runtime.engine.monitor_client import ANSWER_S, MonitorClient, MonitorError, MonitorLost
from actors.runtime.filesystems import declared_volumes, shown_mounts
from actors.runtime.images.errors import ImageError
from actors.runtime.images.limits import Budget
from actors.runtime.model import oom, processes
from actors.runtime.model.errors import AtEnd, RpcError, invalid, not_found, unmet
from actors.runtime.model.records import ContainerRecord, Finished, read_exit, read_started
from actors.runtime.model.state import Container, Sandbox
from actors.runtime.model.user_mapping import PodUsers
from actors.runtime.oci.runtime import LOG, OciError, last_error
from actors.runtime.oci.spec.build import resources
from actors.runtime.oci.spec.mounts import depth
from actors.runtime.policy import START_ERROR_CODE, reason_of
from proto.cri import api_pb2 as pb

KILL_S = 30.0
"""Waits this long after SIGKILL; only a process that the kernel holds takes longer."""
log = logging.getLogger(__name__)


class Containers:
    """All operations on containers. Safe from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._bundles = BundleBuilder(engine)
        # Exits are recorded in these threads, not in the monitor client's reader: they wait for replies that it reads.
        self._exit_recorders = ThreadPoolExecutor(4, thread_name_prefix="reconcile")

    # Life cycle

    def create(self, sandbox: Sandbox, config: pb.ContainerConfig, pod: pb.PodSandboxConfig) -> Container:
        """CreateContainer. `pod` is the sandbox's configuration in the request. Raises RpcError."""
        problem = self._engine.users_problems[self._engine.oci_of(sandbox.record.id).name]
        users = pod_users(sandbox.config.linux.security_context.namespace_options, problem)
        require_within_pod(config, pod, users)
        if sandbox.record.stopped:
            raise unmet(f"pod sandbox {sandbox.record.id} is not ready")
        if not config.metadata.name:
            raise invalid("a container needs a name in its metadata")
        with self._engine.store.lease() as lease, self._engine.labelling.new_level() as level:
            labels = container_labels.choose(self._engine, sandbox, config, level)
            prepared = self._bundles.new(sandbox, config, lease, labels)
            container = prepared.container
            self._engine.state.reserve(container.key, container.record.id)
            try:
                with sandbox.lock:
                    if sandbox.record.stopped:
                        raise unmet(f"pod sandbox {sandbox.record.id} is not ready")
                    self._bundles.write(sandbox, prepared)
                    self._engine.state.containers.add(container)
            except BaseException:
                self._engine.state.release(container.key)
                self._engine.containers.remove(container.record.id)
                raise
        self._publish(container, pb.CONTAINER_CREATED_EVENT)
        return container

    def start(self, container: Container) -> None:
        """StartContainer. Raises RpcError; the container has then exited, with the error as its message."""
        with container.lock:
            if container.state != pb.CONTAINER_CREATED:
                raise unmet(f"container {container.record.id} is in state {pb.ContainerState.Name(container.state)}")
            self._require_there(container)
            sandbox = self._engine.state.sandboxes.get(container.record.sandbox_id)
            if sandbox.record.stopped:
                raise unmet(f"pod sandbox {sandbox.record.id} is not ready")
            container.starting = True
            try:
                self._run(container)
            except (OSError, MonitorError, ImageError, ValueError) as error:
                if self._engine.monitor.closed:  # the monitor may go on with the start, and needs the container's root
                    message = f"the runtime stops while container {container.record.id!r} starts; try again"
                    raise RpcError("UNAVAILABLE", message) from error
                why = last_error(self._directory(container) / LOG) or str(error)
                self._failed_to_start(container, why)
                raise RpcError("UNKNOWN", f"failed to start container {container.record.id!r}: {why}") from error
            finally:
                container.starting = False
            self._publish(container, pb.CONTAINER_STARTED_EVENT)  # with the lock: before its end

    def _run(self, container: Container) -> None:
        record, directory = container.record, self._directory(container)
        mounted = self._engine.mounts_of(record.id)
        users = self._users(container)
        self._engine.rootfs.prepare(record.layers, directory, mounted, users, record.labels.mount)
        self._engine.volumes.prepare(record.id, record.volumes, users, record.labels.mount)
        if record.declared:
            stack, budget = self._engine.rootfs.stack(record.layers), Budget(self._engine.store.limits, str(directory))
            declared_volumes.prepare(directory, record.declared, stack, budget, record.labels.mount)
        self._require_proc_uncovered(container, mounted)
        self._require_pid_namespace(container)
        stdin = str(directory / "stdin") if container.config.stdin and not container.config.tty else ""
        console = str(self._engine.console_of(record.id)) if container.config.tty else ""
        oci = self._engine.oci_of(record.sandbox_id)
        command = oci.run_command(record.id, directory, console)
        if users is not None:
            command = shown_mounts.command(command, directory, users, mounted, record.shown)
        if record.cgroup:
            oom.begin(record.cgroup)
        try:
            with oci.starting(record.cgroup, self._resources(container.config.linux.resources)):
                self._engine.monitor.client.ask(
                    "start", record.id, str(directory), log_place(container), stdin, console, *command
                )
        except (MonitorLost, TimeoutError):
            if read_started(directory) is None:
                raise
            # The container started; the next monitor has adopted it.
        container.started = read_started(directory)
        if container.started is None:
            raise MonitorError("the monitor cannot write that the container started; check for a full disk")
        self._note_cgroup(container, container.started.pid)

    def _users(self, container: Container) -> PodUsers | None:
        """The users of its pod. Raises ValueError where no pod can have users of its own any more."""
        users = self._engine.state.sandboxes.get(container.record.sandbox_id).users
        problem = self._engine.users_problems[self._engine.oci_of(container.record.sandbox_id).name]
        if users is not None and problem:
            raise ValueError(f"its pod's user namespace cannot be used: {problem}")
        return users

    def _require_proc_uncovered(self, container: Container, mounted: Path) -> None:
        images = self._engine.volumes.sources(container.record.id, container.record.volumes)
        places = [
            (mount.container_path, mount.host_path or images.get(index, ""))
            for index, mount in enumerate(container.config.mounts)
        ]
        places += declared_volumes.sources(self._directory(container), container.record.declared).items()
        require_proc_uncovered(str(mounted), sorted(places, key=lambda one: depth(one[0])))

    def _require_pid_namespace(self, container: Container) -> None:
        """Require that the process still runs whose pid namespace the container joins. Raises ValueError.

        The specification names the namespace by a pid, which a process of the machine may have by now.
        """
        options = container.config.linux.security_context.namespace_options
        if options.pid == pb.TARGET:
            target = self._engine.state.containers.find(options.target_id)
            started, whose = target.started if target is not None else None, f"container {options.target_id}"
        elif options.pid == pb.POD and self._engine.privileged:
            sandbox_id = container.record.sandbox_id
            started, whose = read_started(self._engine.sandboxes.path(sandbox_id)), f"sandbox {sandbox_id}"
        else:
            return
        if started is None or not processes.is_alive(started.pid, started.ticks):
            raise ValueError(f"cannot share the processes of {whose}, which does not run")

    def _note_cgroup(self, container: Container, pid: int) -> None:
        """Record the cgroup where the OCI runtime makes one below systemd's scope, as crun does."""
        cgroup = processes.cgroup_of(pid) if self._engine.machine.systemd_cgroups else ""
        if cgroup.startswith(f"{container.record.cgroup}/"):
            self._save(container, msgspec.structs.replace(container.record, cgroup=cgroup))

    def _failed_to_start(self, container: Container, why: str) -> None:
        with contextlib.suppress(MonitorError, TimeoutError, OSError):
            self._engine.monitor.client.ask("forget", container.record.id)
        if container.record.cgroup:
            oom.kills(container.record.cgroup)
        self._engine.oci_of(container.record.sandbox_id).delete(container.record.id)
        with contextlib.suppress(OSError):
            self._unmount(container)
        self._finish(container, Finished(code=START_ERROR_CODE, at_ns=time.time_ns(), reason="StartError", message=why))

    def finish_start(self, container: Container) -> None:
        """After a restart: wait in a thread for a start that the former actor began. The monitor goes on with it.

        The container is locked until its start has ended, as in `start`.
        """
        locked = threading.Event()

        def work() -> None:
            with container.lock:
                container.starting = True
                locked.set()
                try:
                    self._await_start(container)
                except Exception:
                    log.exception("cannot put the start of container %s on record", container.record.id)
                finally:
                    container.starting = False

        threading.Thread(target=work, name="start", daemon=True).start()
        locked.wait()

    def _await_start(self, container: Container) -> None:
        deadline = time.monotonic() + ANSWER_S
        why = "the OCI runtime failed while the runtime was restarted"
        while self._starts(container):
            if self._engine.monitor.closed:
                return  # the next runtime waits
            if time.monotonic() > deadline:
                why = f"the OCI runtime has not started it within {ANSWER_S:g} s"
                break
            time.sleep(0.2)
        if container.started is None:
            self._failed_to_start(container, last_error(self._directory(container) / LOG) or why)
            self._publish(container, pb.CONTAINER_STOPPED_EVENT)
            return
        self._publish(container, pb.CONTAINER_STARTED_EVENT)
        self._note_cgroup(container, container.started.pid)

    def _starts(self, container: Container) -> bool:
        """Return False once its start has succeeded, with `started` set, or has failed."""
        watched = True  # unless the monitor says otherwise
        with contextlib.suppress(MonitorError, TimeoutError, OSError):
            watched = container.record.id in self._engine.monitor.client.containers()[1]
        container.started = read_started(self._directory(container))
        return watched and container.started is None

    def stop(self, container: Container, grace_s: float, at_end: AtEnd = lambda _: None) -> None:
        """StopContainer: the stop signal, the grace period, SIGKILL. Returns after the exit. Raises RpcError.

        A client that goes within the grace period prevents the SIGKILL, as in containerd: its next call has another.
        """
        if not self._is_running(container):
            return
        if grace_s > 0:
            self._signal_stop(container)
            if container.ended.wait(grace_s, at_end):
                return
        self._kill(container)

    def _signal_stop(self, container: Container) -> None:
        with container.lock:
            first, container.stop_signalled = not container.stop_signalled, True
        if first:
            self._signal(container, container.record.stop_signal)

    def _kill(self, container: Container) -> None:
        deadline = time.monotonic() + KILL_S
        while not container.ended.is_set():
            self._signal(container, signal.SIGKILL)
            if container.ended.wait(0.5):
                return
            self.reconcile(container)
            if self._engine.monitor.closed and not container.ended.is_set():
                raise RpcError("UNAVAILABLE", f"the runtime stops before container {container.record.id} has ended")
            if time.monotonic() > deadline:
                raise RpcError(
                    "DEADLINE_EXCEEDED", f"container {container.record.id} does not end: SIGKILL was {KILL_S:g} s ago"
                )

    def _signal(self, container: Container, number: int) -> None:
        if container.started is not None:
            processes.send_signal(container.started.pid, container.started.ticks, number)

    def _is_running(self, container: Container) -> bool:
        with container.lock:
            return container.state == pb.CONTAINER_RUNNING

    def remove(self, container: Container) -> None:
        """RemoveContainer; kills it if it runs. Raises RpcError."""
        if self._is_running(container):
            self._kill(container)
        with container.lock:
            if self._engine.state.containers.find(container.record.id) is not container:
                return  # another thread removed it
            self._take_away(container)
            self._engine.containers.remove(container.record.id)
            self._engine.state.containers.drop(container)
        self._engine.store.collect()
        self._publish(container, pb.CONTAINER_DELETED_EVENT)

    def _take_away(self, container: Container) -> None:
        with contextlib.suppress(MonitorError, TimeoutError):
            self._engine.monitor.client.ask("forget", container.record.id)
        try:
            self._unmount(container)
        except OSError as error:
            raise RpcError("UNKNOWN", f"cannot remove container {container.record.id}: {error}") from error

    def _unmount(self, container: Container) -> None:
        """Unmount its root and its volumes. Idempotent. Raises OSError."""
        self._engine.rootfs.remove(self._engine.mounts_of(container.record.id))
        self._engine.volumes.remove(container.record.id)

    # Exit

    def reconcile(self, container: Container, report: tuple[int, int] | None = None) -> None:
        """Record the exit, if the container's files or its process show one. Idempotent.

        `report` is the monitor's report, (exit code, time in ns): on a full disk there is no file.
        """
        with container.lock:
            if container.record.finished is not None:
                return
            directory = self._directory(container)
            container.started = container.started or read_started(directory)
            ended = read_exit(directory) or report
            if ended is None and (container.started is None or self._runs(container)):
                return
            code, at_ns = ended or (255, time.time_ns())
            self._note_end(container, code, at_ns, known=ended is not None)
            self._publish(container, pb.CONTAINER_STOPPED_EVENT)

    def _runs(self, container: Container) -> bool:
        """Return True when its first process runs, or when the monitor may still report its exit.

        A runtime that stops has closed the connection to the monitor: the next one reads the exit.
        """
        if container.started is None or container.record.boot != self._engine.boot:
            return False
        if processes.is_alive(container.started.pid, container.started.ticks):
            return True
        try:
            return container.record.id in self._engine.monitor.client.containers()[1]
        except (MonitorError, TimeoutError, OSError):
            return self._engine.monitor.closed

    def _note_end(self, container: Container, code: int, at_ns: int, *, known: bool) -> None:
        record = container.record
        here = record.boot == self._engine.boot
        kills = oom.kills(record.cgroup, by_sigkill=code == 128 + signal.SIGKILL) if here and record.cgroup else 0
        if here and record.cgroup:
            processes.kill_cgroup(record.cgroup)
        self._engine.oci_of(record.sandbox_id).delete(record.id)
        try:
            self._unmount(container)
        except OSError as error:
            log.warning(
                "cannot unmount the file systems of container %s yet: %s; trying again at its removal", record.id, error
            )
        reason = reason_of(code, kills) if known else "Unknown"
        message = "" if known else "exit code unknown: the container's monitor had died"
        self._finish(container, Finished(code=code, at_ns=at_ns, reason=reason, message=message))

    def _finish(self, container: Container, finished: Finished) -> None:
        try:
            self._save(container, msgspec.structs.replace(container.record, finished=finished))
        except OSError as error:  # a full disk: memory has it until `save_unsaved`, and `exit` after a restart
            log.warning(
                "cannot write the end of container %s yet: %s; it is kept in memory and written later",
                container.record.id,
                error,
            )
            container.record = msgspec.structs.replace(container.record, finished=finished)
            container.unsaved = True
        container.ended.set()

    def _save(self, container: Container, record: ContainerRecord) -> None:
        self._engine.containers.save(record)
        container.record = record
        container.unsaved = False

    def save_unsaved(self) -> None:
        """Write the records that a full disk refused. Those of containers in use wait for the next call."""
        for container in self._engine.state.containers.all():
            if container.unsaved and container.lock.acquire(blocking=False):
                try:
                    if self._engine.state.containers.find(container.record.id) is container:
                        self._save(container, container.record)
                except OSError as error:
                    log.debug("cannot write the record of container %s yet: %s", container.record.id, error)
                finally:
                    container.lock.release()

    def refresh(self, container: Container) -> None:
        """Record an exit before the container is shown as running: a client may have seen the exit by a pidfd."""
        started = container.started
        if container.record.finished is not None or started is None:
            return
        if not processes.is_alive(started.pid, started.ticks) and not container.ended.wait(2.0):
            self.reconcile(container)

    # Other operations

    def update(self, container: Container, wanted: pb.LinuxContainerResources) -> None:
        """UpdateContainerResources. Raises RpcError, NOT_FOUND for a container that was removed meanwhile."""
        with container.lock:
            self._require_there(container)
            if container.state == pb.CONTAINER_EXITED:
                raise unmet(f"container {container.record.id} has ended")
            config = pb.ContainerConfig()
            config.CopyFrom(container.config)
            merge_resources(config.linux.resources, wanted)
            try:
                if container.state == pb.CONTAINER_RUNNING:
                    oci = self._engine.oci_of(container.record.sandbox_id)
                    oci.update(container.record.id, container.record.cgroup, self._resources(wanted))
                else:
                    self._bundles.change_resources(container, config)
                self._save(container, msgspec.structs.replace(container.record, config=config.SerializeToString()))
            except (OciError, OSError) as error:
                raise RpcError("UNKNOWN", f"cannot update container {container.record.id}: {error}") from error
            container.config = config

    def _resources(self, wanted: pb.LinuxContainerResources) -> dict[str, Any]:
        return resources(wanted, hugetlb=self._engine.machine.hugetlb)

    def reopen_log(self, container: Container) -> None:
        """ReopenContainerLog. Raises RpcError."""
        if not self._is_running(container):
            raise unmet(f"container {container.record.id} is not running")
        try:
            self._engine.monitor.client.ask("reopen", container.record.id, log_place(container))
        except (MonitorError, TimeoutError, OSError) as error:
            raise RpcError("UNKNOWN", f"cannot reopen the log of {container.record.id}: {error}") from error

    # Monitor

    def on_exited(self, id_: str, code: int, at_ns: int) -> None:
        """Record an exit that the monitor reports."""
        container = self._engine.state.containers.find(id_)
        if container is not None:
            self._exit_recorders.submit(self._record_exit, container, (code, at_ns))

    def _record_exit(self, container: Container, report: tuple[int, int]) -> None:
        try:
            self.reconcile(container, report)
        except Exception:
            log.exception("cannot put the end of container %s on record", container.record.id)

    def adopt(self, monitor: MonitorClient) -> None:
        """Make the monitor watch the running containers that it does not know."""
        _, known = monitor.containers()
        for container in self._engine.state.containers.all():
            record, started = container.record, container.started
            if record.id in known or record.finished is not None or started is None:
                continue
            if processes.is_alive(started.pid, started.ticks):
                try:
                    directory, log_file = str(self._directory(container)), log_place(container)
                    monitor.ask("adopt", record.id, directory, log_file, str(started.pid))
                except MonitorError as error:
                    log.warning("the monitor cannot adopt container %s: %s", record.id, error)

    def _require_there(self, container: Container) -> None:
        if self._engine.state.containers.find(container.record.id) is not container:
            raise not_found("container", container.record.id)

    def _directory(self, container: Container) -> Path:
        return self._engine.containers.path(container.record.id)

    def _publish(self, container: Container, kind: pb.ContainerEventType.ValueType) -> None:
        self._engine.hub.publish(pb.ContainerEventResponse(container_id=container.record.id, container_event_type=kind))


def merge_resources(into: pb.LinuxContainerResources, wanted: pb.LinuxContainerResources) -> None:
    """Merge requested resources into the current ones; fields that are not set stay."""
    unified = dict(into.unified) | dict(wanted.unified)
    pages = list(wanted.hugepage_limits) or list(into.hugepage_limits)
    into.MergeFrom(wanted)
    into.ClearField("hugepage_limits")
    into.hugepage_limits.extend(pages)
    into.unified.clear()
    into.unified.update(unified)
