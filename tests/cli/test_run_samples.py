"""What `make run` needs besides the agent: manifests that are right, images, and a runtime that is free."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors.config.static_pods import load
from actors.objects.load import load as load_objects
from actors.pod_workers.references import pod_references
from tests.containerd import BUSYBOX, PAUSE, ContainerdInstance, session
from tests.containerd.pods import sandbox_config
from tests.containerd.samples import provide, sandbox_image_of

DIRECTORY = Path(__file__).parents[2] / "etc" / "samples"
SAMPLES = sorted(path for path in DIRECTORY.iterdir() if path.is_file())
OBJECTS = sorted((DIRECTORY / "objects").iterdir())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_a_pod_without_warnings_whose_image_needs_no_registry(path: Path) -> None:
    found = load(str(path), path.read_bytes(), "node", objects_dir=True)
    assert found.warnings == ()
    containers = (*found.pod.spec.init_containers, *found.pod.spec.containers)
    assert {(c.image, c.image_pull_policy) for c in containers} == {(BUSYBOX, "IfNotPresent")}


def test_what_samples_refer_to_is_in_their_objects() -> None:
    files = [load_objects(str(path), path.read_bytes()) for path in OBJECTS]
    assert [file.warnings for file in files] == [()] * len(files)
    pods = [load(str(path), path.read_bytes(), "node", objects_dir=True).pod for path in SAMPLES]
    wanted = {ref for pod in pods for ref in pod_references(pod)}
    assert {one.object.ref for file in files for one in file.objects} == wanted


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"config": json.dumps({"sandboxImage": "pause:1"})}, "pause:1"),
        ({"config": json.dumps({"other": 1})}, ""),
        ({"config": "not JSON"}, ""),
        ({}, ""),
    ],
)
def test_the_sandbox_image_is_what_the_runtime_says(info: dict[str, str], expected: str) -> None:
    assert sandbox_image_of(info) == expected


@pytest.mark.containerd
def test_images_that_are_there_are_left_alone(cri: Cri) -> None:
    assert provide(cri) == f"Images: {BUSYBOX} and {PAUSE} are there."


@pytest.mark.containerd
def test_a_runtime_with_pods_of_another_node_agent_is_not_free(containerd: ContainerdInstance, cri: Cri) -> None:
    assert session._used_by_others(containerd.endpoint) == ""
    cri.run_pod_sandbox(sandbox_config("theirs", labels={"io.kubernetes.pod.uid": str(uuid.uuid4())})).result()
    assert "runs 1 pod(s) of another node agent" in session._used_by_others(containerd.endpoint)
