"""The sandbox of a replay: a process with it cannot touch what is outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PREFIX = """
import os, resource, signal, socket, subprocess, sys, threading
import grpc, zmq
from actors._replay.sandbox import Sandbox
from proto.agent.settings import Settings
box = Sandbox(sys.argv[1] + "/box")
outside = sys.argv[1] + "/outside"
os.symlink(sys.argv[1], sys.argv[1] + "/box/link")
settings = box.inside(Settings(root_dir="/var/lib/kubelet", container_runtime_endpoint="unix:///run/x.sock"))
box.close()
"""


def run(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "box").mkdir()
    (directory / "outside").mkdir()
    line = [sys.executable, "-c", PREFIX + code, str(directory)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "effect",
    [
        "open(outside + '/x', 'w')",
        "open(box.directory + '/link/x', 'w')",
        "os.open(outside + '/x', os.O_CREAT | os.O_WRONLY)",
        "os.mkdir(outside + '/x')",
        "os.rmdir(outside)",
        "os.rename(outside, box.directory + '/x')",
        "os.symlink(outside, outside + '/x')",
        "os.unlink(outside + '/../box/../outside')",
        "os.chmod(outside, 0o777)",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "signal.pidfd_send_signal(0, 0)",
        "subprocess.run(['true'])",
        "socket.create_connection(('127.0.0.1', 1))",
        "socket.socket(socket.AF_UNIX).connect('/run/x.sock')",
        "os.mkfifo(outside + '/x')",
        "os.execv('/bin/true', ['true'])",
        "zmq.Context()",
        "grpc.server(None)",
        "grpc.aio.server()",
        "open('/dev/ptmx', 'rb')",
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    ],
)
def test_effects_outside_are_refused(effect: str, tmp_path: Path) -> None:
    found = run(effect, tmp_path)
    assert "PermissionError: a replay refuses" in found.stderr
    assert list((tmp_path / "outside").iterdir()) == []


def test_own_files_are_read_and_written(tmp_path: Path) -> None:
    found = run(
        "os.makedirs(settings.root_dir + '/pods'); open(settings.root_dir + '/pods/x', 'w').write('y'); "
        "print(open('/proc/self/comm').read(), settings.root_dir, settings.container_runtime_endpoint)",
        tmp_path,
    )
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "box/var/lib/kubelet/pods/x").read_text() == "y"
    assert str(tmp_path / "box/conta.sock") in found.stdout


def test_threads_are_not_started(tmp_path: Path) -> None:
    found = run("threading.Thread(target=os.abort, name='poller').start(); print(box.threads)", tmp_path)
    assert found.stdout == "['poller']\n"


def test_no_setting_names_a_path_outside(tmp_path: Path) -> None:
    found = run("print(box.inside(Settings(root_dir='/../../outside')).root_dir)", tmp_path)
    assert found.stdout == f"{tmp_path}/box/outside\n", found.stderr


def test_grpc_channels_lead_to_no_server(tmp_path: Path) -> None:
    serve = "s = grpc.server(ThreadPoolExecutor(1)); s.add_insecure_port('unix:' + sys.argv[1] + '/s'); s.start(); "
    call = "grpc.insecure_channel('unix:' + sys.argv[1] + '/s').unary_unary('/a/b')(b'', timeout=5)"
    before = PREFIX.replace("box.close()", f"from concurrent.futures import ThreadPoolExecutor; {serve}box.close()")
    (tmp_path / "box").mkdir()
    line = [
        sys.executable,
        "-c",
        before
        + "import os\ntry:\n    "
        + call
        + "\nexcept grpc.RpcError as e:\n    print(e.code().name, flush=True)\nos._exit(0)",
        str(tmp_path),
    ]
    found = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == "UNAVAILABLE\n", found.stderr
