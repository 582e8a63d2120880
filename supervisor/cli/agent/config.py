"""`supervisor config`: check configuration files, show the effective configuration, list the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from supervisor.cli import run_directory
from supervisor.cli.agent.config_history import history
from supervisor.cli.common import output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.config.flags.parser import FlagError, parse


@click.group()
def config() -> None:
    """Check and show the configuration and the history of its changes."""


config.add_command(history)


@config.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", metavar="FILE...|FLAG...", nargs=-1, required=True, type=click.UNPROCESSED)
def validate(arguments: tuple[str, ...]) -> None:
    """Check a configuration: syntax, fields, types and every rule. Warn of all that will not happen.

    Each FILE is checked by itself. FLAGs of `supervisor start` (or a kubelet's, as they are) are checked together,
    with the files of --config and --config-dir. Errors are listed by file and line, and the exit code is 1.
    Unknown fields and repeated keys are errors here. An agent only warns of them, as the kubelet does. Files that
    are named and not there now are warnings, and a cgroup driver that cannot work on this machine.
    """
    from supervisor.cli.agent.kubelet_flags import without_effect  # noqa: PLC0415
    from supervisor.cli.agent.start import configuration  # noqa: PLC0415 - loads YAML
    from supervisor.config import missing_files  # noqa: PLC0415

    with_flags = arguments[0].startswith("-")
    checked = {"configuration": arguments} if with_flags else {file: (f"--config={file}",) for file in arguments}
    failed = 0
    for name, flags in checked.items():
        try:
            given = parse(flags)
            effective = configuration(given, strict=True)
        except (CommandError, FlagError) as error:
            failed += 1
            render.echo(str(error), err=True)
        else:
            missing = missing_files.warnings(effective, given.values)
            for line in [*effective.notes, *without_effect(given), *missing]:
                render.echo(f"warning: {line}", err=True)
            render.echo(f"{name}: valid")
    if failed:
        raise CommandError(f"{failed} of {len(checked)} files cannot be used" if len(checked) > 1 else "cannot be used")


@config.command(context_settings={"ignore_unknown_options": True})
@run_dir_option
@click.option("--sources", is_flag=True, help="Show the source of each value.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Format.  [default: yaml]")
@click.argument("flags", metavar="[FLAG]...", nargs=-1, type=click.UNPROCESSED)
def show(run_dir: str, sources: bool, output: str, flags: tuple[str, ...]) -> None:
    """Show the effective configuration, with every default.

    Without FLAGs, it is the running agent's. With FLAGs of `supervisor start` (--config FILE, --max-pods 20, ...), it
    is that of an agent with these flags.
    """
    if flags:
        plain, origins = _of_flags(flags)
    else:
        plain, origins = _of_agent(run_dir)
    if output == "json":
        shown: Any = {"configuration": plain, "sources": origins} if sources else plain
        render.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        for line in yaml_lines(plain, origins if sources else None):
            render.echo(line)


@config.command()
@click.argument("pattern", metavar="[PATTERN]", default="")
@click.option("--gates", is_flag=True, help="List the feature gates instead.")
@click.option("--api", is_flag=True, help="List the fields of Pod, Node and CSI objects instead.")
@output_option("json")
def fields(pattern: str, gates: bool, api: bool, output: str | None) -> None:
    """List the fields of KubeletConfiguration with type, default and effect.

    With PATTERN, list the fields whose name contains it, in upper or lower case. With --gates or --api, list the
    feature gates or the fields of API objects in the same way.
    """
    if gates or api:
        (_list_gates if gates else _list_api)(pattern, output)
        return
    from supervisor.config.flags import table  # noqa: PLC0415
    from supervisor.config.kubeletconfig import defaults  # noqa: PLC0415
    from supervisor.config.kubeletconfig.typed import encode, schema  # noqa: PLC0415
    from supervisor.config.kubeletconfig.verdicts import verdicts  # noqa: PLC0415
    from supervisor.config.lists.reading import field_tests  # noqa: PLC0415

    found, tests = verdicts(), field_tests()
    flags = table.by_field()
    rows = [
        {
            "field": path,
            "type": str(leaf.field.kind),
            "default": encode.leaf(defaults.default(), path),
            "flag": f"--{flags[path].name}" if path in flags else "",
            "here": found[path].kind,
            "why": found[path].why,
            "test": tests.get(path, ""),
        }
        for path, leaf in schema.leaves().items()
        if pattern.lower() in path.lower()
    ]
    if output == "json":
        render.echo(render.json_text(rows))
        return
    shown = [[_default(cell) if key == "default" else str(cell) for key, cell in row.items()] for row in rows]
    render.table(("FIELD", "TYPE", "DEFAULT", "FLAG", "HERE", "WHO OR WHY", "TEST"), shown)


def _list_gates(pattern: str, output: str | None) -> None:
    from supervisor.config.kubeletconfig import gates_page  # noqa: PLC0415

    rows = [row._asdict() for row in gates_page.rows() if pattern.lower() in row.gate.lower()]
    if output == "json":
        render.echo(render.json_text(rows))
        return
    shown = [[_default(cell) if key == "default" else cell for key, cell in row.items()] for row in rows]
    render.table(("GATE", "STAGE", "DEFAULT", "HERE", "WHAT OR WHY", "TEST"), shown)


def _list_api(pattern: str, output: str | None) -> None:
    from supervisor.config.lists.reading import MEANING, api_fields  # noqa: PLC0415 - loads YAML

    rows = [
        {"field": f"{row.type}.{row.field}", "here": MEANING[row.kind], "why": row.why, "test": row.test}
        for row in api_fields()
        if pattern.lower() in f"{row.type}.{row.field}".lower()
    ]
    if output == "json":
        render.echo(render.json_text(rows))
        return
    render.table(("FIELD", "HERE", "WHY", "TEST"), [list(row.values()) for row in rows])


def _default(value: Any) -> str:
    return "" if value in (None, "") else _scalar(value)


def _of_flags(flags: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    from supervisor.cli.agent.start import configuration  # noqa: PLC0415 - loads YAML
    from supervisor.config.kubeletconfig.typed import encode  # noqa: PLC0415

    try:
        effective = configuration(parse(flags))
    except FlagError as error:
        raise CommandError(str(error)) from error
    return encode.plain(effective.config), effective.origins()


def _of_agent(run_dir: str) -> tuple[dict[str, Any], dict[str, str]]:
    from supervisor.host import settings_file  # noqa: PLC0415

    run_directory.check(run_dir)
    try:
        found = settings_file.read_configuration(run_dir)
    except OSError as error:
        raise CommandError(
            f"cannot show the configuration of the agent in {run_dir}: {error.strerror}; start the agent, "
            "or give flags of `supervisor start` to see their configuration"
        ) from error
    return found["configuration"], found["sources"]


def yaml_lines(plain: Mapping[str, Any], origins: Mapping[str, str] | None) -> list[str]:
    """The configuration as YAML, a line for each value, with its source as a comment if `origins` are given."""
    return _Yaml(origins).mapping(plain, "", "")


class _Yaml:
    def __init__(self, origins: Mapping[str, str] | None) -> None:
        self._origins = origins

    def mapping(self, values: Mapping[str, Any], field: str, indent: str) -> list[str]:
        from proto.schema.fieldpath import field_text  # noqa: PLC0415

        lines = []
        for key, value in values.items():
            text = field_text((key,))
            here = f"{field}{'' if text.startswith('[') or not field else '.'}{text}"
            if isinstance(value, dict) and value:
                lines += [f"{indent}{_scalar(key)}:", *self.mapping(value, here, f"{indent}  ")]
            else:
                lines.append(f"{indent}{_scalar(key)}: {_scalar(value)}{self._comment(here)}")
        return lines

    def _comment(self, field: str) -> str:
        if self._origins is None or field in ("apiVersion", "kind"):
            return ""
        return f"  # {origin_of(field, self._origins)}"


def origin_of(field: str, origins: Mapping[str, str]) -> str:
    """The source of a value: its own, that of a map from a flag, or `default`."""
    if field in origins:
        return origins[field]
    parent = field.rpartition("[")[0]
    flag = origins.get(parent, "")
    return flag if flag.startswith("--") else "default"


def _scalar(value: Any) -> str:
    """A value as YAML on one line."""
    import yaml  # noqa: PLC0415 - most commands do not need it

    text: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("...").rstrip("\n")
