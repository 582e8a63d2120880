"""A whole agent with static pods from a URL: the server goes away, the agent restarts, the URL changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.agent.agent import Agent, pod
from tests.agent.embedded import answered, embedded_agent
from tests.config.lying_server import LyingServer, whole
from tests.harness import wait_for

AWAY = whole(b"", "503 Away")
SECRET = "s3cret-value"

pytestmark = pytest.mark.timeout(300)


def answer(*pods: object) -> bytes:
    return whole(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": list(pods)}).encode())


def configure(directory: Path, url: str, secret: str = SECRET) -> None:
    drop_in = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodURL": url,
        "staticPodURLHeader": {"X-Key": [secret]},
        "httpCheckFrequency": "1s",
    }
    (directory / "new").write_text(yaml.safe_dump(drop_in))
    (directory / "new").rename(directory / "10-url.conf")


def incarnations(agent: Agent) -> dict[str, int]:
    return {name: row["incarnation"] for name, row in agent.rows().items() if name != "supervisor"}


def test_pods_of_a_url_outlive_its_server_and_the_agent(tmp_path: Path) -> None:
    with LyingServer(answer(pod("web"))) as server:
        configure(tmp_path, server.url)
        with embedded_agent("--config-dir", str(tmp_path)) as agent:
            wait_for(agent.running, 60, f"the pod runs; log: {agent.log}")
            (first,) = agent.running()
            assert f"X-Key: {SECRET}" in server.heads[0]
            server.answer = AWAY
            agent.kill_actors("config")
            agent.stop()
            agent.start()
            agent.write("file", pod("file"))
            wait_for(lambda: len(answered(agent.running) or ()) == 2, 60, "a pod of a manifest starts meanwhile")
            wait_for(lambda: "web" in agent.pods() and first in agent.running(), 30, "the first container runs on")

            before = incarnations(agent)
            configure(tmp_path, f"{server.url}-new", "other")
            wait_for(lambda: incarnations(agent).get("config") == before["config"] + 1, 30, "config restarts")
            wait_for(lambda: any("X-Key: other" in head for head in server.heads), 30, "the new header is sent")
            assert incarnations(agent) == before | {"config": before["config"] + 1}
            assert first in agent.running(), "not seen yet, so nothing is ended"

            assert (agent.run_dir / "settings.json").stat().st_mode & 0o777 == 0o600
            for command in (["config", "show"], ["describe", "config"], ["config", "history"], ["logs"]):
                shown = agent.command(*command, check=False)
                assert SECRET not in shown.stdout + shown.stderr, command
            assert SECRET not in agent.log.read_text()
            in_force = json.loads((agent.run_dir / "configuration.json").read_text())
            assert in_force.pop("secrets")["staticPodURLHeader"] == {"X-Key": ["other"]}, "for /configz of port 10250"
            assert not any(secret in json.dumps(in_force) for secret in (SECRET, '"other"'))

            server.answer = answer()
            wait_for(lambda: first not in agent.running(), 30, "the new URL names no pods")
