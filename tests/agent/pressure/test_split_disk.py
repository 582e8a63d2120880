"""Images, writable layers and the root directory on three disks: pressure on the layers' disk, on the embedded runtime.

It reports both file systems, as CRI-O does. containerd 1.6 reports that of images only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proto.agent.actor import Describe
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.agent.embedded import embedded_agent
from tests.agent.pressure.pressing import (
    MIB,
    UNTIL_TOLD,
    asking,
    configure,
    files,
    has_bytes,
    has_inodes,
    press,
    short_periods,
    small_disk,
    volume_pod,
    write,
)
from tests.harness import wait_for

pytestmark = [pytest.mark.needs("root", "mounts", "cgroups", "loop devices", "mkfs.ext4"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def split() -> Iterator[ApiSource]:
    with tempfile.TemporaryDirectory(prefix="nvpr-") as made:
        directory, root = Path(made), Path(made) / "root"
        runtime = root / "nodevisor/runtime"
        with (
            small_disk(directory / "l.img", runtime, 64 * MIB, 4096),
            small_disk(directory / "i.img", runtime / "images", 512 * MIB, 4096),
        ):
            hard = {f"{disk}.{what}": "20%" for disk in ("nodefs", "imagefs") for what in ("available", "inodesFree")}
            hard |= {"nodefs.available": "25%"}  # containerfs has those of nodefs

            def prepare(agent: Agent) -> None:
                agent.root_dir = root
                configure(agent, {"evictionHard": hard, "imageGCHighThresholdPercent": 100})

            with (
                short_periods(),
                embedded_agent(prepare=prepare, api=True) as agent,
                closing(ApiSource(agent)) as api,
            ):
                yield api
                for name in list(api.pods):
                    api.delete(name, 0)


def test_containerfs_available(split: ApiSource) -> None:
    with closing(Client(split.agent.run_dir)) as client:
        wait_for(lambda: client.ask("eviction", Describe()).state["disks"] == "split", 30, "the disks are known")
    beside = (
        pod("within", container("c", f"{write('/f', 8)}; exec sleep 1000", **asking("ephemeral-storage", "12Mi"))),
        pod("modest", container("c", f"{write('/f', 2)}; exec sleep 1000")),
    )
    script = f"{write('/f', 16)}; {UNTIL_TOLD}; {write('/g', 20)}; exec sleep 1000"
    hog = pod("hog", container("c", script))
    text = press(split, "containerfs.available", "DiskPressure", hog, beside, measured=has_bytes(16))
    assert text.startswith("The node was low on resource: ephemeral-storage. ")


def test_containerfs_inodes_free(split: ApiSource) -> None:
    beside = (pod("few", container("c", f"{files('/d', 100)}; exec sleep 1000")), volume_pod("none", ":"))
    script = f"{files('/d', 1500)}; {UNTIL_TOLD}; {files('/e', 1800)}; exec sleep 1000"
    hog = pod("hog", container("c", script))
    text = press(split, "containerfs.inodesFree", "DiskPressure", hog, beside, measured=has_inodes(1500))
    assert text.startswith("The node was low on resource: inodes. ")
