"""`supervisor state` of the pods and objects that actors hold: a planted Secret and environment are in none of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proto.agent.actor import Inspect
from proto.wire.errors import Refused
from supervisor.sockets.client import Client
from tests.agent.agent import container, is_ready, pod
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for

PLANTED = "planted-b7f3"
MOST_PATHS, MOST_DEPTH = 40, 14
"""Of one root. A variable of a container is eleven levels below its actor."""
ROOTS = {
    "status": "pods",
    "pod_workers": "desired",
    "objects": "",
    "volume": "",
    "config": "",
    "probe": "",
    "pleg": "",
    "runtime": "",
    "image_pull": "",
    "events": "",
    "stats": "",
    "resources": "",
    "container_gc": "",
}
"""The parts of state in which actors hold pods and objects."""
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "keys", "namespace": "default"},
    "stringData": {"word": f"{PLANTED}-secret", "tls.key": f"-----BEGIN PRIVATE KEY-----{PLANTED}"},
}


def user() -> dict[str, Any]:
    main = container(
        "main",
        "exec sleep 100000",
        env=[
            {"name": "PLAIN", "value": f"{PLANTED}-plain"},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "word"}}},
        ],
        volumeMounts=[{"name": "keys", "mountPath": "/keys"}],
    )
    return pod("user", main, volumes=[{"name": "keys", "secret": {"secretName": "keys"}}])


@pytest.mark.needs("cgroups")
@pytest.mark.timeout(240)
def test_state_of_actors_holds_no_planted_secret() -> None:
    def prepare(agent: Any) -> None:
        directory = agent.dir / "objects"
        directory.mkdir()
        (directory / "keys.json").write_text(json.dumps(SECRET))
        agent.flags += ["--objects-dir", str(directory)]
        agent.flags += [f"--manifest-url=http://me:{PLANTED}@127.0.0.1:1/pods?token={PLANTED}"]
        agent.flags += [f"--manifest-url-header=X-Of:{PLANTED}"]

    with embedded_agent(prepare=prepare) as agent:
        agent.write("user", user())
        wait_for(lambda: is_ready(agent.pod("user")), 60, f"the pod is ready; log: {agent.log}")
        with Client(agent.run_dir) as client:
            for name, root in ROOTS.items():
                shown = [json.dumps(one) for one in everything(client, name, root)]
                assert shown
                assert [text[:300] for text in shown if PLANTED in text] == [], name


def everything(client: Client, actor: str, root: str) -> Iterator[Any]:
    """The state from a root on: first the root, then each part that an answer leaves out."""
    paths, seen = [root], 0
    while paths and seen < MOST_PATHS:
        path, seen = paths.pop(0), seen + 1
        try:
            found = client.ask(actor, Inspect(path=path, depth=5)).value
        except Refused:
            continue  # it is gone since, or its key has brackets
        yield found
        paths += [part for part in left_out(found, path) if part.count(".") + part.count("[") < MOST_DEPTH]


def left_out(value: Any, path: str) -> Iterator[str]:
    """The paths of the parts that an answer names by their type and size only."""
    if isinstance(value, str) and value.startswith("<") and value.endswith((" fields>", " items>")):
        yield path
    elif isinstance(value, dict | list):
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in named:
            yield from left_out(one, f"{path}[{key}]")
