"""`supervisor record`: show and export what the flight recorder has. It reads files, and needs no running agent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from proto.agent import recording
from proto.agent.recording import Frame, Kind, Recording
from proto.wire import codec
from supervisor.cli import run_directory
from supervisor.cli.common import complete_actor, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render

HEADERS = ("TIME", "ACTOR", "KIND", "WHAT", "PEER", "BYTES")


@click.group()
def record() -> None:
    """Show or export the last messages of the actors, which outlive each of them."""


@record.command()
@click.argument("actor", required=False, default="", shell_complete=complete_actor)
@click.option("-f", "--file", "path", metavar="FILE", help="An exported file, or one of RUN-DIR/recorder.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@run_dir_option
@output_option("json")
def show(actor: str, path: str | None, tail: int | None, run_dir: str, output: str | None) -> None:
    """Show the recorded messages of ACTOR or of all actors, oldest first.

    Values of Secrets and of environment variables were never recorded. Commands and annotations of manifests were.
    """
    recordings = load([Path(path)] if path else _files(run_dir, actor), actor, run_dir)
    frames = sorted(((one.at(frame), one, frame) for one in recordings for frame in one.frames), key=lambda row: row[0])
    rows = [(at, one, *described(frame), frame) for at, one, frame in frames[-tail if tail else 0 :]]
    if output == "json":
        for at, one, what, peer, size, frame in rows:
            line = {"time": at, "actor": one.actor, "incarnation": one.incarnation, "number": frame.number}
            render.echo(render.json_line(line | {"kind": frame.kind.name, "what": what, "peer": peer, "bytes": size}))
        return
    render.table(
        HEADERS,
        [
            [_clock(at), f"{one.actor} #{one.incarnation}", frame.kind.name, what, peer, str(size)]
            for at, one, what, peer, size, frame in rows
        ],
        frozenset({"BYTES"}),
    )


@record.command()
@click.argument("actor", required=False, default="", shell_complete=complete_actor)
@click.option("-o", "--output", "path", metavar="FILE", help="Default: nodevisor-TIME.rec here.")
@run_dir_option
def export(actor: str, path: str | None, run_dir: str) -> None:
    """Write the recordings of ACTOR or of all actors to one file, for `supervisor replay` on any machine."""
    recordings = load(_files(run_dir, actor), actor, run_dir)
    target = path or time.strftime("nodevisor-%Y%m%dT%H%M%S.rec")
    content = recording.export(recordings)
    try:
        with open(target, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}; name another file with -o") from error
    count = sum(len(one.frames) for one in recordings)
    render.echo(f"{target}: {count} entries of {len(recordings)} processes, {len(content)} bytes")


def _files(run_dir: str, actor: str) -> list[Path]:
    """The recordings of ACTOR or of all actors. Raises CommandError when they cannot be looked for."""
    run_directory.check(run_dir, recording.DIRECTORY)
    found = recording.files(run_dir, actor)
    if not found and (others := recording.files(run_dir)):
        names = sorted({path.name.rpartition("-")[0] for path in others})
        raise CommandError(f"no recording of {actor} in {run_dir}; there are those of {', '.join(names)}")
    return found


def load(paths: list[Path], actor: str, run_dir: str) -> list[Recording]:
    """The recordings in these files, of one actor if it is named. Raises CommandError without any."""
    found: list[Recording] = []
    for path in paths:
        try:
            if path.stat().st_size > recording.MAX_FILE_BYTES:
                raise CommandError(f"cannot read {path}: it has more than {recording.MAX_FILE_BYTES >> 20} MiB")
            found += recording.read(path.read_bytes())
        except FileNotFoundError:
            if len(paths) == 1:  # of several, one may have been replaced meanwhile
                raise CommandError(f"cannot read {path}: no such file; see `supervisor record show`") from None
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from error
    found = [one for one in found if actor in ("", one.actor)]
    if not found:
        place = f"of {actor} " if actor else ""
        raise CommandError(f"no recording {place}in {paths[0] if len(paths) == 1 else run_dir}; is --recorder-size 0?")
    return found


def described(frame: Frame) -> tuple[str, str, int]:
    """A frame's type, the other side, and the size of its content. Never raises."""
    try:
        return _described(frame.kind, frame.payload)
    except Exception:  # a damaged or forged file
        return "cannot be read", "", 0


def _described(kind: Kind, payload: Any) -> tuple[str, str, int]:
    if kind is Kind.MESSAGE:
        header = codec.decode_header(payload[0])
        return header.type, f"{header.source} #{header.incarnation}", len(payload[1] or b"")
    texts: dict[Kind, Callable[[], tuple[str, str, int]]] = {
        Kind.ANSWER: lambda: (f"{payload[1]}: {_outcome(payload[3])}", str(payload[0]), len(payload[4] or b"")),
        Kind.CRI: lambda: (f"{payload[0]}: {_outcome(payload[2])}", "runtime", len(payload[3] or b"")),
        Kind.BLOCKING: lambda: (f"{payload[0]}: {_outcome(payload[1])}", "", 0),
        Kind.START: lambda: ("start", "", len(payload["settings"])),
        Kind.CHECKPOINT: lambda: (str(payload[0]), "", len(payload[1] or b"")),
        Kind.CRASH: lambda: (f"{payload[0]}: {payload[1]}", "", 0),
        Kind.PEER: lambda: (str(payload[0]), "supervisor", len(payload[1])),
    }
    return texts[kind]()


def _outcome(error: Any) -> str:
    return "answered" if error is None else " ".join(str(part) for part in error if part not in (None, True, False, ""))


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03d}"
