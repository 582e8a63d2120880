"""`supervisor console keys`: the keys with which consoles of other machines connect."""

from __future__ import annotations

import os
from pathlib import Path

import click

from proto.agent.console_roles import ROLES, Role
from proto.agent.remote_console import ConsoleKey
from supervisor.cli.common import output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.host import settings_file

HEADERS = ("NAME", "ROLE", "ADDED", "PUBLIC KEY")


def _folder(run_dir: str, root_dir: str | None) -> Path:
    from actors.remote_console import keys as store  # noqa: PLC0415 - most consoles are local

    return store.directory(root_dir or settings_file.read(run_dir).root_dir)


def _root_dir_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--root-dir", metavar="DIR", help="The agent's root directory; by default the running agent's."
    )(command)


@click.group()
def keys() -> None:
    """Add, list and revoke the keys of consoles on other machines.

    They connect to an agent that was started with --console-address.
    """


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="read", show_default=True, help="What the key may do.")
@click.option("--out", "file", metavar="FILE", help="The key file to make; by default NAME.key.")
@run_dir_option
@_root_dir_option
@output_option("json")
def add(name: str, role: Role, file: str | None, run_dir: str, root_dir: str | None, output: str | None) -> None:
    r"""Authorize a new key, and write its file with the secret. Hand the file to its user over a safe channel.

    \b
    Example: supervisor console keys add ops --role operate --out ops.key
    """
    from actors.remote_console import keys as store  # noqa: PLC0415

    path = Path(file or f"{name}.key")
    folder = _folder(run_dir, root_dir)
    try:
        if os.path.lexists(path):
            raise store.KeyProblem(f"cannot write {path}: it exists; choose another file with --out")
        key = store.add(folder, name, role)
        try:
            store.write_client(path, key)
        except store.KeyProblem:
            store.revoke(folder, name)
            raise
    except store.KeyProblem as error:
        raise CommandError(str(error)) from error
    if output == "json":
        render.echo(render.json_text({"name": name, "role": role, "public": key.public, "file": str(path)}))
    else:
        render.echo(f"wrote {path}; use it with: supervisor console --connect HOST:PORT --key {path}")


@keys.command(name="list")
@run_dir_option
@_root_dir_option
@output_option("json")
def list_(run_dir: str, root_dir: str | None, output: str | None) -> None:
    r"""Show the keys that may connect.

    \b
    Example: supervisor console keys list
    """
    from actors.remote_console import keys as store  # noqa: PLC0415

    try:
        found = store.authorized(_folder(run_dir, root_dir))
    except store.KeyProblem as error:
        raise CommandError(str(error)) from error
    if output == "json":
        render.echo(render.json_text([render.fields(key) for key in found]))
    elif found:
        render.table(HEADERS, [(key.name, key.role, key.added, key.public) for key in found])
    else:
        render.echo("No keys.", err=True)


@keys.command()
@click.argument("name")
@run_dir_option
@_root_dir_option
@output_option("json")
def revoke(name: str, run_dir: str, root_dir: str | None, output: str | None) -> None:
    r"""Take a key's right to connect. Its open connections end within a second.

    \b
    Example: supervisor console keys revoke ops
    """
    from actors.remote_console import keys as store  # noqa: PLC0415

    try:
        store.revoke(_folder(run_dir, root_dir), name)
    except store.KeyProblem as error:
        raise CommandError(str(error)) from error
    render.echo(render.json_text({"name": name, "revoked": True}) if output == "json" else f"revoked {name}")


def client_key(file: str) -> ConsoleKey:
    """The key in a client's file. Raises CommandError."""
    from actors.remote_console import keys as store  # noqa: PLC0415

    try:
        return store.read_client(Path(file))
    except store.KeyProblem as error:
        raise CommandError(str(error)) from error


def tcp_address(text: str) -> str:
    """tcp://HOST:PORT. Raises CommandError."""
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise CommandError(f"cannot connect to {text!r}: write HOST:PORT, with IPv6 addresses in brackets")
    return f"tcp://{host}:{port}"
