"""The pod that floor and agent both run: one busybox that ends as soon as it is asked to."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.containerd.images import BUSYBOX

GRACE_S = 1
COMMAND = ("sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait")
"""The trap, because the first process of a container ignores a SIGTERM that it has no handler for."""


def manifest(name: str) -> str:
    """A static pod, as JSON, which is YAML too."""
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": COMMAND}
    spec = {"terminationGracePeriodSeconds": GRACE_S, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def write(directory: Path, count: int, manifest: Callable[[str], str] = manifest) -> list[Path]:
    """Put the manifests of `count` pods into a manifest directory; their paths."""
    paths = [directory / f"bench-{number:03}.json" for number in range(count)]
    for path in paths:
        path.write_text(manifest(path.stem))
    return paths
