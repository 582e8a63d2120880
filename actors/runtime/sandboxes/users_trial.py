"""Tries once whether pods can have user namespaces of their own (`hostUsers: false`) on this machine.

It takes root, Linux 6.3 and an OCI runtime that starts a container in such a namespace. Linux 5.19 has overlayfs with
ID-mapped layers, 6.3 an ID-mapped tmpfs, for Secrets.

An OCI runtime may make the pod the owner of its standard input, as crun does before 1.24. If that is the machine's
/dev/null, the pod may take it from all others. So the input of the trial is a device of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.runtime.engine.engine import Engine
from actors.runtime.filesystems.rootfs import try_mapped_overlay
from actors.runtime.helper.kernel import syscalls
from actors.runtime.model import namespaces
from actors.runtime.model.disk import remove_tree
from actors.runtime.model.user_mapping import PodUsers, UserMapping
from actors.runtime.oci import user_namespaces
from actors.runtime.oci.helper import HELPER
from actors.runtime.oci.runtime import LOG, OciError, OciRuntime, last_error
from actors.runtime.oci.spec.build import cgroups_path
from actors.runtime.policy import choose_oci
from actors.runtime.sandboxes import pause
from proto.common import logs

_ID = "trial-of-users"
_IDS = UserMapping(1 << 31, 65_536)
_DONE = "users-tried"
"""File in the run directory, with the OCI runtime's name, that tells of a success: the boot's ID, name and version."""
_KINDS = ("network", "uts", "ipc")
_TRIAL_S = 30.0
log = logging.getLogger(__name__)


class Lacking(Exception):
    """The machine lacks something; the message says what."""


def problems(engine: Engine) -> dict[str, str]:
    """Why each OCI runtime can give no pod a user namespace of its own; empty if it can. By name, the preferred first.

    Blocks for 0.3 s at the first start.
    """
    found = {name: _lacking(engine, name) for name in engine.ocis}
    untried = [oci for name, oci in engine.ocis.items() if not found[name] and not _is_remembered(engine, oci)]
    if not untried:
        return found
    found |= _try(engine, untried)
    chosen = choose_oci({name: found[name] for name in engine.offered}, "", users=True)
    if chosen.problem:
        log.warning("no pod can have a user namespace of its own: %s", chosen.problem)
    elif chosen.name != engine.offered[0]:
        log.log(logs.NOTICE, "%s runs the pods with users of their own: %s", chosen.name, found[engine.offered[0]])
    return found


def _lacking(engine: Engine, name: str) -> str:
    if name == HELPER:
        return "it takes isolation level 1; run the agent as root and install runc or crun"
    if not engine.rootfs.overlay:
        return "it takes an overlayfs; have the agent's root directory on another file system"
    return ""


def _is_remembered(engine: Engine, oci: OciRuntime) -> bool:
    """Return True when this version of the OCI runtime has passed the trial since the boot."""
    with contextlib.suppress(OSError, OciError):
        return _done(engine, oci).read_text() == _passed(engine, oci)
    return False


def _done(engine: Engine, oci: OciRuntime) -> Path:
    return engine.run / f"{_DONE}-{oci.name}"


def _passed(engine: Engine, oci: OciRuntime) -> str:
    return f"{engine.boot} {oci.name} {oci.version()}"


def _try(engine: Engine, ocis: Sequence[OciRuntime]) -> dict[str, str]:
    """Try these OCI runtimes, and remember successes. Return as `problems` does."""
    _clear(engine, ocis)
    try:
        return _try_all(engine, ocis)
    except (Lacking, OSError) as error:
        return {oci.name: str(error) for oci in ocis}
    finally:
        _clear(engine, ocis)


def _try_all(engine: Engine, ocis: Sequence[OciRuntime]) -> dict[str, str]:
    """Raises Lacking, OSError for what is no OCI runtime's."""
    with user_namespaces.held(_IDS, _KINDS) as holder:
        pins = namespaces.make(engine.pins_of(_ID), _KINDS, "trial", {}, holder=holder)
    users = PodUsers(_IDS, pins["user"])
    try:
        try_mapped_overlay(engine.root / "probe", users)
    except OSError as error:
        raise Lacking(f"cannot show an image's files with a pod's IDs: {error}; it takes Linux 5.19") from error
    _try_tmpfs(users)
    found = {}
    for oci in ocis:
        remove_tree(engine.root / "probe")
        try:
            _try_container(engine, oci, pins, users)
            found[oci.name] = ""
            with contextlib.suppress(OSError):
                _done(engine, oci).write_text(_passed(engine, oci))
        except (Lacking, OSError, OciError) as error:
            found[oci.name] = str(error)
        except subprocess.TimeoutExpired:
            found[oci.name] = f"{oci.name} has not run a container in a user namespace within {_TRIAL_S:g} s"
    return found


