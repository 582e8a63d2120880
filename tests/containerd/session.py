"""Runs a command on the machine's container runtime, or on a private containerd where there is none: `make run`.

`python -m tests.containerd.session COMMAND...` adds `--container-runtime-endpoint=ENDPOINT` to the command. The images
of the samples are there when it starts. A private containerd goes when the command ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from actors._cri.client import Cri
from actors._cri.discover import NoRuntime, discover
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from proto.runtime import EMBEDDED
from tests.containerd import leftovers
from tests.containerd.images import busybox, write_archive
from tests.containerd.instance import ContainerdInstance
from tests.containerd.requirements import BUSYBOX_BINARY, missing_requirements
from tests.containerd.samples import CannotProvide, provide

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotRun(Exception):
    """There is no runtime to use and none can be started; the message says why and what to do."""


class Runtime(NamedTuple):
    """What the command runs on."""

    endpoint: str
    environment: dict[str, str]
    """For the command, besides the present one."""
    flags: tuple[str, ...] = ()
    """For the command, besides the endpoint."""


@contextlib.contextmanager
def runtime() -> Iterator[Runtime]:
    """A runtime that is free for us. Raises CannotRun."""
    try:
        found = discover()
        problem = _used_by_others(found.endpoint)
        why = problem
    except NoRuntime as error:
        problem, why = str(error), "nothing answers at the usual sockets"
    if not problem:
        _say(f"Runtime: {found.runtime_name} {found.runtime_version} at {found.endpoint}.")
        yield Runtime(found.endpoint, {})
        return
    if missing_requirements():
        yield from _embedded()
        return
    directory = Path(tempfile.mkdtemp(prefix="nv-"))
    try:
        with ContainerdInstance(directory / "containerd") as containerd:
            _say(f"Runtime: a private containerd in {directory}, for this session ({why}).")
            # What the command leaves when it is made to end at once goes with the containers that use it.
            yield Runtime(containerd.endpoint, {"TMPDIR": str(directory)})
    finally:
        leftovers.unmount_below(directory)
        leftovers.delete_directory(directory)
        _say("Runtime: the private containerd is gone, and all that ran in it.")


def _embedded() -> Iterator[Runtime]:
    """The agent's own runtime, with the samples' image in a directory, or from its registry."""
    if not BUSYBOX_BINARY.exists():
        name = busybox().name
        _say(f"Runtime: the agent's own; {name} is pulled, for there is no {BUSYBOX_BINARY} to build it from.")
        yield Runtime(EMBEDDED, {})
        return
    with tempfile.TemporaryDirectory(prefix="nv-images-") as directory:
        write_archive(Path(directory, "images.tar"), [busybox()])
        _say(f"Runtime: the agent's own; {busybox().name} is built from {BUSYBOX_BINARY}.")
        yield Runtime(EMBEDDED, {}, (f"--images-dir={directory}",))


def _used_by_others(endpoint: str) -> str:
    """Why the runtime is not ours to use: a node agent ends every pod that it was not told of. Empty when it is."""
    cri = Cri(endpoint)
    try:
        ready = pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY))
        count = sum("io.kubernetes.pod.uid" in sandbox.labels for sandbox in cri.list_pod_sandbox(ready).result())
    except CriError as error:
        return f"{endpoint} does not list its pods: {error}"
    finally:
        cri.close()
    return f"{endpoint} runs {count} pod(s) of another node agent, which stay untouched" if count else ""


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command; signals that reach us are for it, once each."""
    # Its own process group: the terminal's Ctrl-C would reach it twice otherwise, which means something else to it.
    process = subprocess.Popen(command, process_group=0, env={**os.environ, **environment})

    def forward(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    for number in _SIGNALS:
        signal.signal(number, forward)
    code = process.wait()
    for number in _SIGNALS:  # what follows takes things away again and is not to be cut short
        signal.signal(number, signal.SIG_IGN)
    return code


def _provide(endpoint: str) -> None:
    cri = Cri(endpoint)
    try:
        _say(provide(cri))
    finally:
        cri.close()


def _say(line: str) -> None:
    print(line, flush=True)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(command: Sequence[str]) -> int:
    """Run it; its exit code, or 1 when it cannot run."""
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGHUP, _terminated)
    try:
        with runtime() as found:
            if found.endpoint != EMBEDDED:
                _provide(found.endpoint)
            return _run([*command, f"--container-runtime-endpoint={found.endpoint}", *found.flags], found.environment)
    except (CannotRun, CannotProvide, CriError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
