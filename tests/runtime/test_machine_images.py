"""Images of the machine's own tools and Python run at every isolation level, like busybox images.

Level 0 is the best of the machine: 1 with crun or runc.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containerd.images import Image
from tests.containerd.pods import container_config
from tests.runtime.instance import EmbeddedInstance
from tests.runtime.test_containers import start, status

NAME = "registry.test/machine:1"
FETCH = """
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.handle_request).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/index.html").read().decode())
"""


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
