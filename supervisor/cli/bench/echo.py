"""The floor of an ask: `python echo.py SOCKET` answers each message with its content.

It does what any program on pyzmq and msgpack does, and nothing else. It ends when its standard input ends, and so never
outlives the command that started it.
"""

from __future__ import annotations

import sys

import msgpack
import zmq


def serve(path: str) -> None:
    """Answer on a ROUTER until standard input ends."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(f"ipc://{path}")
    poller = zmq.Poller()
    poller.register(router, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if router not in ready:
            break
        identity, body = router.recv_multipart()
        router.send_multipart([identity, msgpack.packb(msgpack.unpackb(body))])
    context.destroy(linger=0)


if __name__ == "__main__":
    serve(sys.argv[1])
