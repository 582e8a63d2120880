"""Volumes as containers see them: every plugin is written and read through a container.

The pods are those of cases.py and parts.py.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.agent.agent import Agent, container, pod
from tests.agent.table import Table, over, ready, running
from tests.agent.volumes.cases import CASES, objects, persistent
from tests.agent.volumes.parts import PARTS
from tests.containerd import ContainerdInstance
from tests.containerd.requirements import mounts_images
from tests.harness import PATIENCE, wait_for
from tests.volume.devices import loop_device, nfs_client

CHANGES = int(os.environ.get("NODEVISOR_CHANGES", "25"))
"""Changes of a ConfigMap while a container reads it: 100 before a release, and then none may take a second."""

BUSY = "race"
"""Takes a whole CPU, and so comes first and goes then."""
EVERY = {**CASES, **PARTS}
if os.environ.get("NODEVISOR_TEST_RUNTIME") == "embedded" or mounts_images():
    del EVERY["image"]  # refused there: test_image_volumes.py has runtimes with image volumes


@contextmanager
def huge_pages(count: int) -> Iterator[None]:
    """So many more of 2 MiB on this machine, which another run may be changing too."""
    setting = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    before = int(setting.read_text())
    setting.write_text(f"{before + count}\n")
    try:
        assert int(setting.read_text()) >= count
        yield
    finally:
        setting.write_text(f"{max(0, int(setting.read_text()) - count)}\n")


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    directory = tmp_path_factory.mktemp("disks")

    def prepare(agent: Agent) -> tuple[str, ...]:
        directory = agent.dir / "objects"
        directory.mkdir()
        items = [{"apiVersion": "v1", **one} for one in (*objects(), *persistent(agent.dir / "shared", disk, device))]
        (directory / "objects.yaml").write_text(yaml.safe_dump_all(items))
        return ("--objects-dir", str(directory))

    with (
        pytest.MonkeyPatch.context() as patched,
        huge_pages(1),
        loop_device(directory / "disk") as disk,
        loop_device(directory / "device") as device,
    ):
        patched.setenv("PATH", nfs_client(directory / "bin"))
        with running(containerd, EVERY, prepare) as found:
            yield found


@pytest.mark.parametrize("name", sorted(EVERY, key=lambda name: (name != BUSY, name)))
def test_volume_as_seen_by_a_container(table: Table, name: str) -> None:
    table.check(name)
    if name == BUSY:
        (table.agent.manifests / f"{name}.yaml").unlink()


def test_changed_config_map_is_in_the_container_within_a_second(table: Table) -> None:
    directory = table.agent.dir / "objects"

    def write(value: int) -> None:
        data = {name: str(value) + "x" * 2000 for name in ("one", "two")}
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "live"}, "data": data}
        temporary = table.agent.dir / "live.tmp"
        temporary.write_text(yaml.safe_dump(item))
        temporary.rename(directory / "live.yaml")

    # Reads as fast as it can, without starting a process: says every version it sees once, and `torn` when the files of
    # one directory are not of one version.
    script = (
        "exec 2>/dev/null; last=; while true; do cd -P /v/..data || continue; a=; b=; read a < one; read b < two; "
        'if [ -n "$b" ]; then '  # else the version it is in went meanwhile
        '[ "$a" = "$b" ] || echo torn; [ "$a" = "$last" ] || { last=$a; echo ${a%%x*}; }; fi; done'
    )
    write(1000)
    volumes = [{"name": "v", "configMap": {"name": "live"}}]
    mounts = [{"name": "v", "mountPath": "/v"}]
    table.agent.write("live", pod("live", container("c", script, volumeMounts=mounts), volumes=volumes))

    def lines() -> list[str]:
        seen = table.see("live")
        return seen.lines() if seen is not None else []

    wait_for(lambda: lines() == ["1000"], 30, "the pod reads the first version")
    took = []
    for value in range(1001, 1001 + CHANGES):
        began = time.monotonic()
        write(value)
        wait_for(lambda value=value: lines()[-1:] == [str(value)], 10, f"version {value} is there")
        took.append(time.monotonic() - began)
    assert "torn" not in lines()
    assert lines() == [str(value) for value in range(1000, 1001 + CHANGES)]
    print(f"{CHANGES} changes: median {statistics.median(took):.3f} s, slowest {max(took):.3f} s")
    (table.agent.manifests / "live.yaml").unlink()  # it takes a whole CPU
    assert statistics.median(took) < 1.0 * PATIENCE
    assert "NODEVISOR_CHANGES" not in os.environ or max(took) < 1.0 * PATIENCE


def test_mount_beneath_a_config_map_outlives_its_changes(table: Table) -> None:
    def write(value: str) -> None:
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "outer"}, "data": {"a": value, value: ""}}
        temporary = table.agent.dir / "outer.tmp"
        temporary.write_text(yaml.safe_dump(item))
        temporary.rename(table.agent.dir / "objects/outer.yaml")

    script = (
        "echo kept > /v/data/f; last=; while sleep 0.1; do read a < /v/a; "
        '[ "$a" = "$last" ] || { last=$a; echo $a $(cat /v/data/f) $(ls /v); }; done'
    )
    write("one")
    volumes = [{"name": "v", "configMap": {"name": "outer"}}, {"name": "data", "emptyDir": {}}]
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "data", "mountPath": "/v/data"}]
    manifest = table.agent.write("outer", pod("outer", container("c", script, volumeMounts=mounts), volumes=volumes))

    def lines() -> list[str]:
        seen = table.see("outer")
        return seen.lines() if seen is not None else []

    wait_for(lambda: lines() == ["one kept a data one"], 30, "the container has both")
    for number, value in enumerate(("two", "three"), start=2):
        write(value)
        wait_for(lambda number=number: len(lines()) == number, 30, f"the container has {value}")
        assert lines()[-1].startswith(f"{value} kept a data"), lines()
    seen = table.see("outer")
    assert seen is not None
    directory = table.agent.root_dir / "pods" / seen.item["metadata"]["uid"]
    volume = directory / "volumes/kubernetes.io~configmap/v"

    def settled() -> bool:
        found = sorted(os.listdir(volume))
        return found[1:] == ["..data", "a", "data", "three"] and found[0].startswith("..2")

    wait_for(settled, 10, "no file of a former version is left")
    assert seen.container()["restartCount"] == 0
    manifest.unlink()
    wait_for(lambda: table.see("outer") is None and not directory.exists(), 40, "nothing of the pod is left")


def test_a_host_path_is_the_nodes_own_and_stays(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "made/deep"
    volumes = [{"name": "v", "hostPath": {"path": str(path), "type": "DirectoryOrCreate"}}]
    main = container("c", "echo there > /v/f", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    manifest = table.agent.write("host", pod("host", main, volumes=volumes, restartPolicy="Never"))
    wait_for(lambda: (seen := table.see("host")) is not None and over(seen), 30, "the pod has ended")
    manifest.unlink()
    wait_for(lambda: table.see("host") is None, 30, "the pod is gone")
    assert (path / "f").read_text() == "there\n"


def test_a_pod_goes_whose_part_of_a_volume_was_deleted(table: Table) -> None:
    whole, part = {"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/part", "subPath": "part"}
    script = "rm -r /v/part; echo gone; sleep 1000"
    main = container("c", script, volumeMounts=[whole, part])
    manifest = table.agent.write("deleted", pod("deleted", main, volumes=[{"name": "v", "emptyDir": {}}]))
    wait_for(lambda: (seen := table.see("deleted")) is not None and seen.log() == "gone\n", 30, "it is deleted")
    uid = seen.item["metadata"]["uid"] if (seen := table.see("deleted")) is not None else ""
    directory = table.agent.root_dir / "pods" / uid
    assert directory.is_dir()
    manifest.unlink()
    wait_for(lambda: table.see("deleted") is None and not directory.exists(), 40, "nothing of the pod is left")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory that is a shared mount of its own, with an empty directory in it."""
    path = tmp_path / "shared"
    (path / "inner").mkdir(parents=True)
    subprocess.run(["mount", "--bind", path, path], check=True)
    subprocess.run(["mount", "--make-shared", path], check=True)
    yield path
    subprocess.run(["umount", "-R", path], check=True)


