"""Finds sessions of `supervisor run` that were killed, and clears what they left.

A session is dead when its record is not locked. An agent on its directories ends its pods in grace. Then its cgroups
and its directory are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from proto.common import untrusted
from proto.pods.pod_workers import ListPodWorkers
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.run import session
from supervisor.cli.run.agent import Agent
from supervisor.cli.run.session import Claim, Record, Say
from supervisor.host.rundir import StartError, make_private
from supervisor.sockets.client import Client

PODS_END_S = 45.0
"""Time for an agent to end a killed session's pods. Then the processes in its cgroups are killed."""
AGENT_ENDS_S = 20.0
"""Time for the agent of a recently killed session to end."""
POLL_S = 0.1
_ENDPOINT = "--container-runtime-endpoint="


def dead_sessions() -> Iterator[Claim]:
    """Yield the records of dead sessions, each locked by this process."""
    above = session.records_directory()
    try:
        if not above.exists():
            return
        make_private(above)
        paths = sorted(above.glob(f"{session.PREFIX}*.json"))
    except (StartError, OSError):
        return
    for path in paths:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink == 0:
                    raise OSError("another session has cleared it meanwhile")
                record = untrusted.decode_json(os.read(descriptor, 65_536), Record)
            except BaseException:
                os.close(descriptor)
                raise
            yield Claim(path, descriptor, record)


def clear(claim: Claim, say: Say) -> None:
    """End the pods of a dead session, and remove its cgroups and its directory.

    It reports by `say` the parts that cannot be removed. The next session tries again. Without cgroups, the directory
    stays while pods have not ended. Raises OSError when no agent can be started.
    """
    record = claim.record
    directory = Path(record.directory)
    if record.boot == session.boot_id():
        if _is_own(directory) and _has_pods(directory):
            say(f"Ending what an earlier session left in {directory}, which was killed ...")
            _end_pods(record)
            if not record.cgroup_root and _has_pods(directory):  # no cgroup shows their processes, to kill them
                say(f"{directory} stays: its pods have not ended, and may still run.")
                claim.release()
                return
        if not session.remove_cgroups(record.cgroup_root, kill=True):
            say(f"Its cgroup {record.cgroup_root} stays: what is in it does not end.")
            claim.release()
            return
    if _is_own(directory) and not session.remove_directory(directory, say):
        claim.release()
        return
    claim.forget()


def _is_own(directory: Path) -> bool:
    """Return True when the directory is still the session's. In /tmp another user may have made a new one."""
    with contextlib.suppress(OSError):
        info = directory.lstat()
        return directory.is_dir() and not directory.is_symlink() and info.st_uid == os.geteuid()
    return False


def _has_pods(directory: Path) -> bool:
    pods = directory / "root" / "pods"
    return pods.is_dir() and any(pods.iterdir())


def _end_pods(record: Record) -> None:
    """Run an agent on the session's directories without manifests, until the pods have ended."""
    directory = Path(record.directory)
    if not _answers(record.command) or not _is_free(directory / "run" / "lock"):
        return
    session.remove_manifests(directory / "manifests")
    agent = Agent(record.command, directory / "agent.log")
    agent.start()
    try:
        deadline = time.monotonic() + PODS_END_S
        with Client(directory / "run") as client:
            while agent.alive() and time.monotonic() < deadline and not _is_done(client, directory):
                time.sleep(POLL_S)
    finally:
        agent.end()


def _is_done(client: Client, directory: Path) -> bool:
    try:
        workers = client.ask("pod_workers", ListPodWorkers(), 1.0)
    except (ActorError, ProtocolError):
        return False
    return workers.sources_ready and not workers.pods and not _has_pods(directory)


def _answers(command: Sequence[str]) -> bool:
    """Return False when the command names a container runtime's socket and no process listens there."""
    endpoint = next((one[len(_ENDPOINT) :] for one in reversed(command) if one.startswith(_ENDPOINT)), "")
    if not endpoint.startswith("unix://"):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(endpoint.removeprefix("unix://")) == 0


def _is_free(lock: Path) -> bool:
    """Wait until the session's agent has ended. Return False when it has not within AGENT_ENDS_S."""
    deadline = time.monotonic() + AGENT_ENDS_S
    while time.monotonic() < deadline:
        try:
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except BlockingIOError:
            time.sleep(POLL_S)
        else:
            return True
    return False
