"""Images of the machine's own tools and Python run at every isolation level, like busybox images.

Level 0 is the best of the machine: 1 with crun or runc.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containerd.images import Image
from tests.containerd.pods import container_config
from tests.runtime.instance import EmbeddedInstance
from tests.runtime.test_containers import start, status
from tests.runtime.test_levels import level_of

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
