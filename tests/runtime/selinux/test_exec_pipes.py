"""Commands that runc executes in containers with a mount label: their streams are our pipes, which have the label.

Where SELinux is off, a mount label in a container's config.json does nothing else. crun always passes its streams on.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from supervisor.cli.streams.transport.remote import exit_code_of
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.streaming.clients import SpdySession
from tests.runtime.streaming.test_streaming import V4, processes

LABEL = "system_u:object_r:container_file_t:s0:c1,c2"


pytestmark = pytest.mark.needs("mounts", "runc")


@pytest.fixture(scope="module")
def instance() -> Iterator[EmbeddedInstance]:
    directory = Path(tempfile.mkdtemp(prefix="nvsp-"))
    with EmbeddedInstance(directory, isolation=1, oci_runtime="runc") as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()


@pytest.fixture
def container(instance: EmbeddedInstance, cri: Cri) -> str:
    """It runs as user 1000, and has a mount label also where SELinux is off."""
    config = sandbox_config("pod", host_network=True)
    sandbox = cri.run_pod_sandbox(config).result()
    wanted = container_config(["sleep", "1000"])
    wanted.linux.security_context.MergeFrom(pb.LinuxContainerSecurityContext(run_as_user=pb.Int64Value(value=1000)))
    wanted.linux.security_context.namespace_options.CopyFrom(config.linux.security_context.namespace_options)
    id_ = cri.create_container(sandbox, wanted, config).result()
    cri.start_container(id_).result()
    (file,) = instance.directory.rglob(f"{id_}/config.json")
    specification = json.loads(file.read_text())
    specification["linux"].setdefault("mountLabel", LABEL)
    file.write_text(json.dumps(specification))
    return id_


def left(instance: EmbeddedInstance) -> list[str]:
    return os.listdir(f"{instance.settings.run_dir}/runtime/exec")


def test_streams_are_our_labelled_pipes(instance: EmbeddedInstance, cri: Cri, container: str) -> None:
    script = "readlink /proc/self/fd/1; readlink /proc/self/fd/2; echo opened > /dev/stdout; echo said >&2; exit 7"
    answer = cri.exec_sync(container, ["sh", "-c", script], 60).result()
    *streams, opened = answer.stdout.decode().splitlines()
    assert [one.partition("/exec/")[2][16:] for one in streams] == [".fifo (deleted)"] * 2, streams
    assert (opened, answer.stderr, answer.exit_code) == ("opened", b"said\n", 7)
    assert left(instance) == []


def test_session_has_input_output_and_exit_code(instance: EmbeddedInstance, cri: Cri, container: str) -> None:
    script = "cat; echo said >&2; exit 3"
    url = cri.exec(container, ["sh", "-c", script], stdin=True, stdout=True, stderr=True, tty=False).result()
    session = SpdySession(str(url), V4, "stdin", "stdout", "stderr")
    data = b"0123456789abcdef" * 65536
    session.send("stdin", data, end=True)
    said = session.finish()
    assert (said["stdout"] == data, said["stderr"], exit_code_of(said["error"])) == (True, b"said\n", 3)
    wait_for(lambda: left(instance) == [])


def test_command_is_killed_at_its_time_limit(instance: EmbeddedInstance, cri: Cri, container: str) -> None:
    with pytest.raises(CriError, match="timed out after"):
        cri.exec_sync(container, ["sh", "-c", "exec sleep 4721"], 1).result()
    assert processes(cri, container, "4721") == 0
    assert left(instance) == []


def test_signal_is_the_exit_code(cri: Cri, container: str) -> None:
    assert cri.exec_sync(container, ["sh", "-c", "kill -9 $$"], 60).result().exit_code == 137


def test_missing_command_is_an_error(instance: EmbeddedInstance, cri: Cri, container: str) -> None:
    with pytest.raises(CriError, match="no-such-command"):
        cri.exec_sync(container, ["no-such-command"], 60).result()
    assert left(instance) == []
