"""Refuses what a container may not have: more than its pod has, or other users. Pure.

Source: containerd's internal/cri/server, buildLinuxSpec, validateTargetContainer and parseUsernsIDs.
"""

from __future__ import annotations

from actors.runtime.model.errors import invalid
from actors.runtime.model.user_mapping import UserMapping, mapping_of
from proto.cri import api_pb2 as pb


def pod_users(options: pb.NamespaceOption, problem: str) -> UserMapping | None:
    """The users that a pod asks for; None for the machine's. Raises RpcError INVALID_ARGUMENT.

    `problem`: why no pod can have users of its own; else empty.
    """
    users = mapping_of(options)
    if users is not None and problem:
        raise invalid(f"user namespaces are not supported by this runtime here: {problem}")
    return users


def require_users(user: tuple[int, int, tuple[int, ...]], users: UserMapping | None) -> None:
    """Require that a container's (UID, GID, groups) are in its pod's user namespace. Raises RpcError."""
    if users is None:
        return
    for name, id_ in (("user", user[0]), ("group", user[1]), *(("group", one) for one in user[2])):
        if id_ >= users.length:
            raise invalid(f"cannot run as {name} {id_}: the pod's user namespace has IDs below {users.length} only")


def require_within_pod(config: pb.ContainerConfig, pod: pb.PodSandboxConfig, users: UserMapping | None) -> None:
    """Require that the pod allows the container's privileges. Raises RpcError INVALID_ARGUMENT.

    `pod` is the configuration in the request: an ephemeral container may be privileged in an older sandbox.
    `users` are the sandbox's.
    """
    context = config.linux.security_context
    if mapping_of(context.namespace_options) != users:
        raise invalid("namespace_options.userns_options of the container differs from its sandbox's; give the same")
    if context.privileged and not pod.linux.security_context.privileged:
        raise invalid("no privileged container allowed in sandbox; make the sandbox's configuration privileged")
