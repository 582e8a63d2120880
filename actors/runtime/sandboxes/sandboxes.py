"""Pod sandboxes: the namespaces, shared memory, files and network that a pod's containers share.

No process keeps a sandbox alive: its namespaces are pinned (model/namespaces.py). Only a pod with a shared pid
namespace has a pause process. A kill at any step leaves a directory without a record; the next start removes its pins
and mounts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from actors._host.files import mounts
from actors.runtime.containers.bundle import hostname_of
from actors.runtime.containers.containers import Containers
from actors.runtime.containers.pod_limits import pod_users
from actors.runtime.engine.engine import Engine
from actors.runtime.engine.monitor_client import MonitorError
from actors.runtime.model import namespaces
from actors.runtime.model.disk import remove_tree
from actors.runtime.model.errors import RpcError, invalid, not_found
from actors.runtime.model.records import ETC_FILES, SandboxRecord, new_id
from actors.runtime.model.state import Sandbox
from actors.runtime.model.user_mapping import mapping_of
from actors.runtime.network.api import Network, NetworkError
from actors.runtime.oci import user_namespaces
from actors.runtime.oci.spec.security import selinux_options
from actors.runtime.sandboxes.pause import Pause
from actors.runtime.selinux.kernel import label_file
from actors.runtime.selinux.labels import BadLabel, Labels
from proto.cri import api_pb2 as pb

SHM_BYTES = 64 * 1024 * 1024
"""Size of a pod's /dev/shm, as in all runtimes."""
_SHM_FLAGS = 2 | 4 | 8  # MS_NOSUID, MS_NODEV, MS_NOEXEC
RESOLV_CONF = "/etc/resolv.conf"
_ATTACHED = "attached"
"""File in the directory of a sandbox that failed and could not be detached: StopPodSandbox tries again."""
log = logging.getLogger(__name__)


