"""Builds a container's OCI bundle: image, user, specification, FIFOs and record."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from actors._cri.image_reference import InvalidImageName
from actors._host.files import mounts
from actors.runtime.containers import container_labels, host_image
from actors.runtime.containers.log_place import log_place, make_directory
from actors.runtime.containers.pod_limits import require_users
from actors.runtime.engine.engine import Engine
from actors.runtime.filesystems import declared_volumes, shown_mounts
from actors.runtime.filesystems.rootfs import HOST_LAYER
from actors.runtime.helper.cgroups import name_of
from actors.runtime.images import names
from actors.runtime.images.errors import ImageError
from actors.runtime.images.local.stack import Stack
from actors.runtime.images.local.store import Lease
from actors.runtime.images.manifest import Execution
from actors.runtime.model.errors import RpcError, invalid
from actors.runtime.model.records import ContainerRecord, new_id
from actors.runtime.model.state import Container, Sandbox
from actors.runtime.oci import cdi
from actors.runtime.oci.spec import shown
from actors.runtime.oci.spec.build import BadContainer, Place, cgroups_path, resources, specification
from actors.runtime.oci.spec.mounts import BadMount, SandboxFiles, require_propagation
from actors.runtime.oci.spec.users import MOST_BYTES, NoSuchUser, User, choose
from actors.runtime.policy import signal_number
from actors.runtime.selinux.kernel import label_file
from actors.runtime.selinux.labels import Labels
from proto.common import untrusted
from proto.cri import api_pb2 as pb

SIGNALS = {one.name: one.value for one in signal.Signals}
_NEW_NAMESPACES = ("mount",)


class NewContainer(NamedTuple):
    """A new container, and data that only its creation needs."""

    container: Container
    execution: Execution
    user: User


class BundleBuilder:
    """Builds OCI bundles from CRI configurations."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def new(self, sandbox: Sandbox, config: pb.ContainerConfig, lease: Lease, labels: Labels) -> NewContainer:
        """A container in memory, whose layers the lease keeps, and its volumes' labels. Raises RpcError."""
        # Mounts of CDI devices are not asked for with a propagation, as in containerd.
        asked = [(one.host_path, one.propagation) for one in config.mounts if not one.HasField("image")]
        try:
            cdi.expand(config, self._engine.cdi_directories, privileged=self._engine.privileged)
        except cdi.CdiError as error:
            raise invalid(f"cannot give the container its CDI devices: {error}") from error
        image_id, image_ref, layers, execution = self._image(config.image.image)
        if layers == (HOST_LAYER,):
            annotations = sandbox.config.annotations
            if reason := host_image.refusal(annotations, for_all=self._engine.host_image_for_all):
                raise RpcError("PERMISSION_DENIED", reason)
        for layer in layers:
            lease.add(layer)
        try:
            stack = self._engine.rootfs.stack(layers)
            user = _user(config, stack, execution)
        except (NoSuchUser, ImageError, OSError) as error:
            raise invalid(f"cannot find the user to run as: {error}") from error
        require_users((user.uid, user.gid, user.groups), sandbox.users.ids if sandbox.users else None)
        try:
            volumes = self._engine.volumes.choose(config, lease.add)
            declared = declared_volumes.choose(execution.volumes or (), config, stack)
            _make_sources(config)
            if self._engine.privileged:
                _require_propagation(asked)
        except BadMount as error:
            raise invalid(str(error)) from error
        parent = sandbox.config.linux.cgroup_parent or self._engine.default_cgroup
        id_ = new_id()
        record = ContainerRecord(
            id=id_,
            sandbox_id=sandbox.record.id,
            config=config.SerializeToString(),
            created_at_ns=time.time_ns(),
            boot=self._engine.boot,
            image_id=image_id,
            image_ref=image_ref,
            layers=layers,
            volumes=volumes,
            declared=declared,
            stop_signal=signal_number(config.stop_signal, execution.stop_signal, SIGNALS),
            user=(user.uid, user.gid, user.groups),
            log_path=_log_path(sandbox, config),
            cgroup=name_of(cgroups_path(parent, id_, self._engine.machine)) if self._engine.privileged else "",
            labels=labels,
        )
        container_labels.relabel_volumes(config, labels.mount)
        return NewContainer(Container(record), execution, user)

    def write(self, sandbox: Sandbox, prepared: NewContainer) -> None:
        """Write the container's directory, the record last. Raises RpcError."""
        container = prepared.container
        directory = self._engine.containers.path(container.record.id)
        try:
            directory.mkdir(mode=0o700)
            container_labels.share_files(self._engine, sandbox, container.record.labels.mount)
            spec = self._specification(sandbox, prepared)
            if sandbox.users is not None:
                places = shown.through_places(spec["mounts"], shown_mounts.place)
                container.record = msgspec.structs.replace(container.record, shown=places)
            (directory / "config.json").write_bytes(msgspec.json.encode(spec))
            for name in ("stdin", "stdout", "stderr"):
                os.mkfifo(directory / name, 0o600)
                label_file(directory / name, container.record.labels.mount)
                if (owner := shown.owner_of(spec)) is not None:
                    os.chown(directory / name, *owner)
            if container.record.log_path:
                make_directory(log_place(container))
            self._engine.containers.save(container.record)
        except (BadContainer, BadMount) as error:
            raise invalid(str(error)) from error
        except (OSError, ValueError, ImageError) as error:
            raise RpcError("UNKNOWN", f"cannot create the container: {error}") from error

    def change_resources(self, container: Container, config: pb.ContainerConfig) -> None:
        """Change resources of a container that has not started. Raises OSError: the former ones stay then."""
        path = self._engine.containers.path(container.record.id) / "config.json"
        spec = untrusted.decode_json(path.read_bytes())
        spec["linux"]["resources"] |= resources(config.linux.resources, hugetlb=self._engine.machine.hugetlb)
        changed = path.with_name("config.json.new")
        try:
            changed.write_bytes(msgspec.json.encode(spec))
            changed.replace(path)
        except OSError:
            changed.unlink(missing_ok=True)
            raise

    def _image(self, name: str) -> tuple[str, str, tuple[str, ...], Execution]:
        """ID, reference, layers and default process of an image."""
        try:
            if not names.is_id(name) and names.full(name) == names.HOST:
                return names.HOST, names.HOST, (HOST_LAYER,), Execution()
            image = self._engine.store.get(name)
            execution = self._engine.store.execution(image)
        except InvalidImageName as error:
            raise invalid(str(error)) from error
        except (ImageError, OSError) as error:
            raise RpcError("NOT_FOUND", f"cannot use image {name!r}: {error}") from error
        reference = image.digests[0] if image.digests else image.id
        return image.id, reference, image.layers, execution

    def _specification(self, sandbox: Sandbox, prepared: NewContainer) -> dict[str, Any]:
        record, config = prepared.container.record, prepared.container.config
        place = Place(
            container_id=record.id,
            rootfs=str(shown_mounts.ROOT if sandbox.users else self._engine.mounts_of(record.id)),
            cgroup_parent=sandbox.config.linux.cgroup_parent or self._engine.default_cgroup,
            hostname=hostname_of(sandbox),
            namespaces=self._namespaces(sandbox, config),
            files=self._files(sandbox, config),
            images=self._engine.volumes.sources(record.id, record.volumes),
            declared=declared_volumes.sources(self._engine.containers.path(record.id), record.declared),
            masked=host_image.present(self._engine.hidden) if record.layers == (HOST_LAYER,) else (),
            users=sandbox.users.ids if sandbox.users else None,
            labels=record.labels,
        )
        return specification(config, prepared.execution, prepared.user, place, self._engine.machine)

    def _namespaces(self, sandbox: Sandbox, config: pb.ContainerConfig) -> dict[str, str]:
        """Path of the namespace to join by OCI's name, empty for a new one; without the machine's."""
        options = config.linux.security_context.namespace_options
        found = dict.fromkeys(_NEW_NAMESPACES, "") | dict(sandbox.record.namespaces)
        found.pop("pid", None)
        if options.pid == pb.CONTAINER:
            found["pid"] = ""
        elif options.pid == pb.POD and self._engine.privileged:
            if "pid" not in sandbox.record.namespaces:
                raise BadContainer("cannot share the pod's processes: its sandbox has no shared pid namespace")
            found["pid"] = sandbox.record.namespaces["pid"]
        elif options.pid == pb.TARGET:
            found["pid"] = self._target(sandbox, options.target_id)
        if self._engine.machine.unified and not config.linux.security_context.privileged:
            found["cgroup"] = ""
        return found

    def _target(self, sandbox: Sandbox, id_: str) -> str:
        target = self._engine.state.containers.get(id_)
        if target.record.sandbox_id != sandbox.record.id:
            raise BadContainer(
                f"cannot share the processes of container {id_}: it (sandbox {target.record.sandbox_id}) "
                f"does not belong to sandbox {sandbox.record.id}"
            )
        if target.started is None or target.record.finished is not None:
            raise BadContainer(f"cannot share the processes of container {id_}, which does not run")
        return f"/proc/{target.started.pid}/ns/pid"

    def _files(self, sandbox: Sandbox, config: pb.ContainerConfig) -> SandboxFiles:
        directory: Path = self._engine.sandboxes.path(sandbox.record.id)
        host_ipc = config.linux.security_context.namespace_options.ipc == pb.NODE
        return SandboxFiles(
            hosts=str(directory / "hosts"),
            hostname=str(directory / "hostname"),
            resolv_conf=str(directory / "resolv.conf"),
            shm="/dev/shm" if host_ipc else str(self._engine.shm_of(sandbox.record.id)),
        )


