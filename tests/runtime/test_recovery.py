"""A start of the runtime waits neither for a CNI plugin nor for a container that hangs while it starts."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.errors import CriError
from actors._host.files import checkpoint
from actors.runtime.assembly import data_dir
from actors.runtime.engine.monitor_client import MonitorClient, MonitorError
from actors.runtime.model.records import VERSION
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, run_pod, sandbox_config
from tests.runtime.instance import EmbeddedInstance, wait_for

PLUGIN = """#!/bin/sh
read -r input
echo "$CNI_COMMAND begins" >> {directory}/calls
while test -e {directory}/hang-$CNI_COMMAND; do sleep 0.05; done
echo "$CNI_COMMAND ends, ${{CNI_NETNS:-without a namespace}}" >> {directory}/calls
test "$CNI_COMMAND" != ADD || echo '{{"cniVersion": "0.4.0", "ips": [{{"address": "10.9.9.9/24"}}]}}'
"""
"""Logs its calls, and waits while there is a file with the call's name."""
OCI = """
touch {directory}/begun-{name}
while ! test -e {directory}/go; do sleep 0.05; done
{then}
"""
"""Stands for an OCI runtime that hangs, for example in a mount of a dead NFS server."""

pytestmark = pytest.mark.needs("mounts")


@pytest.fixture
def runtime() -> Iterator[EmbeddedInstance]:
    """A runtime whose network is one plugin."""
    directory = Path(tempfile.mkdtemp(prefix="nvrec-"))
    made = EmbeddedInstance(directory, isolation=2, cni=False)
    made.settings.extra["cni_bin_dirs"] = [str(made.directory / "bin")]
    for name in ("net.d", "bin"):
        (directory / name).mkdir()
    (directory / "net.d/10.conf").write_text('{"cniVersion": "0.4.0", "name": "net", "type": "hanging"}')
    plugin = directory / "bin/hanging"
    plugin.write_text(PLUGIN.format(directory=made.directory))
    plugin.chmod(0o755)
    with made:
        yield made
        for path in made.directory.glob("hang-*"):
            path.unlink()


def calls(runtime: EmbeddedInstance) -> list[str]:
    return (runtime.directory / "calls").read_text().splitlines()


def reboot(runtime: EmbeddedInstance) -> None:
    """Restart the runtime as on a machine that has booted again."""
    runtime.kill()
    for record in (data_dir(runtime.settings) / "sandboxes").glob("*/record.json"):
        data = checkpoint.load(record, VERSION)
        assert data is not None
        checkpoint.save(record, VERSION, {**data, "boot": "another"})
    runtime.start()


@pytest.mark.parametrize("give_back", ["stop_pod_sandbox", "remove_pod_sandbox"])
def test_network_of_an_earlier_boot_goes_with_its_pod(runtime: EmbeddedInstance, give_back: str) -> None:
    id_ = runtime.cri.run_pod_sandbox(sandbox_config("before")).result()
    reboot(runtime)
    (found,) = runtime.cri.list_pod_sandbox().result()
    assert found.state == pb.SANDBOX_NOTREADY
    assert [call for call in calls(runtime) if call.startswith("DEL")] == [], "the start calls no plugin"
    getattr(runtime.cri, give_back)(id_).result()
    assert [call for call in calls(runtime) if call == "DEL begins"] == ["DEL begins"]
    runtime.cri.remove_pod_sandbox(id_).result()
    assert calls(runtime).count("DEL begins") == 1, "it is detached once"
    assert runtime.cri.list_pod_sandbox().result() == []


def test_start_does_not_wait_for_the_network_of_unfinished_pods(runtime: EmbeddedInstance) -> None:
    (runtime.directory / "hang-ADD").touch()
    unfinished = runtime.cri.run_pod_sandbox(sandbox_config("unfinished"))
    wait_for((runtime.directory / "calls").exists)
    runtime.kill()
    unfinished.cancel()
    (runtime.directory / "hang-DEL").touch()
    (runtime.directory / "hang-ADD").unlink()
    runtime.start()
    wait_for(lambda: "DEL begins" in calls(runtime))
    (directory,) = (data_dir(runtime.settings) / "sandboxes").iterdir()
    run_pod(runtime.cri, "meanwhile")
    (runtime.directory / "hang-DEL").unlink()
    wait_for(lambda: not directory.exists())
    pins = Path(runtime.settings.run_dir, "runtime", "ns")
    assert f"DEL ends, {pins / directory.name}/network" in calls(runtime), "its namespace stayed until then"
    assert directory.name not in {path.name for path in pins.iterdir()}


def start_as_the_former_runtime(runtime: EmbeddedInstance, container: str, name: str, then: str) -> None:
    """Ask the monitor for a start whose OCI runtime hangs until there is a file `go`."""
    directory = data_dir(runtime.settings) / "containers" / container
    script = OCI.format(directory=runtime.directory, name=name, then=then.format(directory=directory))
    monitor = MonitorClient(Path(runtime.settings.run_dir, "runtime", "monitor.sock"), lambda *_: None, lambda: None)

    def work() -> None:
        with contextlib.suppress(MonitorError):  # that runtime is killed
            monitor.ask("start", container, str(directory), "", "", "", "/bin/sh", "-c", script)

    threading.Thread(target=work, daemon=True).start()
    wait_for((runtime.directory / f"begun-{name}").exists)
    monitor.close()
    Path(runtime.settings.run_dir, "runtime", "rootfs", container).mkdir()


def test_starts_that_hang_do_not_keep_the_runtime_from_serving(runtime: EmbeddedInstance) -> None:
    sandbox, running = run_pod(runtime.cri, "hangs")
    config = runtime.cri.list_pod_sandbox().result()[0]
    told = pb.PodSandboxConfig(metadata=config.metadata)
    good, bad = (
        runtime.cri.create_container(sandbox, container_config(["true"], name=name), told).result()
        for name in ("good", "bad")
    )
    start_as_the_former_runtime(runtime, good, "good", "sleep 1000 <&- >&- 2>&- & echo $! > {directory}/pid")
    start_as_the_former_runtime(runtime, bad, "bad", "echo the mount is dead > {directory}/oci.log; exit 1")
    runtime.kill()
    runtime.start()
    states = {one.id: one.state for one in runtime.cri.list_containers().result()}
    assert states == {running: pb.CONTAINER_RUNNING, good: pb.CONTAINER_CREATED, bad: pb.CONTAINER_CREATED}
    roots = Path(runtime.settings.run_dir, "runtime", "rootfs")
    assert {path.name for path in roots.iterdir()} == {running, good, bad}, "what a start uses stays"
    with pytest.raises(CriError, match="is starting"):
        runtime.cri.remove_container(good).result()
    (runtime.directory / "go").touch()

    def status(id_: str) -> pb.ContainerStatus:
        return runtime.cri.container_status(id_).result().status

    wait_for(lambda: status(good).state == pb.CONTAINER_RUNNING)
    wait_for(lambda: status(bad).state == pb.CONTAINER_EXITED)
    assert (status(bad).reason, status(bad).message) == ("StartError", "the mount is dead")
    assert {path.name for path in roots.iterdir()} == {running, good}
    runtime.cri.stop_container(good, 0).result()
    assert status(good).exit_code == 137
