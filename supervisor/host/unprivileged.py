"""Settings of an agent that an ordinary user starts: directories of the user, and no cgroups.

The actors report what single pods lack without root.
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
    """True without root."""
    return os.geteuid() != 0


def default_run_dir(environment: Mapping[str, str], uid: int) -> str:
    """The run directory when none is configured."""
    if uid == 0:
        return _MACHINES_RUN_DIR
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    return os.path.join(runtime, "nodevisor") if runtime else f"/tmp/nodevisor-{uid}"


def state_dir(environment: Mapping[str, str], home: str) -> str:
    """The user's state directory: https://specifications.freedesktop.org/basedir-spec/latest/."""
    above = environment.get("XDG_STATE_HOME", "") or os.path.join(home, ".local", "state")
    return os.path.join(above, "nodevisor")


def root_dir(configured: str) -> str:
    """The root directory of an agent of this user. `configured` is the flag's value; empty: none."""
    settings = Settings(root_dir=os.path.abspath(configured)) if configured else Settings()
    if is_ordinary_user():
        settings = adapted(settings, state_dir(os.environ, os.path.expanduser("~")))
    return settings.root_dir


def adapted(settings: Settings, directory: str) -> Settings:
    """Adapt settings to an ordinary user: unconfigured directories move to `directory`, and cgroups are off."""
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
