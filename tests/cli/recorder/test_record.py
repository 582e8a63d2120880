"""`supervisor record`: reads recordings with and without a running agent."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from actors._base.recording import Recorder
from proto.agent import recording
from proto.agent.settings import Settings
from proto.agent.supervisor import Started
from proto.pods.pleg import ForgetPod
from proto.wire import codec
from proto.wire.envelope import Kind
from supervisor.cli import group


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for number, actor in enumerate(("pleg", "probe"), 1):
        one = Recorder(recording.path_of(str(tmp_path), actor, number), actor, number, 65_536)
        one.begin(Settings(), 1)
        one.peer(Started(name="status", incarnation=2))
        message = ForgetPod(pod_uid="u")
        one.message(codec.encode_header(Kind.TELL, "ForgetPod", "pod_workers", 7), codec.encode(message), message)
        one.crash(KeyError("x\x1b[31m"))
    return tmp_path


def record(*arguments: str) -> str:
    result = CliRunner().invoke(group, ["record", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_show_has_a_line_for_each_message(run_dir: Path) -> None:
    lines = record("show", "pleg", "--run-dir", str(run_dir)).splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["START", "PEER", "MESSAGE", "CRASH"]
    assert "ForgetPod" in lines[3]
    assert "pod_workers #7" in lines[3]
    assert "\x1b" not in lines[4]


def test_show_can_be_read_by_programs(run_dir: Path) -> None:
    lines = [
        json.loads(line) for line in record("show", "-o", "json", "--tail", "2", "--run-dir", str(run_dir)).splitlines()
    ]
    assert [line["kind"] for line in lines] == ["MESSAGE", "CRASH"]
    assert {line["actor"] for line in lines} == {"probe"}


def test_export_has_all_actors_in_a_private_file(run_dir: Path) -> None:
    target = run_dir / "out.rec"
    assert "8 entries of 2 processes" in record("export", "-o", str(target), "--run-dir", str(run_dir))
    assert target.stat().st_mode & 0o777 == 0o600
    assert record("show", "-f", str(target)) == record("show", "--run-dir", str(run_dir))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("show", "nobody"), "no recording of nobody"),
        (("show", "-f", "/no/such"), "no such file"),
        (("export", "-o", "/proc/x"), "cannot write /proc/x"),
    ],
)
def test_problems_are_one_line(arguments: tuple[str, ...], problem: str, run_dir: Path) -> None:
    result = CliRunner().invoke(group, ["record", *arguments, "--run-dir", str(run_dir)])
    assert result.exit_code == 1
    assert problem in result.stderr


def test_damaged_file_shows_what_is_whole(run_dir: Path) -> None:
    (path,) = recording.files(str(run_dir), "pleg")
    content = bytearray(path.read_bytes())
    at = content.index(b"ForgetPod")
    content[at] ^= 1
    path.write_bytes(content)
    lines = record("show", "pleg", "--run-dir", str(run_dir)).splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["START", "PEER", "CRASH"]
