"""A start waits for no CNI plugin and no hanging container, and keeps what cannot be read; updates beside removals."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors._cri.errors import CriError
from actors._host.files import checkpoint, mounts
from actors.runtime.assembly import data_dir
from actors.runtime.containers.containers import Containers
from actors.runtime.engine.monitor_client import MonitorClient, MonitorError
from actors.runtime.model.errors import RpcError
from actors.runtime.model.processes import is_alive
from actors.runtime.model.records import VERSION, ContainerRecord, Records, SandboxRecord, read_started
from actors.runtime.model.state import Container, Sandbox, State
from actors.runtime.sandboxes.sandboxes import Sandboxes
from proto.cri import api_pb2 as pb
from tests.containerd.pods import container_config, run_pod, sandbox_config
from tests.runtime.containers.test_containers import start
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


@pytest.mark.parametrize("keeps_files", [True, False])
def test_pod_ends_with_its_namespaces_though_the_boot_id_stays(runtime: EmbeddedInstance, keeps_files: bool) -> None:
    """A machine that is a container restarts with its host's boot ID; its run directory may be on a disk."""
    id_ = runtime.cri.run_pod_sandbox(sandbox_config("before")).result()
    runtime.kill()
    pins = Path(runtime.settings.run_dir, "runtime/ns", id_)
    for pin in pins.iterdir():
        mounts.unmount(str(pin))
    if not keeps_files:
        shutil.rmtree(pins)
    runtime.start()
    (found,) = runtime.cri.list_pod_sandbox().result()
    assert found.state == pb.SANDBOX_NOTREADY
    assert not pins.exists()
    for _ in range(2):
        runtime.cri.stop_pod_sandbox(id_).result()
    assert calls(runtime)[2:] == ["DEL begins", "DEL ends, without a namespace"], "its address is free, once"
    run_pod(runtime.cri, "again")


def test_pod_whose_container_runs_stays_without_its_namespaces(runtime: EmbeddedInstance) -> None:
    """They may be out of the runtime's sight: a service manager may give it mounts of its own."""
    sandbox, container = start(runtime.cri, "runs", container_config(["/bin/sleep", "1000"]))
    runtime.kill()
    for pin in Path(runtime.settings.run_dir, "runtime/ns", sandbox).iterdir():
        mounts.unmount(str(pin))
    runtime.start()
    (found,) = runtime.cri.list_pod_sandbox().result()
    assert found.state == pb.SANDBOX_READY
    assert runtime.cri.exec_sync(container, ["echo", "here"], 20).result().stdout == b"here\n"


