"""Pod sandboxes whose network fails to come up, and then to go: what is left is given back later."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors._cri.errors import CriError
from actors.runtime.assembly import data_dir
from actors.runtime.model.processes import is_alive
from actors.runtime.model.records import read_started
from proto.cri import api_pb2 as pb
from tests.containerd.pods import sandbox_config
from tests.runtime.instance import EmbeddedInstance, wait_for

PLUGIN = """#!/bin/sh
read -r input
echo "$CNI_COMMAND $CNI_CONTAINERID" >> {directory}/calls
test ! -e {directory}/broken-$CNI_COMMAND || {{ echo '{{"msg": "broken"}}'; exit 1; }}
test "$CNI_COMMAND" != ADD || echo '{{"cniVersion": "0.4.0", "ips": [{{"address": "10.9.9.9/24"}}]}}'
"""
"""Logs its calls, and fails while a file with the call's name exists."""

pytestmark = pytest.mark.needs("mounts")


class Pods:
    """A runtime whose network is one plugin, and the calls of that plugin."""

    def __init__(self, runtime: EmbeddedInstance) -> None:
        self.runtime = runtime
        self.directory = runtime.directory
        self.config = sandbox_config("failed")  # with a shared pid namespace: it has a pause process

    def break_calls(self, *commands: str) -> None:
        for command in ("ADD", "DEL"):
            (self.directory / f"broken-{command}").unlink(missing_ok=True)
        for command in commands:
            (self.directory / f"broken-{command}").touch()

    def calls(self) -> list[str]:
        return [line.split()[0] for line in (self.directory / "calls").read_text().splitlines()]

    def fail(self) -> str:
        """Run a pod in vain; return the ID of its sandbox."""
        with pytest.raises(CriError, match="broken"):
            self.runtime.cri.run_pod_sandbox(self.config).result()
        return (self.directory / "calls").read_text().split()[-1]

    def state(self, id_: str) -> "pb.PodSandboxState.ValueType | None":
        found = {one.id: one.state for one in self.runtime.cri.list_pod_sandbox().result()}
        return found.get(id_)

    def left(self) -> list[Path]:
        """Leftovers of all sandboxes below the run directory."""
        run = Path(self.runtime.settings.run_dir, "runtime")
        return [path for name in ("ns", "shm", "oci") for path in (run / name).glob("*")]


@pytest.fixture
def pods() -> Iterator[Pods]:
    directory = Path(tempfile.mkdtemp(prefix="nvfail-"))
    runtime = EmbeddedInstance(directory, isolation=2, cni=False)
    runtime.settings.extra["cni_bin_dirs"] = [str(runtime.directory / "bin")]
    for name in ("net.d", "bin"):
        (directory / name).mkdir()
    (directory / "net.d/10.conf").write_text('{"cniVersion": "0.4.0", "name": "net", "type": "noting"}')
    plugin = directory / "bin/noting"
    plugin.write_text(PLUGIN.format(directory=runtime.directory))
    plugin.chmod(0o755)
    with runtime:
        made = Pods(runtime)
        yield made
        made.break_calls()


def remove(pods: Pods, id_: str) -> None:
    pods.runtime.cri.remove_pod_sandbox(id_).result()


def stop(pods: Pods, id_: str) -> None:
    pods.runtime.cri.stop_pod_sandbox(id_).result()


def restart_and_remove(pods: Pods, id_: str) -> None:
    pods.runtime.kill()
    pods.runtime.start()
    assert pods.state(id_) == pb.SANDBOX_NOTREADY
    remove(pods, id_)


@pytest.mark.parametrize("give_back", [stop, remove, restart_and_remove])
def test_failed_pod_with_a_stuck_network_is_detached_later(pods: Pods, give_back: Callable[[Pods, str], None]) -> None:
    pods.break_calls("ADD", "DEL")
    id_ = pods.fail()
    assert pods.state(id_) == pb.SANDBOX_NOTREADY
    started = read_started(data_dir(pods.runtime.settings) / "sandboxes" / id_)
    assert started is not None
    wait_for(lambda: not is_alive(started.pid, started.ticks))
    assert pods.left() == []
    with pytest.raises(CriError, match="broken"):
        give_back(pods, id_)
    assert pods.state(id_) == pb.SANDBOX_NOTREADY
    pods.break_calls()
    give_back(pods, id_)
    assert pods.calls()[0] == "ADD"
    assert set(pods.calls()[1:]) == {"DEL"}
    count = len(pods.calls())
    remove(pods, id_)
    assert pods.state(id_) is None
    assert len(pods.calls()) == count, "it is detached once"
    assert list((data_dir(pods.runtime.settings) / "sandboxes").iterdir()) == []


def test_failed_pod_that_is_detached_leaves_nothing(pods: Pods) -> None:
    pods.break_calls("ADD")
    id_ = pods.fail()
    assert pods.state(id_) is None
    assert pods.left() == []
    pods.break_calls()
    again = pods.runtime.cri.run_pod_sandbox(pods.config).result()  # its name is free
    assert pods.state(again) == pb.SANDBOX_READY
