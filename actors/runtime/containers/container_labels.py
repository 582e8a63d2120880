"""The SELinux labels of a container, of its volumes, and of the files that it shares with its pod.

Source: containerd's internal/cri/server, buildLinuxSpec, and internal/cri/opts, WithMounts.
"""

from __future__ import annotations

import os

from actors.runtime.engine.engine import Engine
from actors.runtime.model.errors import RpcError, invalid
from actors.runtime.model.records import ETC_FILES
from actors.runtime.model.state import Sandbox
from actors.runtime.oci.relabeling import relabel
from actors.runtime.oci.spec.security import selinux_options
from actors.runtime.selinux.kernel import label_file
from actors.runtime.selinux.labels import BadLabel, Labels, level_of, of_pod, require_not_machines, shared
from proto.cri import api_pb2 as pb


def choose(engine: Engine, sandbox: Sandbox, config: pb.ContainerConfig, own_level: str) -> Labels:
    """The labels that its options ask for, with `own_level` for want of one; without options those of its sandbox.

    Raises RpcError.
    """
    options = selinux_options(config.linux.security_context.selinux_options)
    try:
        if not any(options) and sandbox.record.labels.process:
            options = of_pod(sandbox.record.labels.process)
        return engine.labelling.labels(options, own_level)
    except BadLabel as error:
        raise invalid(f"cannot label the container: {error}") from error


def relabel_volumes(config: pb.ContainerConfig, label: str) -> None:
    """Label the mounts for which CRI asks it. Raises RpcError."""
    if not label:
        return
    wanted = [mount for mount in config.mounts if mount.selinux_relabel and not mount.HasField("image")]
    try:
        paths = [os.path.realpath(mount.host_path, strict=True) for mount in wanted]
        for path in paths:
            require_not_machines(path)
        relabel(paths, label)
    except BadLabel as error:
        raise invalid(str(error)) from error
    except OSError as error:
        raise RpcError("UNKNOWN", f"cannot create the container: {error}") from error


def share_files(engine: Engine, sandbox: Sandbox, label: str) -> None:
    """Let processes with this mount label use the pod's files and shared memory. Raises OSError.

    containerd gives these files to the container that was created last. Here all containers of a pod have them, once
    one has another level than the pod.
    """
    if not label or level_of(label) == level_of(sandbox.record.labels.mount):
        return
    id_ = sandbox.record.id
    for name in ETC_FILES:
        label_file(engine.sandboxes.path(id_) / name, shared(label))
    if sandbox.config.linux.security_context.namespace_options.ipc != pb.NODE:
        label_file(engine.shm_of(id_), shared(label))
