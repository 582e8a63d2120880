"""A fake `supervisor start`, in which each manifest is a pod that gets ready 0.3 s after it was first listed.

`python -m tests.cli.run.directory_agent FLAGS`. A pod ends 0.3 s after its file is removed. Names of manifests change
that. `stay` never ends, `die` ends the agent with exit code 3, `complain` logs a warning too. `stuck` has no image
until there is a file stuck.pulled beside the run directory, and `slow` is created until there is slow.pulled. At
SIGTERM the agent logs the pods that it still has.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from pathlib import Path

from proto.pods.events import Events
from proto.pods.pod_workers import PodWorkerStates
from proto.pods.status import Pods
from proto.v1 import Pod, from_dict
from proto.wire.message import Message
from tests.cli.fake_agent import FakeAgent

STEP_S = 0.3


class Directory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.removed: dict[str, float] = {}
        """When the file of each was seen to be gone; `inf` while it is there."""
        self.told: dict[str, float] = {}

    def look(self) -> None:
        present = {file.stem for file in self.path.iterdir() if file.is_file()}
        if "complain" in present - self.removed.keys():
            print(
                "W1120 10:00:00.000000    1234 files.py:1] config: cannot use complain.yaml: line 1",
                file=sys.stderr,
                flush=True,
            )
        gone = {name: min(at, time.monotonic()) for name, at in self.removed.items() if name not in present}
        self.removed = gone | dict.fromkeys(present, math.inf)

    def names(self) -> list[str]:
        now = time.monotonic()
        return [name for name, at in self.removed.items() if name == "stay" or now - at < STEP_S]

    def pods(self, _: Message) -> Pods:
        return Pods(pods=tuple(self._pod(name) for name in sorted(self.names())))

    def workers(self, _: Message) -> PodWorkerStates:
        return PodWorkerStates(pods=(), sources_ready=True)

    def _pod(self, name: str) -> Pod:
        ready = time.monotonic() - self.told.setdefault(name, time.monotonic()) > STEP_S
        waits = {"reason": "ContainerCreating"}
        if name in ("stuck", "slow") and not (self.path.parent / f"{name}.pulled").exists():
            ready = False
            if name == "stuck":
                waits = {"reason": "ErrImagePull", "message": "cannot reach registry docker.io"}
        state = {"running": {}} if ready else {"waiting": waits}
        return from_dict(
            Pod,
            {
                "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
                "spec": {"containers": [{"name": "c"}], "terminationGracePeriodSeconds": 0},
                "status": {
                    "phase": "Running" if ready else "Pending",
                    "conditions": [{"type": "Ready", "status": str(ready)}],
                    "containerStatuses": [{"name": "c", "ready": ready, "restartCount": 0, "state": state}],
                },
            },
        )


def no_events(_: Message) -> Events:
    return Events(events=(), revision=0)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--pod-manifest-path", type=Path)
    options, _ = parser.parse_known_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # taken between two looks, in no handler
    directory = Directory(options.pod_manifest_path)
    options.run_dir.mkdir(exist_ok=True)
    print(*sys.argv, file=sys.stderr, flush=True)
    answers = {"status": directory.pods, "pod_workers": directory.workers, "events": no_events}
    with FakeAgent(options.run_dir, answers):
        while signal.sigtimedwait({signal.SIGTERM}, 0.02) is None:
            directory.look()
            if "die" in directory.removed:
                print("E1120 10:00:00.000000 supervisor   out of luck", file=sys.stderr)
                return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
