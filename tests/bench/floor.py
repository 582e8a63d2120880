"""The floor: the CRI calls that N pods need, some at a time, and nothing else.

`python -m tests.bench.floor --pods 48 --widths 8,16,32` compares how many at a time the runtime likes best.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from tests.bench.harness import pods
from tests.bench.harness.agent import medians
from tests.bench.reporting.table import print_table
from tests.containerd import ContainerdInstance, missing_requirements
from tests.containerd.images import BUSYBOX
from tests.containerd.pods import sandbox_config

WIDTH = 16
"""Pods at a time, for the figures that the agent is compared with."""
ATTEMPTS = 3
STARTS = 10


@dataclass(frozen=True)
class Floor:
    """Seconds for all pods together, and the client's own CPU time."""

    pods: int
    width: int
    start_s: float
    stop_s: float
    cpu_s: float


def measure(cri: Cri, count: int, width: int, logs: Path, with_all_running: Callable[[], None] = lambda: None) -> Floor:
    """Start `count` pods of one container, `width` at a time, then end and remove them in the same way.

    `with_all_running` is called in between and not counted.
    """
    configs = [_config(number, logs) for number in range(count)]
    before = _cpu_s()
    with ThreadPoolExecutor(width) as threads:
        began = time.monotonic()
        started = list(threads.map(lambda config: _start(cri, config), configs))
        up_s = time.monotonic() - began
        with_all_running()
        middle = time.monotonic()
        list(threads.map(lambda ids: _stop(cri, *ids), started))
        ended = time.monotonic()
    return Floor(count, width, up_s, ended - middle, _cpu_s() - before)


def measure_often(cri: Cri, count: int, logs: Path, times: int) -> Floor:
    """The medians of so many measurements, one after the other."""
    runs = [measure(cri, count, WIDTH, logs / str(number)) for number in range(times)]
    return replace(runs[0], **medians(runs, "start_s", "stop_s", "cpu_s"))


def _config(number: int, logs: Path) -> pb.PodSandboxConfig:
    config = sandbox_config(f"floor-{number}")
    directory = logs / f"default_floor-{number}_{config.metadata.uid}"
    (directory / "main").mkdir(parents=True)
    config.log_directory = str(directory)
    config.linux.security_context.namespace_options.pid = pb.CONTAINER  # as a kubelet asks for it
    return config


def container_starts_s(cri: Cri, logs: Path, times: int = STARTS) -> list[float]:
    """Seconds to create and start a container in a sandbox, each after the last one was killed."""
    config, found = _config(0, logs), []
    sandbox = cri.run_pod_sandbox(config).result()
    try:
        for attempt in range(times):
            began = time.monotonic()
            container = _start_container(cri, sandbox, config, attempt)
            found.append(time.monotonic() - began)
            cri.stop_container(container, 0).result()
    finally:
        cri.stop_pod_sandbox(sandbox).result()
        cri.remove_pod_sandbox(sandbox).result()
    return found


def _start(cri: Cri, config: pb.PodSandboxConfig) -> tuple[str, str]:
    sandbox = cri.run_pod_sandbox(config).result()
    return sandbox, _start_container(cri, sandbox, config)


def _start_container(cri: Cri, sandbox: str, config: pb.PodSandboxConfig, attempt: int = 0) -> str:
    container = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="main", attempt=attempt),
        image=pb.ImageSpec(image=BUSYBOX),
        command=pods.COMMAND,
        log_path=f"main/{attempt}.log",
        linux=pb.LinuxContainerConfig(),
    )
    container.linux.security_context.namespace_options.pid = pb.CONTAINER
    made = cri.create_container(sandbox, container, config).result()
    cri.start_container(made).result()
    return made


def _stop(cri: Cri, sandbox: str, container: str) -> None:
    # The three are idempotent, and a busy containerd now and then fails one, as when its shim ends under its hands.
    for attempt in range(ATTEMPTS):
        try:
            cri.stop_container(container, pods.GRACE_S).result()
            cri.stop_pod_sandbox(sandbox).result()
            cri.remove_pod_sandbox(sandbox).result()
            return
        except CriError as error:
            if attempt == ATTEMPTS - 1:
                raise
            print(f"bare CRI: {error}; trying again", file=sys.stderr)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def compare_widths(count: int, widths: Sequence[int], rounds: int, say: Callable[[str], None] = print) -> list[Floor]:
    """Measure each width `rounds` times in turn on a containerd of its own."""
    directory = Path(tempfile.mkdtemp(prefix="nvbench-"))
    with ContainerdInstance(directory) as containerd:
        measure(containerd.cri, 2, 2, directory / "logs")  # the first pods of a containerd are slower
        found = []
        for _ in range(rounds):
            for width in widths:
                found.append(measure(containerd.cri, count, width, directory / "logs"))
                say(f"{found[-1]}")
    return found


def main() -> None:
    """Print what each width costs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floor", description="Bare CRI calls by width.")
    parser.add_argument("--pods", type=int, default=48)
    parser.add_argument("--widths", default="8,16,32")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if problem := missing_requirements():
        raise SystemExit(problem)
    found = compare_widths(options.pods, [int(part) for part in options.widths.split(",")], options.rounds)
    print_table(
        ("PODS", "AT A TIME", "START S", "STOP S", "CLIENT CPU S"),
        [(f.pods, f.width, f.start_s, f.stop_s, f.cpu_s) for f in found],
    )


if __name__ == "__main__":
    main()
