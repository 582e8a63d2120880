"""Finds the node's container runtime: the first endpoint that answers to CRI v1.

`python -m actors._cri.discover [--timeout SECONDS] [ENDPOINT...]` is for the supervisor, which does not load gRPC.
It prints `Runtime` as one JSON object, or {"error"} with exit code 1.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from actors._cri.client import Cri
from actors._cri.endpoint import USUAL_ENDPOINTS, BadEndpoint, normalized
from actors._cri.errors import CriError, Unimplemented

HOW_TO_GET_ONE = (
    "Install one (Debian: apt install containerd runc containernetworking-plugins, then a network configuration in "
    "/etc/cni/net.d), start it, or name its socket with --container-runtime-endpoint"
)


@dataclass(frozen=True)
class Runtime:
    """A runtime that answers."""

    endpoint: str
    """unix:///PATH"""
    runtime_name: str
    """The runtime's own name: containerd, cri-o, ..."""
    runtime_version: str
    api_version: str
    """CRI version: v1."""
    cgroup_driver: str | None = ""
    """cgroupfs or systemd; empty: the runtime has no name for it, as containerd 1.x; None: it has not answered."""


class NoRuntime(Exception):
    """No endpoint answers to CRI v1. The message lists the endpoints, why each failed, and what to do."""


def discover(timeout: float = 2.0, endpoints: Sequence[str] = USUAL_ENDPOINTS) -> Runtime:
    """Find the first of `endpoints` that answers to CRI v1 within `timeout` seconds each.

    Raises NoRuntime when none does and BadEndpoint for an invalid endpoint. Opens gRPC channels: not before a fork.
    """
    failures = []
    for endpoint in map(normalized, endpoints):
        try:
            return _ask(endpoint, timeout)
        except CriError as error:
            failures.append(f"{endpoint}: {_reason(error)}")
    raise NoRuntime(f"cannot find a container runtime: {'; '.join(failures)}. {HOW_TO_GET_ONE}")


def _ask(endpoint: str, timeout: float) -> Runtime:
    # Most of the usual sockets are missing on a node, and starting gRPC for each takes long.
    try:
        there = Path(endpoint.removeprefix("unix://")).exists()
    except PermissionError as error:
        raise CriError.of("Unavailable", "it belongs to another user", "Version") from error
    if not there:
        raise CriError.of("Unavailable", "no such socket", "Version")
    cri = Cri(endpoint)
    try:
        answer = cri.version(timeout=timeout).result()
        driver = _driver(cri, timeout)
    finally:
        cri.close()
    return Runtime(endpoint, answer.runtime_name, answer.runtime_version, answer.runtime_api_version, driver)


def _driver(cri: Cri, timeout: float) -> str | None:
    try:
        return cri.cgroup_driver(timeout=timeout).result()
    except Unimplemented:
        return ""
    except CriError:
        return None


def _reason(error: CriError) -> str:
    if isinstance(error, Unimplemented):
        return f"speaks no CRI v1 ({error}); upgrade it, or enable its CRI plug-in"
    return str(error) or error.code


def main(arguments: Sequence[str]) -> int:
    """Print the runtime as JSON. Exit code 1 without one."""
    parser = argparse.ArgumentParser(prog="python -m actors._cri.discover", description="Find the container runtime.")
    parser.add_argument("--timeout", type=float, default=2.0, help="seconds for each endpoint to answer (default: 2)")
    parser.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="endpoints to try in place of the usual ones")
    options = parser.parse_args(arguments)
    try:
        found = discover(options.timeout, options.endpoints or USUAL_ENDPOINTS)
    except (NoRuntime, BadEndpoint) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
