"""Images of the machine's own tools and Python run at every isolation level, like busybox images.

Level 0 is the best of the machine: 1 with crun or runc.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.cri import api_pb2 as pb
from tests.containerd.images import Image
from tests.containerd.pods import container_config
from tests.runtime.containers.test_containers import start, status
from tests.runtime.helper.test_levels import level_of
from tests.runtime.instance import EmbeddedInstance

NAME = "registry.test/machine:1"
FETCH = """
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.handle_request).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/index.html").read().decode())
"""
KEYRING = """
import ctypes, os
numbers = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
call = ctypes.CDLL(None, use_errno=True).syscall
print(call(numbers[os.uname().machine], 0, -3, 0))
"""
"""Prints the ID of the session keyring, KEYCTL_GET_KEYRING_ID."""
CALLS = """
import ctypes, errno, json, os, socket, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)

def name(code):
    return errno.errorcode[ctypes.get_errno()] if code < 0 else "allowed"

def family(number):
    try:
        socket.socket(number, socket.SOCK_SEQPACKET if number == 38 else socket.SOCK_STREAM).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"

libc.personality.argtypes = (ctypes.c_ulong,)
found = {
    "syslog": name(libc.klogctl(10, None, 0)),
    "personality": name(libc.personality(0xFFFFFFFF)),
    "personality: no randomisation": name(libc.personality(0x40000)),
    "AF_ALG": family(38), "AF_VSOCK": family(40), "AF_INET": family(socket.AF_INET), "AF_UNIX": family(socket.AF_UNIX),
    "AF_ALG with high bits": name(libc.syscall(41, ctypes.c_ulong(38 + (1 << 40)), 5, 0)),
    "unshare": name(libc.unshare(0x10000000)), "setns": name(libc.setns(0, 0)),
    "a call to come": name(libc.syscall(999)), "clone3": name(libc.syscall(435, None, 0)),
    "keyctl": name(libc.syscall(250, 0, -3, 0)),
}
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x6C020000):
    code = libc.syscall(56, ctypes.c_ulong(flag | 17), None, None, None, 0)
    if code == 0:
        os._exit(0)
    found[f"clone {flag:x}"] = name(code)
threads = [threading.Thread(target=found.__setitem__, args=("thread", "allowed")) for _ in range(3)]
[one.start() for one in threads], [one.join() for one in threads]
found["fork"] = "allowed" if os.spawnlp(os.P_WAIT, "true", "true") == 0 else "failed"
found["program"] = subprocess.run(["sh", "-c", "echo allowed | cat"], capture_output=True, text=True).stdout.strip()
print(json.dumps(found))
"""
"""Prints what becomes of system calls, by x86-64's numbers."""


@pytest.fixture(scope="module", params=[0, pytest.param(2, marks=pytest.mark.needs("mounts")), 3])
def instance(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    image = Image(NAME, tools=True, python=True)
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvmi-")), [image], isolation=request.param, cni=False) as made:
        yield made


def test_shell_tools_and_a_server_run_in_a_container(instance: EmbeddedInstance) -> None:
    command = ["sh", "-c", "trap 'exit 0' TERM; echo hello > index.html; sleep 1000 & wait"]
    config = container_config(command, image=NAME)
    config.working_dir = "/tmp"
    _, container = start(instance.cri, "machine", config)
    wrote = ["sh", "-c", "until test -s index.html; do sleep 0.1; done; cat index.html"]
    assert instance.cri.exec_sync(container, wrote, 20).result().stdout == b"hello\n"
    answer = instance.cri.exec_sync(container, ["python3", "-c", FETCH], 20).result()
    assert b"hello" in answer.stdout, answer.stderr
    instance.cri.stop_container(container, 20).result()
    assert status(instance.cri, container).exit_code == 0


def test_session_keyring_is_not_the_agents_nor_another_containers(instance: EmbeddedInstance) -> None:
    mine = subprocess.run([sys.executable, "-c", KEYRING], capture_output=True, text=True, check=True).stdout.strip()
    if mine == "-1":
        pytest.skip("this kernel has no keyrings, or a filter refuses them")
    found = [mine]
    for name in ("one", "two"):
        script = f"python3 -c '{KEYRING}' >keyring; exec sleep 1000"
        config = container_config(["sh", "-c", script], image=NAME)
        config.working_dir = "/tmp"
        _, container = start(instance.cri, f"keyring-{name}", config)
        wrote = ["sh", "-c", "until test -s keyring; do sleep 0.1; done; cat keyring"]
        found.append(instance.cri.exec_sync(container, wrote, 20).result().stdout.decode().strip())
        found.append(instance.cri.exec_sync(container, ["python3", "-c", KEYRING], 20).result().stdout.decode().strip())
    assert "-1" not in found
    if level_of(instance.cri) == 1:  # an exec of crun and runc joins the container's
        found[2:] = found[3:4]
    assert len(set(found)) == len(found), found


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are x86-64's")
def test_default_filter_refuses_what_is_not_on_its_list(instance: EmbeddedInstance) -> None:
    config = container_config(["sleep", "1000"], image=NAME)
    context = config.linux.security_context
    context.seccomp.profile_type = pb.SecurityProfile.RuntimeDefault
    _, container = start(instance.cri, "calls", config)
    answer = instance.cri.exec_sync(container, ["python3", "-c", CALLS], 20).result()
    found = json.loads(answer.stdout or b"{}")
    usual = {one for one, outcome in found.items() if outcome == "allowed"}
    assert usual == {"personality", "AF_INET", "AF_UNIX", "thread", "fork", "program"}, (found, answer.stderr)
    absent = {one for one, outcome in found.items() if outcome == "ENOSYS"}
    assert absent == {"personality: no randomisation", "a call to come", "clone3"}, found
    assert set(found.values()) == {"allowed", "ENOSYS", "EPERM"}


def test_default_filter_allows_calls_of_capabilities(instance: EmbeddedInstance) -> None:
    if level_of(instance.cri) == 3:
        pytest.skip("an ordinary user's containers have no such capability")
    config = container_config(["sleep", "1000"], image=NAME)
    context = config.linux.security_context
    context.seccomp.profile_type = pb.SecurityProfile.RuntimeDefault
    context.capabilities.add_capabilities.extend(["SYSLOG", "SYS_ADMIN"])
    _, container = start(instance.cri, "capable", config)
    script = "import ctypes; print(ctypes.CDLL(None).klogctl(10, None, 0) >= 0, ctypes.CDLL(None).unshare(0x20000))"
    assert instance.cri.exec_sync(container, ["python3", "-c", script], 20).result().stdout == b"True 0\n"
