"""`supervisor replay`: plays a recording to an actor's code, in a process of its own."""

from __future__ import annotations

import os

import click

from proto.common import interpreter
from supervisor.cli.common import complete_actor


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--pdb", "debug", is_flag=True, help="Open Python's debugger at the exception.")
@click.option("--incarnation", type=int, metavar="N", help="Of several in FILE; by default the last that crashed.")
@click.option("-v", "--verbosity", type=click.IntRange(0, 10), default=0, help="How much the actor logs here.")
def replay(actor: str, file: str, *, debug: bool, incarnation: int | None, verbosity: int) -> None:
    """Play the recording in FILE to ACTOR's code, and see whether it crashes as it did.

    FILE is one of RUN-DIR/recorder, or of `supervisor record export`. No runtime, API server or file of the machine is
    touched: answers come from the recording. Exit code 0: it ended as recorded; 1: it did not.
    """
    line = interpreter.command("actors._replay.command", actor, file, "--verbosity", str(verbosity))
    line += ["--pdb"] if debug else []
    line += ["--incarnation", str(incarnation)] if incarnation is not None else []
    os.execv(line[0], line)