class Sandboxes:
    """All operations on sandboxes. Safe from any thread."""

    def __init__(self, engine: Engine, containers: Containers, network: Network) -> None:
        self._engine = engine
        self._containers = containers
        self._network = network
        self._pause = Pause(engine)

    def run(self, config: pb.PodSandboxConfig, handler: str) -> Sandbox:
        """RunPodSandbox; the sandbox is ready on return. Raises RpcError."""
        if handler and handler not in self._engine.offered:
            raise invalid(f"no runtime handler {handler!r}; there is: {', '.join(('', *self._engine.offered))}")
        if not config.metadata.name or not config.metadata.uid:
            raise invalid("a pod sandbox needs a name and a UID in its metadata")
        options = config.linux.security_context.namespace_options
        chosen = self._engine.choose_oci(handler, users=mapping_of(options) is not None)
        pod_users(options, chosen.problem)
        with self._engine.labelling.new_level() as level:
            return self._run(config, handler, chosen.name, self._labels(config, level))

    def _labels(self, config: pb.PodSandboxConfig, own_level: str) -> Labels:
        """The SELinux labels of the pod. Raises RpcError."""
        try:
            options = selinux_options(config.linux.security_context.selinux_options)
            return self._engine.labelling.labels(options, own_level)
        except BadLabel as error:
            raise invalid(f"cannot label the pod sandbox: {error}") from error

    def _run(self, config: pb.PodSandboxConfig, handler: str, oci: str, labels: Labels) -> Sandbox:
        record = SandboxRecord(
            id=new_id(),
            config=config.SerializeToString(),
            created_at_ns=time.time_ns(),
            boot=self._engine.boot,
            handler=handler,
            oci=oci,
            labels=labels,
        )
        sandbox = Sandbox(record)
        self._engine.state.reserve(sandbox.key, record.id)
        try:
            self._set_up(sandbox)
        except BaseException as error:
            try:
                self._undo(sandbox)
            finally:
                if self._engine.state.sandboxes.find(record.id) is not sandbox:
                    self._engine.state.release(sandbox.key)
            if isinstance(error, OSError | NetworkError | MonitorError):
                raise RpcError("UNKNOWN", f"cannot create the pod sandbox: {error}") from error
            raise
        return sandbox

    def _set_up(self, sandbox: Sandbox) -> None:
        id_, options = sandbox.record.id, sandbox.config.linux.security_context.namespace_options
        directory = self._engine.sandboxes.path(id_)
        directory.mkdir(mode=0o700)
        self._write_files(sandbox, directory)
        pins, pause_pid = self._isolate(sandbox, directory)
        netns = pins.get("network", "")
        network, ips = ({}, ()) if options.network == pb.NODE else self._network.attach(sandbox, netns, directory)
        record = msgspec.structs.replace(sandbox.record, namespaces=pins, pause_pid=pause_pid, network=network, ips=ips)
        self._engine.sandboxes.save(record)
        sandbox.record = record
        self._engine.state.sandboxes.add(sandbox)

    def _isolate(self, sandbox: Sandbox, directory: Path) -> tuple[dict[str, str], int]:
        """Make shared memory, namespaces and pause process; return paths of the namespaces and the pause process's pid.

        Without privileges shared memory is a directory, there is nothing else, and sysctls are refused.
        """
        id_, options = sandbox.record.id, sandbox.config.linux.security_context.namespace_options
        shm, sysctls = self._engine.shm_of(id_), dict(sandbox.config.linux.sysctls)
        if options.ipc != pb.NODE:
            shm.mkdir(parents=True, exist_ok=True)
        if not self._engine.privileged:
            if options.ipc != pb.NODE:
                os.chmod(shm, 0o1777)
            return namespaces.make(self._engine.pins_of(id_), [], "", sysctls), 0
        kinds = [] if options.network == pb.NODE else ["network", "uts"]
        kinds += [] if options.ipc == pb.NODE else ["ipc"]
        users = mapping_of(options)
        with user_namespaces.held(users, kinds) if users is not None else contextlib.nullcontext(0) as holder:
            root = users.first if users is not None else 0
            pins = namespaces.make(
                self._engine.pins_of(id_), kinds, hostname_of(sandbox), sysctls, holder=holder, root=root
            )
        if options.ipc != pb.NODE:
            owner = f",uid={users.first},gid={users.first}" if users is not None else ""
            mounts.mount("shm", str(shm), "tmpfs", f"mode=1777,size={SHM_BYTES}{owner}", _SHM_FLAGS)
            label_file(shm, sandbox.record.labels.mount)
        if options.pid != pb.POD:
            return pins, 0
        oci = self._engine.ocis[sandbox.record.oci]
        pause_pid = self._pause.start(oci, id_, directory, sandbox.config.linux.cgroup_parent, pins, users)
        return pins | {"pid": f"/proc/{pause_pid}/ns/pid"}, pause_pid

    def _write_files(self, sandbox: Sandbox, directory: Path) -> None:
        (directory / "hostname").write_text(f"{hostname_of(sandbox)}\n")
        hosts = Path("/etc/hosts")
        (directory / "hosts").write_bytes(hosts.read_bytes() if hosts.exists() else b"127.0.0.1\tlocalhost\n")
        (directory / "resolv.conf").write_text(resolv_conf(sandbox.config.dns_config))
        for name in ETC_FILES:
            os.chmod(directory / name, 0o644)
            label_file(directory / name, sandbox.record.labels.mount)

    def stop(self, sandbox: Sandbox) -> None:
        """StopPodSandbox: stop its containers without grace, detach its network. Idempotent. Raises RpcError."""
        for container in self._engine.state.containers_of(sandbox.record.id):
            self._containers.stop(container, 0)
        with sandbox.lock:
            attached = self._engine.sandboxes.path(sandbox.record.id) / _ATTACHED
            record = sandbox.record
            if record.stopped and not record.pause_pid and not record.ips and not attached.exists():
                if record.boot != self._engine.boot:
                    self.release_network(self._engine.sandboxes.path(record.id))
                return
            try:
                self._tear_down(sandbox)
            except (OSError, NetworkError, MonitorError) as error:
                raise RpcError("UNKNOWN", f"cannot stop pod sandbox {sandbox.record.id}: {error}") from error
            self._keep(sandbox, msgspec.structs.replace(sandbox.record, stopped=True, ips=(), pause_pid=0))
            attached.unlink(missing_ok=True)
        for container in self._engine.state.containers_of(sandbox.record.id):
            self._containers.stop(container, 0)  # it was being created meanwhile

    def _keep(self, sandbox: Sandbox, record: SandboxRecord) -> None:
        """Record a change that frees things. A full disk must not prevent it: memory has it until `save_unsaved`.

        After a kill before that, StopPodSandbox is due again, and finds nothing left to do.
        """
        sandbox.record = record
        try:
            self._engine.sandboxes.save(record)
        except OSError as error:
            log.warning(
                "cannot write the end of pod sandbox %s yet: %s; it is kept in memory and written later",
                record.id,
                error,
            )
            sandbox.unsaved = True
        else:
            sandbox.unsaved = False

    def save_unsaved(self) -> None:
        """Write the records that a full disk refused. Those of sandboxes in use wait for the next call."""
        for sandbox in self._engine.state.sandboxes.all():
            if sandbox.unsaved and sandbox.lock.acquire(blocking=False):
                try:
                    if self._engine.state.sandboxes.find(sandbox.record.id) is sandbox:
                        self._engine.sandboxes.save(sandbox.record)
                        sandbox.unsaved = False
                except OSError as error:
                    log.debug("cannot write the record of pod sandbox %s yet: %s", sandbox.record.id, error)
                finally:
                    sandbox.lock.release()

    def note_resources(self, sandbox: Sandbox, wanted: pb.UpdatePodSandboxResourcesRequest) -> None:
        """Record the pod's current resources. Raises RpcError, NOT_FOUND for a sandbox that was removed meanwhile."""
        with sandbox.lock:
            if self._engine.state.sandboxes.find(sandbox.record.id) is not sandbox:
                raise not_found("pod sandbox", sandbox.record.id)
            config = pb.PodSandboxConfig()
            config.CopyFrom(sandbox.config)
            config.linux.resources.CopyFrom(wanted.resources)
            config.linux.overhead.CopyFrom(wanted.overhead)
            record = msgspec.structs.replace(sandbox.record, config=config.SerializeToString())
            try:
                self._engine.sandboxes.save(record)
            except OSError as error:
                raise RpcError("UNKNOWN", f"cannot record the resources of {sandbox.record.id}: {error}") from error
            sandbox.record, sandbox.config, sandbox.unsaved = record, config, False

    def _tear_down(self, sandbox: Sandbox) -> None:
        """Detach the network, end the pause process, remove pins and mounts. Idempotent. Raises OSError, NetworkError,
        MonitorError."""
        record = sandbox.record
        if record.boot == self._engine.boot:
            self._network.detach(sandbox, self._engine.sandboxes.path(record.id))
            self._pause.stop(self._engine.oci_of(record.id), record.id)
        else:
            self.release_network(self._engine.sandboxes.path(record.id))
        self._release(record.id)

    def _release(self, id_: str) -> None:
        shm = self._engine.shm_of(id_)
        if not self._engine.privileged:
            remove_tree(shm)
            return
        namespaces.unmount_all(str(shm))
        with contextlib.suppress(FileNotFoundError):
            shm.rmdir()
        namespaces.release(self._engine.pins_of(id_))

    def _undo(self, sandbox: Sandbox) -> None:
        """Clean up after a failed RunPodSandbox.

        With a network that cannot be detached the sandbox stays, not ready, so that its removal tries again.
        """
        id_ = sandbox.record.id
        try:
            self._network.detach(sandbox, self._engine.sandboxes.path(id_))
            detached = True
        except (OSError, NetworkError) as error:
            log.warning("cannot detach pod sandbox %s, which failed: %s; trying again at its removal", id_, error)
            detached = False
        with contextlib.suppress(OSError, MonitorError):
            self._pause.stop(self._engine.ocis[sandbox.record.oci], id_)
        with contextlib.suppress(OSError):
            self._release(id_)
        if detached:
            self._engine.sandboxes.remove(id_)
            return
        with contextlib.suppress(OSError):  # without its record, the next start detaches it
            (self._engine.sandboxes.path(id_) / _ATTACHED).touch()
            record = msgspec.structs.replace(sandbox.record, stopped=True)
            self._engine.sandboxes.save(record)
            sandbox.record = record
            self._engine.state.sandboxes.add(sandbox)

    def remove(self, sandbox: Sandbox) -> None:
        """RemovePodSandbox; kills and removes its containers. Raises RpcError."""
        self.stop(sandbox)
        for container in self._engine.state.containers_of(sandbox.record.id):
            self._containers.remove(container)
        with sandbox.lock:
            if self._engine.state.sandboxes.find(sandbox.record.id) is not sandbox:
                return
            self._engine.sandboxes.remove(sandbox.record.id)
            self._engine.state.sandboxes.drop(sandbox)

    def reconcile(self, sandbox: Sandbox) -> None:
        """Mark it as stopped if the machine has restarted or its pause process has ended.

        After a reboot StopPodSandbox or RemovePodSandbox releases its network. At the start a CNI plugin would keep all
        pods waiting, and the plugin's daemon may be one of them.
        """
        with sandbox.lock:
            record = sandbox.record
            if record.stopped:
                return
            ended = record.pause_pid and not self._pause.runs(record.id)
            if not (ended or record.boot != self._engine.boot or self._is_cleared(sandbox)):
                return
            ips = record.ips if record.boot == self._engine.boot else ()  # until StopPodSandbox takes its network back
            self._keep(sandbox, msgspec.structs.replace(record, stopped=True, ips=ips))

    def _is_cleared(self, sandbox: Sandbox) -> bool:
        """Return True when its namespaces or its shared memory are gone, so that no container can start in it.

        While a container of it runs, they are only out of this process's sight, and the pod stays. It also stays while
        the kernel does not tell, for lack of memory or because of a broken disk.
        """
        record, options = sandbox.record, sandbox.config.linux.security_context.namespace_options
        containers = self._engine.state.containers_of(record.id)
        if any(one.state == pb.CONTAINER_RUNNING for one in containers):
            return False
        pins = [path for kind, path in record.namespaces.items() if kind != "pid"]  # the pause process has that
        try:
            shared = options.ipc == pb.NODE or _is_there(self._engine.shm_of(record.id))
            return not (shared and namespaces.all_pinned(pins))
        except OSError as error:
            log.warning("cannot look at the namespaces of pod sandbox %s: %s; it stays", record.id, error)
            return False

    def on_exited(self, sandbox: Sandbox) -> None:
        """Handle the monitor's report that the pause process has exited.

        Runs in a thread: `stop` holds the sandbox's lock while it waits for a reply, which the caller of this method
        reads.
        """
        threading.Thread(target=self._record_exit, args=(sandbox,), name="sandbox", daemon=True).start()

    def _record_exit(self, sandbox: Sandbox) -> None:
        try:
            self.reconcile(sandbox)
        except Exception:
            log.exception("cannot put the end of pod sandbox %s on record", sandbox.record.id)

    def release_network(self, directory: Path) -> bool:
        """Release the addresses that CNI plugins keep on disk for a sandbox that is unfinished or of another boot.

        Returns False on failure. It is retried when the sandbox is removed, or at the next start if it is unfinished.
        """
        try:
            self._network.release(directory)
        except NetworkError as error:
            log.warning(
                "cannot release the network of pod sandbox %s: %s; trying again at its removal or the next start",
                directory.name,
                error,
            )
            return False
        return True

    def remove_unfinished(self, directories: Sequence[Path]) -> None:
        """At start: remove sandboxes without a record, in a thread, because a CNI plugin may take a minute for each.

        A namespace stays until its plugin has left it.
        """

        def work() -> None:
            for directory in directories:
                try:
                    released = self.release_network(directory)
                    self._release_orphan(directory.name)
                    if released:
                        log.warning("%s is unfinished or damaged: removed", directory)
                        self._engine.sandboxes.remove(directory.name)
                except Exception:
                    log.exception("cannot remove %s, which is unfinished; trying again at the next start", directory)

        if directories:
            threading.Thread(target=work, name="unfinished", daemon=True).start()

    def release_orphaned(self, but: Collection[str]) -> None:
        """At start: remove pins and mounts that belong to no sandbox; those of the IDs in `but` stay."""
        known = {sandbox.record.id for sandbox in self._engine.state.sandboxes.all() if not sandbox.record.stopped}
        known.update(but)
        for where in ("ns", "shm"):
            directory = self._engine.run / where
            if directory.is_dir():
                for path in list(directory.iterdir()):
                    if path.name not in known:
                        self._release_orphan(path.name)

    def _release_orphan(self, id_: str) -> None:
        log.info("removing leftovers of pod sandbox %s", id_)
        try:
            self._release(id_)
            self._pause.stop(self._engine.oci_with(id_), id_)
        except (OSError, MonitorError) as error:  # one pod's leftovers must not keep the others from being served
            log.warning("cannot remove leftovers of pod sandbox %s: %s; trying again at the next start", id_, error)


def _is_there(path: Path) -> bool:
    """Raises OSError when the kernel does not tell; Path.exists would return False."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def resolv_conf(dns: pb.DNSConfig) -> str:
    """The pod's resolv.conf: CRI's, or the machine's if CRI's is empty."""
    lines = [f"search {' '.join(dns.searches)}"] if dns.searches else []
    lines += [f"nameserver {server}" for server in dns.servers]
    lines += [f"options {' '.join(dns.options)}"] if dns.options else []
    if lines:
        return "\n".join(lines) + "\n"
    with contextlib.suppress(OSError):
        return Path(RESOLV_CONF).read_text()
    return ""
