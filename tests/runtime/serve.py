"""The embedded runtime in a process without an agent: `python -m tests.runtime.serve SETTINGS.json`."""

import os
import signal
import sys
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
    runtime.clear_leftovers()
    runtime.images.import_dropped()
    server.start()
    heard, told = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(told, b"."))  # no lock, which the wait may hold
    print("serving", flush=True)
    os.read(heard, 1)
    server.stop()
    runtime.stop()


if __name__ == "__main__":
    main()
