"""Images as volumes of pods, on the embedded runtime and on containerd from 2.1 on.

That an older containerd mounts none is a case of test_volumes.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.agent.agent import Agent
from tests.agent.table import Case, Seen, Table, once, running, waits
from tests.agent.volumes.cases import says
from tests.containerd.images import BUSYBOX
from tests.containerd.requirements import containerd_version, mounts_images

RUNTIMES = ["embedded"]
if mounts_images() and os.environ.get("NODEVISOR_TEST_RUNTIME") != "embedded":
    RUNTIMES.append("containerd")


def with_image(script: str, *mounts: dict[str, Any]) -> dict[str, Any]:
    """A pod that mounts the image `v` so."""
    volumes = [{"name": "v", "image": {"reference": BUSYBOX, "pullPolicy": "IfNotPresent"}}]
    return once(script, spec={"volumes": volumes}, volumeMounts=[{"name": "v", **one} for one in mounts])


def failed(message: str) -> Any:
    def check(seen: Seen) -> None:
        assert message in seen.message(), seen.message()

    return check


def fails(message: str, *mounts: dict[str, Any]) -> Case:
    return Case(with_image("true", *mounts), failed(message), waits("CreateContainerError"))


def shows(script: str, *mounts: dict[str, Any]) -> Case:
    """The mount is the image itself and read-only, and the status has the image's ID."""

    def check(seen: Seen) -> None:
        says(seen, "same\nrefused\n")
        shown = [one["volumeStatus"]["image"]["imageRef"] for one in seen.container()["volumeMounts"]]
        assert len(shown) == len(mounts)
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in shown), shown

    return Case(with_image(script, *mounts), check)


def same(path: str, change: str) -> str:
    """The file is that of the container's own root file system, which is of the same image; `change` fails."""
    return f'test "$(cat {path})" = "$(cat /etc/passwd)" && echo same; {change} 2>&- || echo refused'


DIRECTORY = {"mountPath": "/d", "subPath": "etc"}
FILE = {"mountPath": "/f", "subPath": "etc/passwd", "readOnly": True}
GONE = {"mountPath": "/v", "subPath": "gone"}

CASES = {
    "whole": shows(same("/v/etc/passwd", "touch /v/new"), {"mountPath": "/v"}),
}
PARTS = {
    "embedded": {
        "directory": shows(same("/d/passwd", "rm /d/passwd"), DIRECTORY),
        "file": shows(same("/f", "rm /f"), FILE),
        "none": fails("no 'gone' in the image", GONE),
    },
    "containerd": {
        "directory": shows(same("/d/passwd", "rm /d/passwd"), DIRECTORY),
        "file": fails("only directory subpath is supported", FILE),
        "none": fails("no such file or directory", GONE),
    },
    # It takes no notice of a part (containerd issue 11580), and the kubelet does not know that either.
    "containerd 2.1": {
        "directory": shows(same("/d/etc/passwd", "rm /d/etc/passwd"), DIRECTORY),
        "file": shows(same("/f/etc/passwd", "rm /f/etc/passwd"), FILE),
        "none": shows(same("/v/etc/passwd", "rm /v/etc/passwd"), GONE),
    },
}


def with_digests(agent: Agent) -> tuple[str, ...]:
    config = yaml.safe_load(agent.config.read_text())
    gates = {**config.get("featureGates", {}), "ImageVolumeWithDigest": True}
    agent.config.write_text(yaml.safe_dump({**config, "featureGates": gates}))
    return ()


@pytest.fixture(scope="module", params=RUNTIMES)
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    runtime = request.getfixturevalue(request.param)
    name = "containerd 2.1" if request.param == "containerd" and containerd_version() == (2, 1) else request.param
    with running(runtime, {**CASES, **PARTS[name]}, with_digests) as one:
        yield one


@pytest.mark.parametrize("name", [*CASES, *PARTS["embedded"]])
def test_image_volume_as_seen_by_a_container(table: Table, name: str) -> None:
    table.check(name)
