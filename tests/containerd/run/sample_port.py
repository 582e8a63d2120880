"""The port of the web sample where pods share this machine's ports: another one where it is taken.

Where pods have addresses of their own, the sample is used as it is.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

PORT = 8080
"""The port in etc/samples/web.yaml."""
PORTS = (PORT, *range(18080, 65536, 1000))
FILE = "web.yaml"


@contextlib.contextmanager
def reserved(ports: Sequence[int] = PORTS) -> Iterator[int]:
    """Reserve the first of these TCP ports that is free. Another session does not choose it until the end.

    An abstract socket of that number is the reservation: it is seen where the port is, and goes with this process.
    Raises OSError when all are taken.
    """
    for port in ports:
        with socket.socket(socket.AF_UNIX) as mark:
            if _is_free(mark, port):
                yield port
                return
    raise OSError(f"cannot find a port for the samples: {ports[0]} to {ports[-1]} are all taken")


def _is_free(mark: socket.socket, port: int) -> bool:
    """True when the port is free; then `mark` reserves it."""
    try:
        mark.bind(f"\0nodevisor-sample-port-{port}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the sample's server does
            probe.bind(("", port))
            probe.listen()
    except OSError:
        return False
    return True


def with_port(samples: Path, copy: Path, port: int) -> Path:
    """The samples with this port: the same directory where it is theirs, else a copy."""
    if port == PORT:
        return samples
    shutil.copytree(samples, copy)
    web = copy / FILE
    web.write_text(web.read_text().replace(str(PORT), str(port)))
    return copy
