"""The helper process: carries out batches of steps on volumes, so that the actor never touches one.

The actor forks it, shares its memory pages with it, and kills it when a call does not return. The helper marks its
progress in a shared page and ends with the actor, so any step may be left half done.
"""

from __future__ import annotations

import faulthandler
import gc
import mmap
import os
import signal
import socket
import struct
import time
import traceback
from typing import NoReturn

import setproctitle

from actors._host.files.disk_use import lower_cpu_priority
from actors.volume.csi import disk, staged, unreadable
from actors.volume.helper import channel
from actors.volume.ops import inside, removal, setup, subpath, usage
from actors.volume.steps import csi, volumes
from actors.volume.steps.codec import Outcome, Outcomes, Step, Unexpected, decode_steps, encode, step_name
from actors.volume.steps.errors import ChildStuck, VolumeError, go_text, shown
from proto.common.safe_text import indented

PAGE_BYTES = 4096
_MARK = struct.Struct("<QIHQQ")
_NAME_BYTES = 256
_PR_SET_PDEATHSIG = 1


class Progress:
    """A helper's last mark of progress: written by the helper, read by the actor to detect a hang."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, PAGE_BYTES)
        self._owning_since = 0

    def at(self, index: int, name: str, files: int = 0) -> None:
        """Mark that step `index` begins, or continues with the volume `name`, `files` of which have their new owner."""
        text, now = name.encode()[:_NAME_BYTES], time.monotonic_ns()
        if files <= 1:
            self._owning_since = now
        self._page[_MARK.size : _MARK.size + len(text)] = text
        _MARK.pack_into(self._page, 0, now, index, len(text), files, self._owning_since)

    def read(self) -> tuple[float, int, str]:
        """The last mark: (monotonic seconds, step, volume)."""
        when, index, length, _, _ = _MARK.unpack_from(self._page)
        return when / 1e9, index, self._page[_MARK.size : _MARK.size + length].decode(errors="replace")

    def owned(self) -> tuple[int, int, float]:
        """A change of ownership under way: (step, files so far, monotonic seconds of its start); no files for none."""
        _, index, _, files, since = _MARK.unpack_from(self._page)
        return index, files, since / 1e9

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()


def main(sock: socket.socket, progress: Progress, root: str, actor_pid: int, *, niced: bool) -> NoReturn:
    """Run the helper right after the fork; never returns. `niced`: with the lowest CPU and I/O priority."""
    code = 1
    try:
        _detach(sock, actor_pid)
        if niced:
            lower_cpu_priority()
        serve(sock, progress, root)
        code = 0
    except BaseException:
        os.write(2, indented(traceback.format_exc()).encode(errors="backslashreplace"))
    finally:
        os._exit(code)


def _detach(sock: socket.socket, actor_pid: int) -> None:
    gc.disable()  # a collection would copy every page that is shared with the actor
    faulthandler.unregister(signal.SIGUSR2)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # The actor's sockets too: peers would take the actor for alive while this process holds them.
    os.closerange(3, sock.fileno())
    os.closerange(sock.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    setproctitle.setproctitle("supervisor: volume helper")
    os.umask(0)
    _set_death_signal(actor_pid)


def _set_death_signal(actor_pid: int) -> None:
    # The next incarnation of a killed actor must not find this helper still at work.
    import ctypes  # noqa: PLC0415 - memory that other processes need not have

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != actor_pid:
        os._exit(0)


def serve(sock: socket.socket, progress: Progress, root: str) -> None:
    """Carry out batches until the actor closes the socket."""
    while True:
        packet = channel.receive(sock, wait=True)
        if packet is None:
            return
        try:
            answer: Outcomes | Unexpected = Outcomes(
                tuple(_outcome(root, step, index, progress) for index, step in enumerate(decode_steps(packet)))
            )
        except Exception:
            answer = Unexpected(shown(traceback.format_exc()))
        try:
            channel.send(sock, encode(answer))
        except BrokenPipeError:
            return  # the actor was killed meanwhile


def _outcome(root: str, step: Step, index: int, progress: Progress) -> Outcome:
    progress.at(index, step_name(step))
    try:
        return carry_out(root, step, lambda name, files=0: progress.at(index, name, files))
    except VolumeError as error:
        return Outcome(shown(str(error)), error.stage, grown=error.grown, mismatch=error.mismatch)
    except ChildStuck as kept:
        return Outcome(str(kept), stuck_pid=kept.pid, stuck_since=kept.since)
    except OSError as error:
        return Outcome(go_text("set up", str(error.filename or step_name(step)), error))


def carry_out(root: str, step: Step, at: removal.At) -> Outcome:
    """Carry out one step; `at` marks the volume in work. Raises VolumeError, ChildStuck, OSError."""
    outcome = Outcome()
    match step:
        case volumes.EmptyDir():
            setup.set_up_empty_dir(root, step)
        case volumes.Files():
            setup.set_up_files(root, step)
        case volumes.Mount() | volumes.Local() | volumes.Block() | volumes.ReleaseDevice():
            from actors.volume.ops import mounting  # noqa: PLC0415

            outcome = Outcome(warning=mounting.carry_out(root, step, lambda files=0: at(step.name, files)))
        case volumes.HostPath():
            setup.check_host_path(step)
        case volumes.SubPath():
            outcome = Outcome(path=subpath.bind(root, step))
        case volumes.ReadFile():
            outcome = Outcome(data=inside.read(step.volume_path, step.path, step.max_bytes))
        case volumes.TearDown():
            outcome = Outcome(more=not removal.remove_pod_volumes(root, step.uid, step.slice_s, at))
        case volumes.Measure():
            usages, walks = usage.measure_pod(root, step, at)
            outcome = Outcome(usages=usages, walks=walks)
        case volumes.MeasureMount():
            measure = usage.raw_device if step.block else usage.file_system
            outcome = Outcome(usages=(measure(step.name, step.path),))
        case csi.CsiFind():
            removal.unbind_pod_sub_paths(root, step.uid, at)
            unreadable.drop(root, step.uid, at)
            outcome = Outcome(csi_volumes=disk.find(root, step.uid))
        case csi.CsiStaged():
            found = staged.find(root, lambda: at(""))
            unused = staged.unused(root, found.volumes, lambda: at(""))
            outcome = Outcome(staged=found.volumes, unused=unused, unreadable=found.unreadable)
        case csi.Register() | csi.Describe() | csi.CsiMount() | csi.CsiUnmount() | csi.CsiUnstage() | csi.CsiMeasure():
            from actors.volume.csi import dispatch  # noqa: PLC0415 - gRPC and the stubs, only for drivers

            outcome = dispatch.carry_out(root, step, at)
    return outcome
