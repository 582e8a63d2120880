"""Keeps the last status of each pod for when the agent is gone: `python -m tests.guest.statuses FILE`.

It runs in the guest until the machine goes down. The file is JSON: pod name to status.
"""

import contextlib
import json
import sys
import time
from pathlib import Path

from proto.agent.settings import Settings
from proto.pods.status import ListPods
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.pods.pods import pod_list
from supervisor.cli.views import render
from supervisor.sockets.client import Client

PERIOD_S = 0.2


def main() -> None:
    """Write the statuses until a signal ends it."""
    file = Path(sys.argv[1])
    written = ""
    while True:
        with contextlib.suppress(ActorError, ProtocolError), Client(Path(Settings().run_dir)) as client:
            shown = json.loads(render.json_text(pod_list(client.ask("status", ListPods()).pods)))
            text = json.dumps({item["metadata"]["name"]: item["status"] for item in shown["items"]})
            if text != written and shown["items"]:
                file.with_suffix(".new").write_text(text)
                file.with_suffix(".new").rename(file)
                written = text
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
