"""A real supervisor with two real actor processes and fake managers.

`python -m tests.cli.actors.real_agent DIR [STOPPED_S]`. The `status` here holds one running pod; `probe` does nothing.
For tests of the command line that need the processes, not what the managers do.
"""

from __future__ import annotations

import sys
import types
from typing import NoReturn

from msgspec.structs import replace

from actors._base import Actor, handles
from actors._base.process import child as base
from proto.agent.settings import Settings
from proto.pods.status import ListPods, Pods
from proto.v1 import Pod, from_dict
from supervisor.core import daemon
from supervisor.host import settings_file
from supervisor.supervision import specs

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-node", "namespace": "default", "uid": "u1"},
    "spec": {"nodeName": "node", "containers": [{"name": "c"}]},
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "startTime": "2026-11-20T13:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": "2026-11-20T13:00:00Z"}}}
        ],
    },
}


class Status(Actor):
    name = "status"

    @handles(ListPods)
    def on_list(self, _: ListPods) -> Pods:
        return Pods(pods=(from_dict(Pod, POD),))

    def describe(self) -> dict[str, object]:
        return {"pods": 1}


class Probe(Actor):
    name = "probe"


def child(name: str, incarnation: int, settings: Settings, supervisor_pidfd: int) -> NoReturn:
    module = types.ModuleType(f"actors.{name}.actor")
    module.ACTOR = Status if name == "status" else Probe  # type: ignore[attr-defined]
    sys.modules |= {f"actors.{name}": types.ModuleType(f"actors.{name}"), f"actors.{name}.actor": module}
    base.main(name, incarnation, settings, supervisor_pidfd)


def main(directory: str, stopped_deadline_s: str = "0.5") -> int:
    settings = Settings(
        run_dir=f"{directory}/run", root_dir=f"{directory}/root", pod_logs_dir=f"{directory}/logs", node_name="node"
    )
    chosen = specs.select(specs.builtin(), ["status", "probe"])
    return daemon.run(
        settings,
        [replace(spec, stopped_deadline_s=float(stopped_deadline_s)) for spec in chosen],
        on_event=lambda _: settings_file.write(settings),
        child_entry="tests.cli.actors.real_agent:child",
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
