"""`supervisor start`: flags and files to settings; then this process becomes the agent (`supervisor.agent`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from proto import logs
from proto.settings import Settings
from supervisor import agent, endpoint, specfile, specs
from supervisor.cli import CommandError
from supervisor.options import OPTIONS, Option, check
from supervisor.values import SettingError, boolean

C = TypeVar("C", bound=Callable[..., Any])
log = logging.getLogger(__name__)

FIRST = ("root_dir", "pod_manifest_path", "container_runtime_endpoint", "node_name")
"""Options that the help shows first."""


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A flag's text as the setting's value."""

    def __init__(self, option: Option) -> None:
        self.name = option.flag
        self._type = option.type

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it, or end the command with exit code 2."""
        try:
            return self._type.parse(self._type.from_text(value))
        except SettingError as error:
            self.fail(str(error), param, ctx)


def _setting_flags(command: C) -> C:
    """One flag per row of the table that has one, the main ones first."""
    shown = sorted((o for o in OPTIONS if o.flag), key=lambda o: (o.attribute not in FIRST, o.flag))
    for option in reversed(shown):
        names = ["-v", "--v"] if option.flag == "v" else [f"--{option.flag}"]
        # As pflag has it: --flag alone is true, and false is --flag=false.
        optional = {"is_flag": False, "flag_value": "true"} if option.type is boolean else {}
        command = click.option(
            *names,
            option.attribute,
            type=_Value(option),
            metavar=option.type.metavar,
            help=option.help,
            **optional,  # type: ignore[arg-type]
        )(command)
    return command


@click.command()
@click.option("--run-dir", metavar="DIR", help="Sockets, lock and state, private to you.  [default: /run/nodevisor]")
@click.option("--config", metavar="FILE", help="A KubeletConfiguration; flags given here win over it.")
@click.option(
    "--supervisor-config", metavar="FILE", help="Restart policies, and which actors run (etc/supervisor.yaml)."
)
@_setting_flags
def start(run_dir: str | None, config: str | None, supervisor_config: str | None, **flags: Any) -> None:
    """Run the agent, in the foreground, until SIGTERM or SIGINT. Pods outlive it.

    Flags have the kubelet's names and meaning.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    settings = effective(given, config, run_dir)
    logs.setup("supervisor", settings.verbosity)
    plan = plan_of(settings, supervisor_config)
    agent.become(msgspec.structs.replace(plan, settings=with_runtime(settings)))


def effective(flags: Mapping[str, Any], config: str | None, run_dir: str | None) -> Settings:
    """The settings: defaults, then the file, then flags, with paths made absolute. Raises CommandError."""
    from_file: dict[str, Any] = {}
    if config is not None:
        from supervisor.configuration import ConfigurationError, load  # noqa: PLC0415 - loads YAML

        try:
            from_file = load(config)
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
    chosen = from_file | dict(flags)
    chosen["run_dir"] = run_dir or os.environ.get("NODEVISOR_RUN_DIR") or Settings().run_dir
    chosen["node_name"] = _node_name(chosen.get("node_name", ""))
    for path in ("run_dir", "root_dir", "pod_manifest_path", "pod_logs_dir", "container_logs_dir"):
        if chosen.get(path):
            chosen[path] = os.path.abspath(chosen[path])
    settings = msgspec.structs.replace(Settings(), **chosen)
    try:
        check(settings)
    except SettingError as error:
        raise CommandError(f"cannot start: {error}") from error
    return settings


def _node_name(override: str) -> str:
    """The kubelet's rule: the override or the host name, trimmed, in lower case."""
    name = (override or os.uname().nodename).strip().lower()
    if not name:
        raise CommandError("cannot start: this host has no name; give one with --hostname-override")
    return name


def with_runtime(settings: Settings) -> Settings:
    """The settings with a runtime endpoint. One that is configured is taken as it is: the agent waits for it."""
    if settings.container_runtime_endpoint:
        settings = msgspec.structs.replace(
            settings, container_runtime_endpoint=socket_url(settings.container_runtime_endpoint)
        )
        log.log(logs.NOTICE, "container runtime: %s, as configured", settings.container_runtime_endpoint)
        return settings
    try:
        found = endpoint.find()
    except endpoint.NoRuntime as error:
        raise CommandError(str(error)) from error
    log.log(
        logs.NOTICE,
        "container runtime: %s (%s %s, CRI %s), the first of the usual endpoints that answers",
        *found,
    )
    return msgspec.structs.replace(settings, container_runtime_endpoint=found.endpoint)


def socket_url(endpoint: str) -> str:
    """An endpoint as unix:///PATH; a bare path is taken too, as the kubelet does. Raises CommandError."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/") or path == "/":
        raise CommandError(f"cannot use container runtime endpoint {endpoint!r}: write unix:///PATH/TO/SOCKET")
    return f"unix://{path}"


def plan_of(settings: Settings, supervisor_config: str | None) -> agent.Plan:
    """The settings and how each actor is run. Raises CommandError."""
    wanted = specs.builtin(settings.heartbeat_period_s)
    try:
        if supervisor_config is not None:
            wanted = specfile.load(supervisor_config, wanted)
    except specs.SpecError as error:
        raise CommandError(f"cannot start: {error}") from error
    return agent.Plan(settings=settings, specs=wanted)
