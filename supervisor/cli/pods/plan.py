"""`supervisor plan`: show what eviction or garbage collection would remove now, without removing it."""

from __future__ import annotations

import re
from typing import Any

import click

from proto.common.safe_text import one_line
from proto.node import container_gc, eviction, image_gc
from proto.node.eviction import PlannedVictim
from proto.pods.pod_columns import human_duration
from proto.v1.scalars.quantity import QuantityError, value
from supervisor.cli.common import connect, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render

PLAN_S = 60.0
"""A plan lists the runtime and may measure the pods' disks."""
HEADERS = ("ORDER", "KIND", "NAME", "RULE", "AGE", "AMOUNT")
IMAGEFS = "imagefs.available"
_CONDITION = re.compile(r"\s*([A-Za-z.]+)\s*<\s*([0-9A-Za-z.%]+)\s*")


@click.command()
@click.argument("what", type=click.Choice(["eviction", "image-gc", "container-gc"]))
@click.option("--if", "supposed", metavar="SIGNAL<QUANTITY", help="Suppose that so little of a signal is available.")
@run_dir_option
@output_option("json", "plain")
def plan(what: str, supposed: str | None, run_dir: str, output: str | None) -> None:
    r"""Show what would be evicted or removed now, in order. Nothing is.

    AMOUNT is in bytes. For pods it is the use of the resource that is short: bytes, inodes or processes.

    \b
    Example: supervisor plan eviction --if 'memory.available<500Mi'
    """
    signal, quantity = condition(supposed, what)
    with connect(run_dir) as client:
        found: eviction.Plan | image_gc.Plan | container_gc.Plan
        if what == "eviction":
            found = client.ask("eviction", eviction.PlanEviction(signal=signal, quantity=quantity), PLAN_S)
        elif what == "image-gc":
            available = available_below(quantity) if signal else None
            found = client.ask("image_gc", image_gc.PlanCollection(available_bytes=available), PLAN_S)
        else:
            found = client.ask("container_gc", container_gc.PlanCollection(), PLAN_S)
    show(found.victims, found.notes, output)


def condition(supposed: str | None, what: str) -> tuple[str, str]:
    """The signal and quantity of `--if`; both empty without it. Raises CommandError."""
    if supposed is None:
        return "", ""
    parts = _CONDITION.fullmatch(supposed)
    if parts is None:
        raise CommandError(f"cannot read --if {supposed!r}: write SIGNAL<QUANTITY, such as memory.available<500Mi")
    if what == "container-gc" or (what == "image-gc" and parts[1] != IMAGEFS):
        raise CommandError(f"cannot suppose {parts[1]} for {what}: eviction takes each signal, image-gc {IMAGEFS}")
    return parts[1], parts[2]


def available_below(quantity: str) -> int:
    """The largest number of bytes below a quantity. Raises CommandError."""
    try:
        return max(0, value(quantity) - 1)
    except QuantityError as error:
        raise CommandError(f"cannot read the quantity {quantity!r}: {error}; write 10Gi, for example") from error


def show(victims: tuple[PlannedVictim, ...], notes: tuple[str, ...], output: str | None) -> None:
    """Print a plan; for people with its notes on stderr."""
    if output == "json":
        render.echo(render.json_text({"victims": [as_json(one) for one in victims], "notes": list(notes)}))
        return
    if output == "plain":
        for one in victims:
            render.echo(f"{one.kind} {one_line(one.name)}")
    elif victims:
        render.table(HEADERS, [cells(number, one) for number, one in enumerate(victims, 1)])
    else:
        render.echo("Nothing would go.", err=True)
    for note in notes:
        render.echo(f"Note: {one_line(note)}.", err=True)


def cells(number: int, one: PlannedVictim) -> tuple[str, ...]:
    """A row of the table."""
    amount = "-" if one.bytes is None else str(one.bytes)
    return (str(number), one.kind, one.name, one.rule, human_duration(one.age_s), amount)


def as_json(one: PlannedVictim) -> dict[str, Any]:
    """A victim for -o json."""
    return {
        "kind": one.kind,
        "name": one.name,
        "id": one.id,
        "rule": one.rule,
        "ageSeconds": one.age_s,
        "bytes": one.bytes,
    }
