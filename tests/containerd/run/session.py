"""Runs the samples on the machine's container runtime, on a private containerd, or on the agent's own: `make run`.

`python -m tests.run_samples COMMAND...` adds to the command the samples, their objects, and
`--container-runtime-endpoint=ENDPOINT`. The images of the samples are there when it starts. What was made for it goes
when it ends.
"""

import contextlib
import errno
import os
import shutil
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
from actors.runtime.assembly import isolation_here
from proto.cri import api_pb2 as pb
from proto.node.runtime import EMBEDDED, TEMPORARY
from tests.containerd.host import leftovers
from tests.containerd.images import pause, python, write_archive
from tests.containerd.instance import ContainerdInstance
from tests.containerd.machine import CannotBuild
from tests.containerd.requirements import missing_for_samples
from tests.containerd.run.sample_port import PORT, reserved, with_port
from tests.containerd.run.samples import CannotProvide, making, provided, sample_images

SAMPLES = Path("etc/samples")
NEEDED_BYTES = 450 << 20
"""For the images, their copies for containers, and what the runtime leaves free (actors/runtime/images/limits.py)."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Runtime(NamedTuple):
    """A container runtime for the command."""

    endpoint: str
    environment: dict[str, str]
    """For the command, besides the present one."""
    flags: tuple[str, ...] = ()
    """For the command, besides the endpoint."""
    samples: Path = SAMPLES


@contextlib.contextmanager
def runtime() -> Iterator[Runtime]:
    """A runtime that is free for us and has the samples' images: the machine's, a private containerd, or our own.

    Each that cannot be used is passed over with a line saying why. Raises OSError: no room or no right to write.
    """
    with contextlib.ExitStack() as stack:
        yield _existing(stack) or _private(stack) or _embedded(stack)


def _existing(stack: contextlib.ExitStack) -> Runtime | None:
    """The machine's runtime."""
    try:
        found = discover()
    except NoRuntime:
        return None
    if problem := _used_by_others(found.endpoint):
        _say(f"Runtime: not {found.runtime_name} at {found.endpoint}: it {problem}.")
        return None
    _say(f"Runtime: {found.runtime_name} {found.runtime_version} at {found.endpoint}.")
    cri = Cri(found.endpoint)
    stack.callback(cri.close)
    try:
        stack.enter_context(provided(cri, _say))
    except (CannotProvide, CriError, OSError) as error:
        _say(f"Runtime: not {found.runtime_name} after all: {error}.")
        return None
    return Runtime(found.endpoint, {})


def _private(stack: contextlib.ExitStack) -> Runtime | None:
    """A containerd for this session, for root where its programs are."""
    if missing_for_samples():
        return None
    directory = Path(tempfile.mkdtemp(prefix="nv-"))
    _say(f"Runtime: starting a private containerd in {directory}, for this session ...")
    _say(making([*sample_images(), pause()]))
    instance = ContainerdInstance(directory / "containerd", [python()])
    try:
        instance.__enter__()
    except (RuntimeError, CannotBuild, CriError, OSError, subprocess.SubprocessError) as error:
        _clear(directory)
        _say(f"Runtime: not containerd after all: {_last_line(error)}.")
        return None
    except BaseException:
        _clear(directory)
        raise
    stack.callback(_say, "Runtime: the private containerd is gone, and all that ran in it.")
    stack.callback(_clear, directory)
    stack.push(instance)
    # Files of a command that was made to end at once are removed together with the containers that use them.
    return Runtime(instance.endpoint, {"TMPDIR": str(directory)})


def _clear(directory: Path) -> None:
    leftovers.unmount_below(directory)
    leftovers.delete_directory(directory)


def _embedded(stack: contextlib.ExitStack) -> Runtime:
    """The agent's own runtime, with the samples' images in a directory."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nv-session-")))
    _say("Runtime: the agent's own.")
    if (free := shutil.disk_usage(directory).free) < NEEDED_BYTES:
        raise OSError(
            errno.ENOSPC, f"{free >> 20} MB are free in {directory.parent}, {NEEDED_BYTES >> 20} MB are needed"
        )
    environment, images, samples = {TEMPORARY: "1"}, directory / "images", SAMPLES
    images.mkdir()
    if isolation_here().level == 3:
        port = stack.enter_context(reserved())
        samples = with_port(SAMPLES, directory / "samples", port)
        if samples != SAMPLES:
            _say(f"Samples: pods share this machine's ports here, and {PORT} is taken: web listens on {port}.")
    try:
        _say(making(sample_images()))
        write_archive(images / "images.tar", sample_images())
    except CannotBuild as error:
        _say(f"Images: pulled from their registries, for they cannot be made here: {error}.")
        return Runtime(EMBEDDED, environment, samples=samples)
    return Runtime(EMBEDDED, environment, (f"--images-dir={images}",), samples)


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def _used_by_others(endpoint: str) -> str:
    """Say why the runtime cannot be used; empty when it can. A node agent ends every pod that it was not told of."""
    cri = Cri(endpoint)
    try:
        ready = pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY))
        count = sum("io.kubernetes.pod.uid" in sandbox.labels for sandbox in cri.list_pod_sandbox(ready).result())
    except CriError as error:
        return f"does not list its pods ({error})"
    finally:
        cri.close()
    return f"runs {count} pod(s) of another node agent, which stay untouched" if count else ""


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


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"make room below {tempfile.gettempdir()}, or name another directory: TMPDIR=DIR make run"
    return "name a directory that you may write to: TMPDIR=DIR make run"


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
            given = [str(found.samples), f"--objects-dir={found.samples / 'objects'}"]
            endpoint = f"--container-runtime-endpoint={found.endpoint}"
            return _run([*command, *given, endpoint, *found.flags], found.environment)
    except OSError as error:
        print(f"cannot run: {error.strerror or error}; {_remedy(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