@pytest.mark.parametrize("place", ["ns/net", "shm"])
def test_pod_stays_while_the_kernel_does_not_tell_its_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    engine = engine_with(tmp_path)
    engine.boot, engine.shm_of = "", lambda _: tmp_path / "shm"
    (tmp_path / "shm").mkdir()
    (sandbox,) = engine.state.sandboxes.all()
    sandboxes = Sandboxes(engine, cast("Any", None), cast("Any", None))
    stat = os.stat

    def fails(path: Any, **more: Any) -> os.stat_result:
        if str(path).endswith(place):
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return stat(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", fails)
        sandboxes.reconcile(sandbox)
    assert not sandbox.record.stopped
    sandboxes.reconcile(sandbox)
    assert not sandbox.record.stopped
    (tmp_path / "shm").rmdir()
    sandboxes.reconcile(sandbox)
    assert sandbox.record.stopped


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


def test_a_record_that_cannot_be_read_ends_no_container(runtime: EmbeddedInstance) -> None:
    sandbox, container = run_pod(runtime.cri, "runs")
    records = data_dir(runtime.settings)
    for record in (records / "containers" / container / "record.json", records / "sandboxes" / sandbox / "record.json"):
        runtime.kill()
        record.rename(runtime.directory / "whole")
        record.mkdir()
        with pytest.raises(RuntimeError, match=f"cannot read {record}: .*; containers run on"):
            runtime.start()
        runtime.kill()
        record.rmdir()
        (runtime.directory / "whole").rename(record)
        data = checkpoint.load(record, VERSION)
        checkpoint.save(record, VERSION + 1, data)
        with pytest.raises(RuntimeError, match=f"cannot use {record}: it has version .*; start the version that wrote"):
            runtime.start()
        runtime.kill()
        checkpoint.save(record, VERSION, data)
    runtime.start()
    assert [(one.id, one.state) for one in runtime.cri.list_containers().result()] == [
        (container, pb.CONTAINER_RUNNING)
    ]
    assert [(one.id, one.state) for one in runtime.cri.list_pod_sandbox().result()] == [(sandbox, pb.SANDBOX_READY)]


def test_a_damaged_record_ends_no_container(runtime: EmbeddedInstance) -> None:
    sandbox, container = start(runtime.cri, "runs", container_config(["sleep", "1000"]))  # without a pause process
    records = data_dir(runtime.settings)
    for record in (records / "containers" / container / "record.json", records / "sandboxes" / sandbox / "record.json"):
        whole = record.read_bytes()
        for damaged in (whole[:40], whole.replace(b'"checksum":', b'"checksum":1'), b"{}"):
            runtime.kill()
            record.write_bytes(damaged)
            with pytest.raises(RuntimeError, match=rf"cannot use {record}.* runs.*: put a copy of the file back"):
                runtime.start()
            runtime.kill()
            record.write_bytes(whole)
    runtime.start()
    assert {one.id: one.state for one in runtime.cri.list_containers().result()} == {container: pb.CONTAINER_RUNNING}
    assert {one.id: one.state for one in runtime.cri.list_pod_sandbox().result()} == {sandbox: pb.SANDBOX_READY}


@pytest.mark.parametrize("kind", ["containers", "sandboxes"])
def test_damaged_record_moved_away_ends_its_container(runtime: EmbeddedInstance, kind: str) -> None:
    sandbox, container = run_pod(runtime.cri, "moved")
    records = data_dir(runtime.settings)
    started = read_started(records / "containers" / container)
    assert started is not None
    directory = records / kind / {"containers": container, "sandboxes": sandbox}[kind]
    runtime.kill()
    (directory / "record.json").write_bytes(b"cut off")
    with pytest.raises(RuntimeError, match=f"or move {directory} away to end"):
        runtime.start()
    runtime.kill()
    directory.rename(runtime.directory / "moved")
    runtime.start()
    assert runtime.cri.list_containers().result() == []
    wait_for(lambda: not is_alive(started.pid, started.ticks))


def test_damaged_record_without_a_process_is_removed(runtime: EmbeddedInstance) -> None:
    sandbox, container = run_pod(runtime.cri, "ended")
    runtime.cri.stop_container(container, 0).result()
    directory = data_dir(runtime.settings) / "containers" / container
    runtime.kill()
    (directory / "record.json").write_bytes(b"cut off")
    runtime.start()
    assert not directory.exists()
    assert [one.id for one in runtime.cri.list_pod_sandbox().result()] == [sandbox]


def engine_with(records: Path) -> Any:
    """The parts of an engine that an update needs, with one sandbox and one container."""
    engine: Any = SimpleNamespace(state=State(), monitor=None)
    engine.sandboxes, engine.containers = (
        Records(records, "sandboxes", SandboxRecord),
        Records(records, "containers", ContainerRecord),
    )
    sandbox = SandboxRecord(id="s" * 64, config=b"", created_at_ns=1, boot="")
    container = ContainerRecord(
        id="c" * 64, sandbox_id=sandbox.id, config=b"", created_at_ns=1, boot="", image_id="", image_ref="", layers=(),
        stop_signal=15, user=(0, 0, ()),
    )  # fmt: skip
    for saved, record in ((engine.sandboxes, sandbox), (engine.containers, container)):
        saved.path(record.id).mkdir()
        saved.save(record)
    engine.state.sandboxes.add(Sandbox(sandbox))
    engine.state.containers.add(Container(container))
    return engine


def update_sandbox(engine: Any, sandbox: Any) -> None:
    Sandboxes(engine, cast("Any", None), cast("Any", None)).note_resources(
        sandbox, pb.UpdatePodSandboxResourcesRequest()
    )


def update_container(engine: Any, container: Any) -> None:
    Containers(engine).update(container, pb.LinuxContainerResources(cpu_shares=200))


@pytest.mark.parametrize(("kind", "update"), [("sandboxes", update_sandbox), ("containers", update_container)])
def test_update_that_waits_for_a_removal_brings_nothing_back(
    tmp_path: Path, kind: str, update: Callable[[Any, Any], None]
) -> None:
    engine = engine_with(tmp_path)
    records, table = getattr(engine, kind), getattr(engine.state, kind)
    (entry,) = table.all()
    with ThreadPoolExecutor(1) as pool:
        with entry.lock:
            waiting = pool.submit(update, engine, entry)
            records.remove(entry.record.id)
            table.drop(entry)
        with pytest.raises(RpcError, match=f"no .* '{entry.record.id}'") as told:
            waiting.result(10)
    assert told.value.code == "NOT_FOUND"
    assert list(records.directory.iterdir()) == []


def test_removed_record_is_not_saved(tmp_path: Path) -> None:
    engine = engine_with(tmp_path)
    (entry,) = engine.state.sandboxes.all()
    engine.sandboxes.remove(entry.record.id)
    with pytest.raises(FileNotFoundError):
        engine.sandboxes.save(entry.record)
    assert list(engine.sandboxes.directory.iterdir()) == []


def test_update_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    engine = engine_with(tmp_path)
    (container,) = engine.state.containers.all()
    with pytest.raises(RpcError, match=r"cannot update container .*config\.json") as told:
        update_container(engine, container)
    assert told.value.code == "UNKNOWN"


def test_start_and_end_are_published_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit of a short container may be recorded as soon as its start releases its lock."""
    engine = engine_with(tmp_path)
    (container,) = engine.state.containers.all()
    published: list[tuple[int, bool]] = []

    def is_free() -> bool:
        if free := container.lock.acquire(blocking=False):
            container.lock.release()
        return bool(free)

    def publish(event: pb.ContainerEventResponse) -> None:
        with ThreadPoolExecutor(1) as pool:
            published.append((event.container_event_type, pool.submit(is_free).result(20)))

    engine.hub = SimpleNamespace(publish=publish)
    containers = Containers(engine)
    for name in ("_require_there", "_run"):
        monkeypatch.setattr(containers, name, lambda _: None)
    monkeypatch.setattr(containers, "_note_end", lambda *_, **__: None)
    containers.start(container)
    containers.reconcile(container, (0, 1))
    assert published == [(pb.CONTAINER_STARTED_EVENT, False), (pb.CONTAINER_STOPPED_EVENT, False)]
