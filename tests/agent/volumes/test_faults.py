"""Secrets must not show anywhere on a whole agent, and what is left of volumes when something breaks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
import yaml

from proto.agent import recording
from tests.agent.agent import Agent, container, pod
from tests.agent.api.canary import holding, tap
from tests.agent.changing import files
from tests.agent.faults import Eye, ready
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

CANARY = "c4n4ry-of-the-secret"
HOLDERS = ("volume", "objects", "pod_workers", "image_pull")
"""Actors that are told a Secret's content."""


@pytest.fixture(scope="module")
def eye(containerd: ContainerdInstance) -> Iterator[Eye]:
    with closing(Agent(containerd)) as agent:
        directory = agent.dir / "objects"
        directory.mkdir()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": CANARY}}
        (directory / "s.yaml").write_text(yaml.safe_dump(secret))
        agent.start("--objects-dir", str(directory))
        eye = Eye(agent)
        with closing(eye.client):
            yield eye


def test_a_secret_shows_in_no_log_tap_dump_or_death_record(eye: Eye) -> None:
    agent = eye.agent
    volumes = [
        {"name": "s", "secret": {"secretName": "s", "items": [{"key": "k", "path": "k"}]}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}]}},
    ]
    mounts = [{"name": "s", "mountPath": "/s"}, {"name": "p", "mountPath": "/p", "subPath": "k"}]
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    main = container("c", "grep -q c4n4ry /s/k && grep -q c4n4ry /p && sleep 1000", volumeMounts=mounts, env=env)
    taps = []
    for name in HOLDERS:
        agent.command("verbosity", name, "10")
        taps.append(tap(agent, name))
    agent.write("canary", pod("canary", main, volumes=volumes))
    wait_for(lambda: ready(eye, "canary"), 60, "the pod with the Secret is ready")
    said = ""
    for name in HOLDERS:
        said += agent.command("describe", name).stdout
    agent.kill_actors(*HOLDERS, number=signal.SIGABRT)
    wait_for(eye.all_ready, 30, "every actor is back")
    wait_for(lambda: ready(eye, "canary"), 30, "the pod is ready")
    for one in taps:
        one.terminate()
        said += one.communicate()[0]
    assert "MountPod" in said
    assert CANARY not in said
    assert {"volume", "pod_workers"} <= {path.name.rpartition("-")[0] for path in recording.files(str(agent.run_dir))}
    for top in (agent.run_dir, agent.root_dir / "nodevisor", agent.log):
        assert holding(files(top), CANARY.encode()) == []
