"""Starts the agent's parent process: `supervisor start` replaces itself by it, with the same pid.

It uses exec, because the parent stays for the agent's life and the command line and YAML would take 2 MB of it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from proto.agent.settings import Settings
from proto.common import interpreter, untrusted
from proto.wire.message import Message
from supervisor.config.reload.start import Start
from supervisor.core import daemon
from supervisor.core.service import AgentService
from supervisor.core.upgrade import handover
from supervisor.core.upgrade.controller import UpgradeController
from supervisor.core.upgrade.handover import Handover
from supervisor.core.upgrade.release import Release, becoming, own
from supervisor.health.notify import Notifier
from supervisor.host import last_start, settings_file
from supervisor.ownership.held_claims import HeldClaim, HeldClaims
from supervisor.process.forkclient import ENVIRONMENT
from supervisor.supervision.specs import ChildSpec

if TYPE_CHECKING:
    from supervisor.config.reload.controller import ReloadController

log = logging.getLogger(__name__)


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
    handover: Handover | None = None
    """The processes of the former self, in an upgrade."""


def become(plan: Plan) -> NoReturn:
    """Replace this process by the agent. Raises OSError."""
    descriptor = _written(plan)
    for claim in plan.claims:
        os.set_inheritable(claim.descriptor, True)
    line = interpreter.command("supervisor.core.agent", str(descriptor))
    os.execve(line[0], line, {**os.environ, **ENVIRONMENT})


def _written(plan: Plan) -> int:
    """A memory file with the plan, and not arguments: they are world-readable, and settings may be secret."""
    descriptor = os.memfd_create("plan", 0)  # without CLOEXEC: it must survive the exec
    try:
        content = memoryview(msgspec.json.encode(plan))
        while content:
            content = content[os.write(descriptor, content) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def main(arguments: Sequence[str]) -> int:
    """Run the plan behind the descriptor in `arguments`; returns the exit code."""
    descriptor = int(arguments[0])
    plan = _read(descriptor)
    if plan.lock_fd >= 0:
        os.set_inheritable(plan.lock_fd, False)
    for claim in plan.claims:
        os.set_inheritable(claim.descriptor, False)
    if plan.handover is not None:
        handover.take(plan.handover)
        specs = handover.adapted(plan.specs, plan.handover, plan.settings)
        plan = msgspec.structs.replace(plan, specs=specs)
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
    reload = reload_controller(plan)
    upgrade = UpgradeController(functools.partial(_prepare_next, plan, service, reload), plan.handover)
    files = _Files(plan, descriptor)
    return daemon.run(
        plan.settings,
        plan.specs,
        on_event=files,
        service=service,
        reload=reload,
        upgrade=upgrade,
        taken=plan.handover,
    )


def _read(descriptor: int) -> Plan:
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read()
    try:
        return untrusted.decode_json(content, Plan)
    except msgspec.DecodeError:
        return untrusted.decode_json(handover.tolerant(content), Plan)


def _prepare_next(
    plan: Plan,
    service: AgentService,
    reload: ReloadController | None,
    release: Release,
    given: Handover,
    settings: Settings,
    back: Release | None,
) -> Callable[[], NoReturn]:
    """Prepare another release's plan: processes, locks, present configuration. Returns the call that executes it."""
    try:
        configuration = msgspec.Raw(Path(settings.run_dir, settings_file.CONFIGURATION).read_bytes())
    except OSError:
        configuration = plan.configuration
    claims = service.claims.present if service.claims is not None else ()
    start = reload.present() if reload is not None else None
    plan = msgspec.structs.replace(
        plan, settings=settings, claims=claims, reload=start, configuration=configuration, handover=given
    )
    descriptor = _written(plan)
    kept = (*given.descriptors, *(claim.descriptor for claim in claims), plan.lock_fd)
    descriptors = [one for one in kept if one >= 0]
    try:
        for one in descriptors:
            os.set_inheritable(one, True)
    except OSError:
        for one in (*descriptors, descriptor):
            with contextlib.suppress(OSError):
                os.set_inheritable(one, False)
        os.close(descriptor)
        raise
    line = becoming(release, descriptor, descriptors, back)
    present = becoming(own(), descriptor, descriptors, None)
    return functools.partial(_become_next, line, present, {**os.environ, **ENVIRONMENT, **service.variables})


def _become_next(line: list[str], present: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by a command line; by that of the present release when the system refuses it."""
    try:
        os.execve(line[0], line, environment)
    except (OSError, ValueError) as error:
        environment[handover.PROBLEM] = f"cannot execute {line[0]}: {error}"
        line = present
        os.execve(line[0], line, environment)


def reload_controller(plan: Plan) -> ReloadController | None:
    """The controller for the plan's files; None when it has none."""
    if plan.reload is None:
        return None
    from supervisor.config.reload.controller import ReloadController  # noqa: PLC0415 - loads inotify; without files there is nothing to follow

    return ReloadController(plan.reload)


def _keep_start(settings: Settings) -> None:
    try:
        last_start.keep(settings)
    except OSError as error:
        log.error("cannot save the container runtime for the next start: %s; name it there, or free space", error)


class _Files:
    """Writes the files that commands read, at the first event from which there is no way back to a former self.

    From then on the run directory is locked by us, and the plan is not read again.
    """

    def __init__(self, plan: Plan, descriptor: int = -1) -> None:
        self._plan: Plan | None = plan
        self._descriptor = descriptor

    def __call__(self, _: Message) -> None:
        if self._plan is not None and handover.committed:
            plan, self._plan = self._plan, None
            if self._descriptor >= 0:
                os.close(self._descriptor)
            settings_file.write(plan.settings)
            settings_file.write_configuration(plan.settings.run_dir, bytes(plan.configuration))
            if plan.handover is not None:  # `supervisor start` has done it; a release before the file has not
                _keep_start(plan.settings)
