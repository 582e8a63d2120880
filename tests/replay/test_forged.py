"""Forged recordings: a replay does nothing of what they ask for outside of its sandbox."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest

from actors._replay.script import ScriptError, choose
from proto.agent import actor as base
from proto.agent import recording
from proto.agent.recording import Kind
from proto.agent.settings import Settings
from proto.wire import codec
from proto.wire.envelope import Kind as MessageKind
from proto.wire.message import Message
from tests.replay.crashing import replay
from tests.replay.seeds import Seed

PLAIN = Seed("status", "describe", "return original(self, *args)", lambda *_: None, "")
START = {"settings": msgspec.json.encode(Settings()), "seed": 1}


def forged(path: Path, *frames: tuple[Kind, Any], start: Any = START) -> Path:
    """A recording of status with these frames after its start."""
    cookie = random.randbytes(8)
    content = [
        recording.frame(cookie, number, number * 1000, kind, msgpack.packb(payload))
        for number, (kind, payload) in enumerate([(Kind.START, start), *frames], 1)
    ]
    sizes = (sum(map(len, content)), 0)
    path.write_bytes(b"".join([recording.head("status", 1, 1, cookie, sizes, (0, 0.0)), *content]))
    return path


def message(one: Message) -> tuple[Kind, Any]:
    head = codec.encode_header(MessageKind.ASK, type(one).__name__, "console", 1, 1)
    return Kind.MESSAGE, [head, codec.encode(one)]


def test_expression_in_a_recording_is_not_evaluated(tmp_path: Path) -> None:
    target = tmp_path / "executed"
    code = f"__import__('_posixsubprocess') and [setattr(box, 'open', True) for box in __import__('gc').get_objects() if type(box).__name__ == 'Sandbox'] and __import__('os').system('touch {target}')"  # noqa: E501
    found = replay(PLAIN, forged(tmp_path / "x.rec", message(base.Evaluate(expression=code))))
    assert not target.exists()
    assert "a replay refuses Evaluate" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize(
    "one",
    [base.Inspect(path=""), base.ListMailbox(), base.Profile(seconds=1.0), base.SetFaults(faults=()), base.Stacks()],
    ids=lambda one: type(one).__name__,
)
def test_messages_that_inspect_or_change_are_refused(one: Message, tmp_path: Path) -> None:
    found = replay(PLAIN, forged(tmp_path / "x.rec", message(one)))
    assert f"a replay refuses {type(one).__name__}" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize(
    "start", [None, [], {}, {"settings": b"{}", "seed": "x"}, {"settings": b"[", "seed": 1}], ids=str
)
def test_unusable_start_is_refused(start: Any, tmp_path: Path) -> None:
    found = replay(PLAIN, forged(tmp_path / "x.rec", start=start))
    assert found.returncode == 2
    assert "its start cannot be used" in found.stderr
    assert "Traceback" not in found.stderr


def test_unhashable_path_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    found = replay(PLAIN, forged(tmp_path / "x.rec", (Kind.CHECKPOINT, [[], None])))
    assert found.returncode == 2
    assert "its start cannot be used" in found.stderr


def test_file_past_the_bound_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "x.rec").open("wb") as file:
        file.truncate(recording.MAX_FILE_BYTES + 1)
    found = replay(PLAIN, tmp_path / "x.rec")
    assert found.returncode == 2
    assert "256 MiB" in found.stderr


def test_only_actors_name_modules() -> None:
    with pytest.raises(ScriptError, match="there is no actor"):
        choose([], "_faults.injection", None)
