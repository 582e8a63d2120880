"""Refuses what a container or sandbox may not have: more than its pod has, or users that this runtime cannot map. Pure.

Source: containerd's internal/cri/server, buildLinuxSpec, validateTargetContainer and parseUsernsIDs.
"""

from __future__ import annotations

from actors.runtime.model.errors import invalid
from proto.cri import api_pb2 as pb


def require_machine_users(options: pb.NamespaceOption) -> None:
    """Require the machine's user namespace. Raises RpcError INVALID_ARGUMENT."""
    if options.HasField("userns_options") and options.userns_options.mode != pb.NODE:
        raise invalid("user namespaces are not supported by this runtime; use containerd or CRI-O")


def require_within_pod(config: pb.ContainerConfig, pod: pb.PodSandboxConfig) -> None:
    """Require that the pod allows the container's privileges. Raises RpcError INVALID_ARGUMENT.

    `pod` is the configuration in the request: an ephemeral container may be privileged in an older sandbox.
    """
    context = config.linux.security_context
    require_machine_users(context.namespace_options)
    if context.privileged and not pod.linux.security_context.privileged:
        raise invalid("no privileged container allowed in sandbox; make the sandbox's configuration privileged")
