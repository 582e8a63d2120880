"""The embedded runtime in a process without an agent: `python -m tests.runtime.serve SETTINGS.json`."""

import signal
import sys
import threading
from pathlib import Path

import msgspec

from actors.runtime.assembly import build
from actors.runtime.service.server import Server
from proto.agent.settings import Settings
from proto.common import logs
from proto.node.runtime import socket_path


def main() -> None:
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)
    logs.setup("runtime", 4, "text")
    runtime = build(settings)
    server = Server(socket_path(settings.run_dir), {"RuntimeService": runtime.service, "ImageService": runtime.images})
    runtime.images.import_dropped()
    server.start()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    print("serving", flush=True)
    stopping.wait()
    server.stop()
    runtime.stop()


if __name__ == "__main__":
    main()