def _try_tmpfs(users: PodUsers) -> None:
    namespace = os.open(users.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        tree = syscalls.new_file_system("tmpfs", 0)
        try:
            syscalls.map_ids(tree, namespace, "tmpfs")
        finally:
            os.close(tree)
    except OSError as error:
        raise Lacking(f"cannot show a tmpfs with a pod's IDs: {error}; it takes Linux 6.3") from error
    finally:
        os.close(namespace)


def _try_container(engine: Engine, oci: OciRuntime, pins: dict[str, str], users: PodUsers) -> None:
    """Run a container that tells its IDs. Raises Lacking, OSError, TimeoutExpired."""
    directory = engine.root / "probe"
    directory.mkdir(mode=0o700)
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    pauses = pause.Pause(engine)
    spec = pause.specification(pauses.root(), fifo, _cgroup(engine, oci), engine.machine.lowest_oom_score_adj, pins)
    spec["process"]["args"] = ["/bin/sh", "-c", "read -r first </proc/self/uid_map && echo $first"]
    command = pause.show(oci.run_command(_id_of(oci), directory, ""), directory, spec, users)
    (directory / "config.json").write_bytes(msgspec.json.encode(spec))
    said, owner = _run(command, directory)
    if said.split() != ["0", str(_IDS.first), str(_IDS.length)]:
        why = last_error(directory / LOG) or f"a container says that its IDs are {said.strip()!r}"
        raise Lacking(f"{oci.name} cannot start a container in a user namespace: {why}")
    if owner != 0:
        raise Lacking(f"{oci.name} would give the machine's /dev/null to the pod; install crun 1.24 or runc 1.1.5")


def _run(command: Sequence[str], directory: Path) -> tuple[str, int]:
    """The output of the container, and the owner of its standard input afterwards: a device like /dev/null."""
    tree = syscalls.new_file_system("tmpfs", 0)
    try:
        os.mknod("null", stat.S_IFCHR | 0o600, os.makedev(1, 3), dir_fd=tree)
        null = os.open("null", os.O_RDWR | os.O_CLOEXEC, dir_fd=tree)
        try:
            with (directory / "stderr").open("wb") as failed:
                ran = subprocess.run(
                    command, stdin=null, stdout=subprocess.PIPE, stderr=failed, cwd="/", timeout=_TRIAL_S, check=False
                )
            return ran.stdout.decode(errors="replace"), os.fstat(null).st_uid
        finally:
            os.close(null)
    finally:
        os.close(tree)


def _id_of(oci: OciRuntime) -> str:
    """Of its own: the others know nothing of a container whose removal failed."""
    return f"{_ID}-{oci.name}"


def _cgroup(engine: Engine, oci: OciRuntime) -> str:
    return cgroups_path(engine.default_cgroup, _id_of(oci), engine.machine)


def _clear(engine: Engine, ocis: Sequence[OciRuntime]) -> None:
    """Remove the trial's parts. What stays is logged, and removed by the next trial and the next start."""
    parts: tuple[tuple[Any, Any], ...] = (
        *((oci.delete, _id_of(oci)) for oci in ocis),
        (namespaces.release, engine.pins_of(_ID)),
        (remove_tree, engine.root / "probe"),
    )
    for remove, part in parts:
        try:
            remove(part)
        except OSError as error:
            log.warning("cannot remove %s, a leftover of a trial of user namespaces: %s", part, error)
