"""An agent of an ordinary user: the user's own directories in place of the machine's, and no cgroups.

Covers what is decided before anything starts. What single pods then lack is said where it is missed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from proto.agent.settings import Settings

_MACHINES_RUN_DIR = "/run/nodevisor"
REMARK = (
    "without root: requests and limits of CPU and memory are not enforced, volumes in memory (and Secrets) are "
    "directories on the disk, kernel settings stay as they are, mountPropagation and ports below 1024 do not work"
)


def is_ordinary_user() -> bool:
    """Whether the machine is not ours."""
    return os.geteuid() != 0


def default_run_dir(environment: Mapping[str, str], uid: int) -> str:
    """Where sockets, lock and state are when nobody says."""
    if uid == 0:
        return _MACHINES_RUN_DIR
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    return os.path.join(runtime, "nodevisor") if runtime else f"/tmp/nodevisor-{uid}"


def state_dir(environment: Mapping[str, str], home: str) -> str:
    """Where everything else is: https://specifications.freedesktop.org/basedir-spec/latest/."""
    above = environment.get("XDG_STATE_HOME", "") or os.path.join(home, ".local", "state")
    return os.path.join(above, "nodevisor")


def adapted(settings: Settings, directory: str) -> Settings:
    """The settings for an ordinary user: directories that nobody chose are in `directory`; nothing needs cgroups."""
    usual = Settings()
    root_dir = settings.root_dir if settings.root_dir != usual.root_dir else f"{directory}/root"
    places = {
        "cert_dir": f"{root_dir}/pki",
        "pod_logs_dir": f"{directory}/pods",
        "container_logs_dir": f"{directory}/containers",
    }
    chosen = {name: place for name, place in places.items() if getattr(settings, name) == getattr(usual, name)}
    return msgspec.structs.replace(
        settings, root_dir=root_dir, cgroups_per_qos=False, enforce_node_allocatable=(), **chosen
    )