def _user(config: pb.ContainerConfig, stack: Stack, execution: Execution) -> User:
    passwd, group = (_read(stack.open(path)) for path in ("/etc/passwd", "/etc/group"))
    return choose(config.linux.security_context, execution.user, passwd, group)


def _make_sources(config: pb.ContainerConfig) -> None:
    """Make directories for mounts whose source is missing, as containerd and CRI-O do."""
    for mount in config.mounts:
        if mount.HasField("image"):
            continue
        if not mount.host_path.startswith("/"):
            raise invalid(f"cannot mount {mount.host_path!r} at {mount.container_path}: not an absolute path")
        try:
            if not os.path.exists(mount.host_path):
                os.makedirs(mount.host_path, mode=0o755)
        except OSError as error:
            raise RpcError("UNKNOWN", f"cannot create {mount.host_path} to mount it: {error}") from error


def _require_propagation(asked: Iterable[tuple[str, pb.MountPropagation.ValueType]]) -> None:
    """Require that mounts propagate as asked: (path on the machine, propagation). Raises BadMount, RpcError."""
    for path, spread in asked:
        if spread == pb.PROPAGATION_PRIVATE:
            continue
        try:
            on = mounts.mount_of(path)
        except OSError as error:
            raise RpcError("UNKNOWN", f"cannot find the mount of {path}, for its propagation: {error}") from error
        require_propagation(os.path.realpath(path), spread, on)


def hostname_of(sandbox: Sandbox) -> str:
    """The pod's host name; the machine's if the pod uses its network."""
    options = sandbox.config.linux.security_context.namespace_options
    if options.network == pb.NODE or not sandbox.config.hostname:
        return sandbox.config.hostname or os.uname().nodename
    return sandbox.config.hostname


def _log_path(sandbox: Sandbox, config: pb.ContainerConfig) -> str:
    if not config.log_path or not sandbox.config.log_directory:
        return ""
    return os.path.join(sandbox.config.log_directory, config.log_path)


def _read(fd: int | None) -> str:
    if fd is None:
        return ""
    with open(fd, "rb") as file:
        return file.read(MOST_BYTES).decode(errors="replace")
