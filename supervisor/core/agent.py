"""Starts the agent's parent process: `supervisor start` replaces itself by it, with the same pid.

It uses exec, because the parent stays for the agent's life and the command line and YAML would take 2 MB of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import msgspec

from proto.agent.settings import Settings
from proto.common import interpreter, untrusted
from proto.wire.message import Message
from supervisor.config.reload.start import Start
from supervisor.core import daemon
from supervisor.core.service import AgentService
from supervisor.health.notify import Notifier
from supervisor.host import settings_file
from supervisor.ownership.held_claims import HeldClaim, HeldClaims
from supervisor.process.forkclient import ENVIRONMENT
from supervisor.supervision.specs import ChildSpec

if TYPE_CHECKING:
    from supervisor.config.reload.controller import ReloadController


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the command hands to the agent, as JSON in a memory file."""

    settings: Settings
    specs: tuple[ChildSpec, ...]
    configuration: msgspec.Raw = msgspec.Raw(b"{}")
    """The content of RUN_DIR/configuration.json."""
    lock_file: str = ""
    """Path of --lock-file. This process holds its lock by `lock_fd` until it ends."""
    lock_fd: int = -1
    claims: tuple[HeldClaim, ...] = ()
    """Locks that this process holds until it ends. Its children do not inherit them."""
    exit_on_lock_contention: bool = False
    healthz: tuple[str, int] | None = None
    """Address and port of the healthz server; None for no server."""
    reload: Start | None = None
    """The configuration files to watch; None when there are none."""


def become(plan: Plan) -> NoReturn:
    """Replace this process by the agent. Raises OSError."""
    # Not in the arguments: they are world-readable, and settings may be secret.
    descriptor = os.memfd_create("plan", 0)  # without CLOEXEC: it must survive the exec
    os.write(descriptor, msgspec.json.encode(plan))
    os.lseek(descriptor, 0, os.SEEK_SET)
    for claim in plan.claims:
        os.set_inheritable(claim.descriptor, True)
    line = interpreter.command("supervisor.core.agent", str(descriptor))
    os.execve(line[0], line, {**os.environ, **ENVIRONMENT})


def main(arguments: Sequence[str]) -> int:
    """Run the plan behind the descriptor in `arguments`; returns the exit code."""
    with open(int(arguments[0]), "rb") as file:
        plan = untrusted.decode_json(file.read(), Plan)
    if plan.lock_fd >= 0:
        os.set_inheritable(plan.lock_fd, False)
    for claim in plan.claims:
        os.set_inheritable(claim.descriptor, False)
    watched = plan.lock_file if plan.exit_on_lock_contention else ""
    run_dir = plan.settings.run_dir
    service = AgentService(
        Notifier(os.environ, os.getpid()),
        [spec.name for spec in plan.specs],
        watched,
        plan.healthz,
        lambda: settings_file.read_in_force(run_dir),
        claims=HeldClaims(plan.claims),
        names=(plan.settings.node_name, os.uname().nodename),
    )
    return daemon.run(plan.settings, plan.specs, on_event=_Files(plan), service=service, reload=reload_controller(plan))


def reload_controller(plan: Plan) -> ReloadController | None:
    """The controller for the plan's files; None when it has none."""
    if plan.reload is None:
        return None
    from supervisor.config.reload.controller import ReloadController  # noqa: PLC0415 - loads inotify; without files there is nothing to follow

    return ReloadController(plan.reload)


class _Files:
    """Writes the files that commands read, at the first event: from then on the run directory is locked by us."""

    def __init__(self, plan: Plan) -> None:
        self._plan: Plan | None = plan

    def __call__(self, _: Message) -> None:
        if self._plan is not None:
            plan, self._plan = self._plan, None
            settings_file.write(plan.settings)
            settings_file.write_configuration(plan.settings.run_dir, bytes(plan.configuration))
