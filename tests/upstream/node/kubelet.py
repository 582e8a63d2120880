"""The program `kubelet` of the suite: `python -m tests.upstream.node.kubelet FLAGS`, with the flags of a kubelet 1.20.

It runs the agent until SIGTERM, or until the Node names another ConfigMap with a configuration. Then it stores that and
ends, as a kubelet with dynamic configuration did, and the suite starts it again.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.upstream.node import translation

PID_FILE = Path("/run/kubelet.pid")
"""Of this program, for `systemctl`."""
RUNTIME_CGROUP = "/containerd"
OWN_FLAGS = {"tune-kernel": "false", "fail-swap-on": "false", "runtime-cgroups": RUNTIME_CGROUP}
"""The kernel's settings are those of the machine around."""
_STORED = Path("dynamic-config.json")
_LOOK_S, _ANSWER_S, _END_S = 1.0, 5.0, 30.0


class Api:
    """The suite's API server, by the kubeconfig that the suite wrote."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        self._server = content["clusters"][0]["cluster"]["server"]
        self._token = content["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    def get(self, path: str) -> dict[str, Any]:
        """An object; empty when the server does not give it."""
        request = urllib.request.Request(self._server + path, headers={"Authorization": f"Bearer {self._token}"})
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S, context=self._tls) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError):
            return {}


def main() -> int:
    """The exit code of the agent; 0 after a change of the configuration."""
    given = translation.flags(sys.argv[1:])
    api, node = Api(Path(given["kubeconfig"])), given["hostname-override"]
    stored = json.loads(_STORED.read_text()) if _STORED.exists() else {"source": None}
    older = yaml.safe_load(stored.get("content") or Path(given["config"]).read_text())
    Path("agent-config.yaml").write_text(yaml.safe_dump(translation.config(older, {"podLogsDir": "/var/log/pods"})))
    given |= OWN_FLAGS | {"config": "agent-config.yaml"}
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    command = [
        sys.executable,
        "-P",
        "-m",
        "supervisor",
        "start",
        *(f"--{name}={value}" for name, value in given.items()),
    ]
    agent = subprocess.Popen(command)
    PID_FILE.write_text(str(os.getpid()))
    source = stored["source"]
    while agent.poll() is None and not ended.wait(_LOOK_S):
        seen = api.get(f"/api/v1/nodes/{node}").get("spec", {}).get("configSource", {}).get("configMap")
        if not seen or seen == source or not (content := _content(api, seen)):
            continue
        source = seen
        _STORED.write_text(json.dumps({"source": source, "content": content}))
        in_force = api.get(f"/api/v1/nodes/{node}/proxy/configz").get("kubeletconfig", {})
        if not translation.are_in_force(yaml.safe_load(content), in_force):
            break
    if agent.poll() is None:
        agent.terminate()
    return agent.wait(_END_S)


def _content(api: Api, source: dict[str, str]) -> str:
    found = api.get(f"/api/v1/namespaces/{source['namespace']}/configmaps/{source['name']}")
    return str(found.get("data", {}).get(source["kubeletConfigKey"], ""))


if __name__ == "__main__":
    sys.exit(main())
