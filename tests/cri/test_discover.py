"""The search for a container runtime."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from actors._cri.client import Cri
from actors._cri.discover import NoRuntime, Runtime, discover
from actors._cri.endpoint import BadEndpoint
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from tests.cri.fake import FakeRuntime


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeRuntime]:
    server = FakeRuntime(tmp_path / "fake.sock")
    yield server
    server.close()


def test_the_first_endpoint_that_answers_is_taken(fake: FakeRuntime, tmp_path: Path) -> None:
    found = discover(20, [f"unix://{tmp_path}/missing.sock", fake.endpoint, "unix:///never/asked"])
    assert found == Runtime(fake.endpoint, "fake", "1.0", "v1")


def test_cgroup_driver_is_asked_of_the_runtime(fake: FakeRuntime) -> None:
    fake.runtime_config = pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=pb.SYSTEMD))
    assert discover(20, [fake.endpoint]).cgroup_driver == "systemd"


def test_runtime_without_a_driver_is_not_taken_for_one_that_has_not_answered(
    fake: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starting(*_: object, **__: object) -> None:
        raise CriError("Unknown", "server is not initialized yet")

    assert discover(20, [fake.endpoint]).cgroup_driver == ""
    monkeypatch.setattr(Cri, "cgroup_driver", starting)
    assert discover(20, [fake.endpoint]).cgroup_driver is None


def test_no_runtime_says_what_was_tried_and_why_each_failed(fake: FakeRuntime, tmp_path: Path) -> None:
    fake.fail_with = (grpc.StatusCode.UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService")
    with pytest.raises(NoRuntime) as caught:
        discover(20, [f"unix://{tmp_path}/missing.sock", fake.endpoint])
    text = str(caught.value)
    assert "missing.sock: no such socket" in text
    assert f"{fake.endpoint}: speaks no CRI v1 (unknown service runtime.v1.RuntimeService)" in text
    assert "apt install containerd" in text
    assert "--container-runtime-endpoint" in text


def test_silent_endpoint_is_skipped_after_its_timeout(fake: FakeRuntime, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "mute.sock"))
        mute.listen()
        # Each has that long, and the other one must have its turn in it on a machine that pauses, too.
        assert discover(6, [f"unix://{tmp_path}/mute.sock", fake.endpoint]).endpoint == fake.endpoint


def test_a_bad_endpoint_is_an_error_of_its_own() -> None:
    with pytest.raises(BadEndpoint):
        discover(1, ["tcp://localhost:1"])


def run(*arguments: str) -> tuple[int, dict[str, str]]:
    command = [sys.executable, "-m", "actors._cri.discover", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, json.loads(ended.stdout)


def test_as_a_program_it_prints_what_it_found(fake: FakeRuntime) -> None:
    code, printed = run("--timeout", "10", fake.endpoint)
    assert code == 0
    assert printed == {
        "endpoint": fake.endpoint,
        "runtime_name": "fake",
        "runtime_version": "1.0",
        "api_version": "v1",
        "cgroup_driver": "",
    }


def test_as_a_program_it_prints_why_it_found_none(tmp_path: Path) -> None:
    code, printed = run(f"unix://{tmp_path}/missing.sock")
    assert code == 1
    assert "cannot find a container runtime" in printed["error"]
