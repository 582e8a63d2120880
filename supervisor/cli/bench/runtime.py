"""Measures how long the agent waits for the container runtime's answers, beside the same calls without the agent.

Every call here only reads. The agent's own lists are counted since its actors' starts, in the kubelet's metrics.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from proto.agent.actor import GetMetrics
from proto.pods.pleg import CallRuntime
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.bench.figures import Figure, of_mean, of_times
from supervisor.cli.errors import CommandError
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from actors._cri.client import Cri

CALLS = 20
"""Of each kind in a round."""
ANSWER_S = 10.0
OPERATIONS = "kubelet_runtime_operations_duration_seconds"
RELISTS = "kubelet_pleg_relist_duration_seconds"
Say = Callable[[str], None]


class Seconds(NamedTuple):
    """Times of calls without the agent."""

    version: list[float]
    sandboxes: list[float]
    containers: list[float]
    both: list[float]
    """Both lists at a time, as a relist does."""


class Counted(NamedTuple):
    """A histogram's number of calls, and their sum."""

    calls: float = 0.0
    sum_s: float = 0.0


@contextlib.contextmanager
def open_runtime(endpoint: str, image_endpoint: str = "", request_seconds: float = 30.0) -> Iterator[Cri]:
    """A client of a runtime that answers. Raises CommandError when it does not."""
    from actors._cri.client import Cri  # noqa: PLC0415 - gRPC
    from actors._cri.errors import CriError  # noqa: PLC0415

    cri = Cri(endpoint, image_endpoint or None, request_seconds=request_seconds)
    try:
        cri.version().result()
        yield cri
    except CriError as error:
        raise CommandError(f"cannot use the container runtime at {endpoint}: {error.rpc}: {error}") from error
    finally:
        cri.close()


def name_of(cri: Cri) -> str:
    """`containerd 1.7.2`."""
    found = cri.version().result()
    return f"{found.runtime_name} {found.runtime_version}"


def measure(client: Client, cri: Cri, actors: Sequence[str], rounds: int, say: Say) -> tuple[list[Figure], list[str]]:
    """Figures of the runtime's calls, and a note for each that the agent does not give."""
    bare = Seconds([], [], [], [])
    through: list[float] = []
    notes: list[str] = []
    for number in range(1, rounds + 1):
        say(f"calls of the runtime, round {number} of {rounds}")
        _call(cri, bare)
        if not notes:
            try:
                through += client.round_trips("pleg", _version(), CALLS, ANSWER_S)
            except (ActorError, ProtocolError) as error:
                notes.append(f"runtime Version through pleg: {error}")
    first = of_times("runtime Version, through pleg", "ms", through, bare.version, 1000)
    return [first, *_means(client, actors, bare)], notes


def _version() -> CallRuntime:
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    return CallRuntime(rpc="Version", request=pb.VersionRequest(version="v1").SerializeToString(), timeout_s=ANSWER_S)


def _call(cri: Cri, took: Seconds) -> None:
    for _ in range(CALLS):
        took.version.append(_timed(lambda: cri.version().result()))
        took.sandboxes.append(_timed(lambda: cri.list_pod_sandbox().result()))
        took.containers.append(_timed(lambda: cri.list_containers().result()))
        took.both.append(_timed(lambda: [call.result() for call in (cri.list_pod_sandbox(), cri.list_containers())]))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _means(client: Client, actors: Sequence[str], bare: Seconds) -> list[Figure]:
    """The lists as the agent has measured them: of every actor, filtered ones too; and pleg's relists of everything."""
    counted = {"list_podsandbox": Counted(), "list_containers": Counted()}
    relists = Counted()
    for name in actors:
        with contextlib.suppress(ActorError, ProtocolError):
            samples = client.ask(name, GetMetrics()).samples
            relists = _sum(relists, samples.get(RELISTS, ()), ())
            for kind, so_far in counted.items():
                counted[kind] = _sum(so_far, samples.get(OPERATIONS, ()), (kind,))
    return [
        of_mean("ListPodSandbox", *counted["list_podsandbox"], bare.sandboxes),
        of_mean("ListContainers", *counted["list_containers"], bare.containers),
        of_mean("relist", *relists, bare.both),
    ]


def _sum(
    so_far: Counted, samples: Sequence[tuple[tuple[str, ...], tuple[float, ...]]], labels: tuple[str, ...]
) -> Counted:
    """Add a histogram's sample with these label values: counts by bucket, then the sum (actors._metrics.registry)."""
    numbers = next((numbers for found, numbers in samples if found == labels), (0.0,))
    return Counted(so_far.calls + sum(numbers[:-1]), so_far.sum_s + numbers[-1])


def daemon_pid(endpoint: str) -> int:
    """The process that listens at a unix:// endpoint (SO_PEERCRED of unix(7)); 0 when it is unknown."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(1.0)
        peer.connect(os.fsencode(endpoint.removeprefix("unix://")))
        return int(struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    return 0
