"""Moves the agent into the cgroup that kubeletCgroups names, before it has other processes."""

from __future__ import annotations

import os

from actors._cgroup.hierarchy import Hierarchy, hierarchy, own_cgroups
from supervisor.host.host_setup import HostSetupError


def enter(name: str, pods: str, tree: Hierarchy | None = None) -> None:
    """Create the cgroup `name` if it is missing, and move this process into it, in every hierarchy.

    All processes of the agent are started by this one, so they are in it, too. No other process is moved.
    `pods`: the cgroup of all pods; empty if there is none. Raises HostSetupError.
    """
    from actors._cgroup import fs  # noqa: PLC0415 - loads the API types

    name = f"/{name.strip('/')}"
    if pods and f"{name}/".startswith(f"{pods}/"):
        raise HostSetupError(
            f"cannot move the agent into {name}: pods are ended and limited there; name another cgroup (kubeletCgroups)"
        )
    try:
        if set(own_cgroups().values()) != {name}:
            fs.enter(name, os.getpid(), tree or hierarchy())
    except OSError as error:
        raise HostSetupError(
            f"cannot move the agent into the cgroup {name} (kubeletCgroups): {error}; name another one, or none"
        ) from error
