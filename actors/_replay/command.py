"""The process of `supervisor replay`: plays one recording, reports the result, and opens a debugger on request."""

from __future__ import annotations

import argparse
import pdb
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from actors._replay.player import Player
from actors._replay.sandbox import Sandbox
from actors._replay.script import ScriptError, choose
from proto.agent import recording
from proto.common import logs
from proto.common.safe_text import shown
from proto.wire.message import prepare_types

MOST_LINES = 10


def main(arguments: Sequence[str]) -> int:
    """Returns 0 when the actor ended as recorded, 1 when not, 2 without a recording to play."""
    parser = argparse.ArgumentParser(prog="supervisor replay")
    parser.add_argument("actor")
    parser.add_argument("file")
    parser.add_argument("--incarnation", type=int)
    parser.add_argument("--pdb", action="store_true")
    parser.add_argument("--verbosity", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        one = choose(recording.read(_content(Path(given.file))), given.actor, given.incarnation)
    except (ScriptError, OSError) as error:
        return _refuse(given.file, error)
    logs.setup(given.actor, given.verbosity, "text", {})
    prepare_types()
    directory = tempfile.mkdtemp(prefix="nodevisor-replay-")
    player = Player(one, Sandbox(directory))
    try:
        try:
            player.play()
        except ScriptError as error:
            return _refuse(given.file, error)
        _report(player)
        if given.pdb and player.error is not None:
            pdb.post_mortem(player.error.__traceback__)
    finally:
        player.sandbox.open = True
        shutil.rmtree(directory)
    return 0 if player.reproduced else 1


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(recording.MAX_FILE_BYTES + 1)
    if len(content) > recording.MAX_FILE_BYTES:
        raise ScriptError(f"it has more than {recording.MAX_FILE_BYTES >> 20} MiB")
    return content


def _refuse(file: str, error: Exception) -> int:
    sys.stderr.write(shown(f"cannot replay {file}: {error}; see `supervisor record show`\n"))
    return 2


def _report(player: Player) -> None:
    one = player.recording
    played = ", ".join(f"{count} {kind.lower()}" for kind, count in player.played.items()) or "nothing"
    lines = [f"{one.actor} incarnation {one.incarnation}: replayed {played}"]
    if one.lost:
        lines.append(f"{one.lost} entries had left the recording: the actor began with peers that do not answer")
    lines += _some("not in the recording", player.missing)
    lines += _some("recorded, but not asked for here", player.calls.unused)
    lines += _some("refused in the sandbox", player.sandbox.refused)
    lines += _some("threads not started", Counter(player.sandbox.threads))
    print(shown("\n".join(lines)))
    if player.error is not None:
        print(shown("".join(traceback.format_exception(player.error))), end="")
    print(shown(_verdict(player)))


def _some(what: str, counts: Counter[str]) -> list[str]:
    found = [f"  {name}" + (f" ({count} times)" if count > 1 else "") for name, count in counts.most_common(MOST_LINES)]
    more = len(counts) - len(found)
    return ([f"{what}:", *found] if found else []) + ([f"  and {more} more"] if more > 0 else [])


def _verdict(player: Player) -> str:
    if player.expected is None and player.crash is None:
        return "no crash, as recorded"
    if player.reproduced:
        return f"crashed as recorded: {player.crash}"
    return f"not as recorded: recorded {player.expected or 'no crash'}; here {player.crash or 'no crash'}"
