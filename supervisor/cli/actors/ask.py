"""`supervisor ask ACTOR MESSAGE [FIELD=VALUE...]`: send any message of `proto`; `supervisor eval`, for debugging."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from proto.agent import registry
from proto.agent.actor import Evaluate
from proto.common import untrusted
from proto.common.secret_names import redacted
from proto.wire.errors import ActorError, ProtocolError
from proto.wire.message import Message, Request, types_for
from supervisor.cli.actors.seconds import TIMEOUT
from supervisor.cli.common import complete_actor, connect, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render


def _complete_message(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    actor = ctx.params.get("actor")
    if actor != "supervisor" and actor not in registry.NAMES:
        return []
    return [name for name in sorted(messages_of(actor)) if name.startswith(incomplete)]


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@click.argument("message", required=False, shell_complete=_complete_message)
@click.argument("values", nargs=-1, metavar="[FIELD=VALUE]...")
@run_dir_option
@click.option("--timeout", type=TIMEOUT, default=30.0, show_default=True, help="Seconds to wait for the answer.")
@output_option("json")
def ask(
    actor: str, message: str | None, values: tuple[str, ...], run_dir: str, timeout: float, output: str | None
) -> None:
    r"""Send MESSAGE to ACTOR and show its answer; without MESSAGE list what ACTOR takes.

    VALUE is text for a field of text, else JSON. What may be secret in an answer is hidden.

    \b
    Example: supervisor ask eviction PlanEviction signal=memory.available quantity=500Mi
    """
    _check_actor(actor, run_dir)
    if message is None:
        _list_messages(actor, output)
        return
    built = build(actor, message, values)
    with connect(run_dir) as client:
        if not isinstance(built, Request):
            client.tell(actor, built)
            answer: Any = {}
        else:
            found = client.ask(actor, built, timeout)
            answer = redacted(msgspec.to_builtins(found, builtin_types=(bytes,)))
    if output == "json":
        render.echo(render.json_text(answer))
    elif answer:
        render.echo(render.yaml_text(answer))
    else:
        render.echo("sent; it has no answer" if not isinstance(built, Request) else "done")


def _check_actor(actor: str, run_dir: str) -> None:
    """Raise CommandError for an unknown actor. It names the agent's actors; all that there may be without an agent."""
    if actor == "supervisor" or actor in registry.NAMES:
        return
    try:
        with connect(run_dir) as client:
            names = [row.name for row in client.actors() if row.name != "forkserver"]
    except (ActorError, ProtocolError):
        names = sorted(registry.NAMES)
    raise _no_actor(actor, names)


def _no_actor(actor: str, names: Sequence[str]) -> CommandError:
    return CommandError(f"cannot ask {actor}: there is no such actor; there are {', '.join(names)}")


def messages_of(actor: str) -> dict[str, type[Message]]:
    """The types that an actor receives. The supervisor takes some that each actor takes, too."""
    if actor != "supervisor" and actor not in registry.NAMES:
        raise _no_actor(actor, sorted(registry.NAMES))
    found = types_for(actor)
    answers = {base for kind in found.values() if issubclass(kind, Request) for base in _answers(kind)}
    return {name: kind for name, kind in found.items() if kind not in answers}


def _answers(kind: type[Message]) -> tuple[Any, ...]:
    return tuple(one for base in getattr(kind, "__orig_bases__", ()) for one in typing.get_args(base))


def _list_messages(actor: str, output: str | None) -> None:
    found = messages_of(actor)
    rows = [(name, _signature(kind), _summary(kind)) for name, kind in sorted(found.items())]
    if output == "json":
        keys = ("message", "fields", "purpose")
        render.echo(render.json_text([dict(zip(keys, row, strict=True)) for row in rows]))
    else:
        render.table(("MESSAGE", "FIELDS", "PURPOSE"), rows)


def _signature(kind: type[Message]) -> str:
    parts = [field.name if field.required else f"[{field.name}]" for field in msgspec.structs.fields(kind)]
    return " ".join(parts)


def _summary(kind: type[Message]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def build(actor: str, name: str, values: Sequence[str]) -> Message:
    """The message of these fields. Raises CommandError with the name of a wrong one."""
    kind = messages_of(actor).get(name)
    if kind is None:
        raise CommandError(f"cannot ask {actor} for {name}: it takes {', '.join(sorted(messages_of(actor)))}")
    given: dict[str, Any] = {}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for text in values:
        field, equals, value = text.partition("=")
        if not equals:
            raise CommandError(f"cannot read {text!r}: write FIELD=VALUE; {name} has {', '.join(fields) or 'no field'}")
        if field not in fields:
            raise CommandError(f"cannot send {name}: it has no field {field!r}; it has {', '.join(fields) or 'none'}")
        given[field] = _value(fields[field].type, value)
    missing = [field.name for field in fields.values() if field.required and field.name not in given]
    if missing:
        raise CommandError(f"cannot send {name}: field {missing[0]!r} is missing")
    return _converted(kind, given)


def _value(kind: Any, text: str) -> Any:
    """Text for a text field; else JSON, or the text itself when it is none, which the conversion then reports."""
    if kind is str or (typing.get_origin(kind) is typing.Literal and text[:1] not in '"'):
        return text
    try:
        return untrusted.decode_json(text.encode(), Any)
    except msgspec.DecodeError:
        return text


def _converted(kind: type[Message], given: dict[str, Any]) -> Message:
    for field, value in given.items():  # one by one first, because the error of the whole may not name the field
        wanted = next(one.type for one in msgspec.structs.fields(kind) if one.name == field)
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            raise CommandError(f"cannot send {kind.__name__}: field {field!r}: {error}") from error
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"cannot send {kind.__name__}: {error}") from error


@click.command(name="eval")
@click.argument("actor", shell_complete=complete_actor)
@click.argument("expression")
@run_dir_option
@click.option("--role", type=click.Choice(["debug"]), help="Needed in a shell: it may change anything.")
@click.option("--timeout", type=TIMEOUT, default=30.0, show_default=True, help="Seconds to wait for the answer.")
@output_option("json")
def evaluate(actor: str, expression: str, run_dir: str, role: str | None, timeout: float, output: str | None) -> None:
    r"""Evaluate a Python expression inside ACTOR, where `actor` is the actor. Only in the role debug.

    It runs in the mailbox thread, as a handler does, and may change or end anything.

    \b
    Example: supervisor eval --role debug pleg 'len(actor.tasks)'
    """
    with connect(run_dir, role or "") as client:
        found = client.ask(actor, Evaluate(expression=expression), timeout)
    if output == "json":
        render.echo(render.json_text(render.fields(found)))
    elif not found.error:
        render.echo(found.text)
    if found.error:
        raise CommandError(f"cannot evaluate {expression!r}: {found.error}")
