"""Keeps the choices of the last start of an agent with this root directory, in ROOT_DIR/nodevisor/last-start.json.

The container runtime is there: a start that finds another one would start each running pod a second time. The file is
replaced atomically and is not synced: a power cut that loses it has ended every pod, too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from proto.agent.settings import Settings
from proto.common import untrusted
from proto.node import runtime
from supervisor.host.replaced_file import replace_file

VERSION = 1
MOST_BYTES = 65_536
NAME = "last-start.json"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class DamagedError(Exception):
    """The file is there and cannot be used."""


class LastStart(msgspec.Struct, frozen=True, kw_only=True):
    """One start's choices."""

    version: int = VERSION
    endpoint: str
    """`unix:///PATH`, or `embedded`: the embedded runtime's socket is in the run directory, which may change."""
    cgroup_driver: str = ""
    """The driver that this runtime has told; empty: it has told none."""
    cgroup_root: str = "/"
    cgroups_per_qos: bool = True
    node_name: str = ""
    boot: str = ""
    """The machine's boot ID. No pod outlives it."""
    run_dir: str = ""
    """The directory with that start's settings."""


def path(root_dir: str) -> Path:
    """The file's place."""
    return Path(root_dir, "nodevisor", NAME)


def read(root_dir: str) -> LastStart | None:
    """The last start; None before the first one, and when a version without the file made it. Raises DamagedError."""
    try:
        found = untrusted.decode_json(untrusted.read_file(path(root_dir), MOST_BYTES), LastStart)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # DecodeError is a ValueError
        raise DamagedError(f"cannot use {path(root_dir)}: {error}") from None
    if found.version != VERSION:
        raise DamagedError(f"cannot use {path(root_dir)}: it has version {found.version}, this release knows {VERSION}")
    if found.cgroup_driver not in ("", "cgroupfs", "systemd"):
        raise DamagedError(f"cannot use {path(root_dir)}: there is no cgroup driver {found.cgroup_driver!r:.80}")
    if found.endpoint != runtime.EMBEDDED and not found.endpoint.startswith("unix:///"):
        raise DamagedError(f"cannot use {path(root_dir)}: its endpoint {found.endpoint!r:.80} is no unix:///PATH")
    return found


def endpoint_of(settings: Settings) -> str:
    """The chosen endpoint with the socket's real path, or `embedded`; empty before the choice."""
    endpoint = settings.container_runtime_endpoint
    if endpoint == runtime.endpoint(settings.run_dir):
        return runtime.EMBEDDED
    if not endpoint.startswith("unix://"):
        return endpoint
    return f"unix://{os.path.realpath(endpoint.removeprefix('unix://'))}"  # /var/run is a link to /run


def keep(settings: Settings, driver: str | None = None) -> str:
    """Write what an agent with these settings has chosen, unless the file says so already. Raises OSError.

    `driver` is what its runtime tells. None keeps what the same runtime has told before, which is returned.
    """
    endpoint = endpoint_of(settings)
    if not endpoint:
        return ""
    last = None
    with contextlib.suppress(DamagedError):
        last = read(settings.root_dir)
    before = last.cgroup_driver if last is not None and last.endpoint == endpoint else ""
    new = LastStart(
        endpoint=endpoint,
        cgroup_driver=before if driver is None else driver,
        cgroup_root=settings.cgroup_root,
        cgroups_per_qos=settings.cgroups_per_qos,
        node_name=settings.node_name,
        boot=boot_id(),
        run_dir=settings.run_dir,
    )
    if new != last:
        replace_file(path(settings.root_dir), msgspec.json.encode(new))
    return before


def boot_id() -> str:
    """The ID of this boot of the machine; empty if it cannot be read."""
    try:
        return Path(_BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""
