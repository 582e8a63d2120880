"""Keeps the pods and their last statuses for tests outside: `python -m tests.guest.service.statuses FILE`.

It runs in the guest, also after the agent has ended. The file is the JSON of `supervisor pods -o json`; that command
would take seconds under emulation, each time.
"""

import contextlib
import sys
import time
from pathlib import Path

from proto.agent.settings import Settings
from proto.pods.status import ListPods
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.pods.pods import pod_list
from supervisor.cli.views import render
from supervisor.sockets.client import Client

PERIOD_S = 0.3


def main() -> None:
    """Write the pods until a signal ends it."""
    file = Path(sys.argv[1])
    written = ""
    while True:
        with contextlib.suppress(ActorError, ProtocolError), Client(Path(Settings().run_dir)) as client:
            text = render.json_text(pod_list(client.ask("status", ListPods()).pods))
            if text != written or not file.exists():
                file.with_suffix(".new").write_text(text)
                file.with_suffix(".new").rename(file)
                written = text
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