def test_mounts_made_later_propagate_as_far_as_asked(table: Table, shared: Path) -> None:
    (shared / "made").mkdir()
    volumes = [{"name": "v", "hostPath": {"path": str(shared)}}]

    def mounts(propagation: str) -> list[dict[str, str]]:
        return [{"name": "v", "mountPath": "/v", "mountPropagation": propagation}]

    mounting = "mount -t tmpfs t /v/made && echo container > /v/made/f && sleep 1000"
    table.agent.write(
        "propagation",
        pod(
            "propagation",
            container("takes", volumeMounts=mounts("HostToContainer")),
            container("none", volumeMounts=mounts("None")),
            container("gives", mounting, volumeMounts=mounts("Bidirectional"), securityContext={"privileged": True}),
            volumes=volumes,
        ),
    )
    wait_for(lambda: (seen := table.see("propagation")) is not None and ready(seen), 30, "the pod is ready")
    wait_for((shared / "made/f").exists, 10, "what a container mounts is mounted on the node")
    subprocess.run(["mount", "-t", "tmpfs", "t", shared / "inner"], check=True)
    (shared / "inner/f").write_text("node")
    cri = table.agent.containerd.cri

    def sees(name: str, path: str) -> bool:
        found = [one for one, of in table.agent.running().items() if of == f"propagation-{table.agent.node}/{name}"]
        return cri.exec_sync(found[0], ["test", "-e", path], 10).result().exit_code == 0

    assert sees("takes", "/v/inner/f")
    assert sees("takes", "/v/made/f")
    assert not sees("none", "/v/inner/f")
    subprocess.run(["umount", shared / "inner"], check=True)
    (table.agent.manifests / "propagation.yaml").unlink()
    wait_for(lambda: table.see("propagation") is None, 30, "the pod is gone")
