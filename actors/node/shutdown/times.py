"""The times of the last shutdown of the machine: two gauges, and a file in the root directory as the kubelet has it.

The file is written before any pod is ended, and again at the end. A file without an end is that of a shutdown that was
cut off. A disk that hangs costs WRITE_S each time. Source: pkg/kubelet/nodeshutdown (storage.go,
nodeshutdown_manager_linux.go) of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec

from actors._base import Actor
from actors._host.files import paths
from actors._host.files.numbered_file import NumberedFile
from actors._host.files.untrusted_files import read_regular
from actors._metrics import kubelet as metrics
from proto.common import rfc3339, untrusted
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

READ_S = 5.0
WRITE_S = 1.0
MOST_BYTES = 4096
_NONE = "0001-01-01T00:00:00Z"
"""Go's time without a value."""
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Times(NamedTuple):
    """Unix seconds; 0: there is none."""

    began: float = 0.0
    ended: float = 0.0


class _State(msgspec.Struct, rename="camel"):
    start_time: _Time
    end_time: _Time


def encode(times: Times) -> bytes:
    """Return the content of the file."""
    began, ended = (rfc3339.micros(datetime.fromtimestamp(at, UTC)) if at else _NONE for at in times)
    return msgspec.json.encode({"startTime": began, "endTime": ended})


def decode(content: bytes) -> Times:
    """Return the times of a file's content. Raises msgspec.DecodeError. A time before 1970 counts as none."""
    state = untrusted.decode_json(content, _State)
    return Times(max(0.0, state.start_time.timestamp()), max(0.0, state.end_time.timestamp()))


class ShutdownTimes:
    """The gauges and the file. Without the gate GracefulNodeShutdownBasedOnPodPriority it does nothing."""

    def __init__(self, actor: Actor) -> None:
        """Do nothing yet."""
        self._actor, self._on = actor, actor.settings.keep_shutdown_times
        self._file = NumberedFile(paths.shutdown_times(actor.settings.root_dir), MOST_BYTES, mode=0o644)
        self._times = Times()
        self._number = 0

    async def load(self) -> None:
        """Set the gauges by the file, unless a shutdown has begun meanwhile."""
        if not self._on:
            return
        try:
            saved = await self._actor.blocking(READ_S, _read, self._file.path)
        except (OSError, msgspec.DecodeError, ActorError) as error:
            log.warning("cannot read %s: %s; the times of the last shutdown are unknown", self._file.path, error)
            return
        if not self._number:
            _show(saved)

    async def begin(self) -> None:
        """Note that pods are about to be ended."""
        self._times = Times(began=time.time())
        await self._keep()

    async def end(self) -> None:
        """Note that pods have ended."""
        self._times = self._times._replace(ended=time.time())
        await self._keep()

    async def _keep(self) -> None:
        if not self._on:
            return
        _show(self._times)
        self._number += 1
        try:
            await self._actor.blocking(WRITE_S, self._file.write, self._number, encode(self._times))
        except (OSError, ActorError) as error:
            log.warning("cannot write %s: %s; the shutdown goes on", self._file.path, error)


def _read(path: str) -> Times:
    try:
        return decode(read_regular(path, MOST_BYTES))
    except FileNotFoundError:
        return Times()


def _show(times: Times) -> None:
    metrics.SHUTDOWN_BEGAN.set(times.began)
    metrics.SHUTDOWN_ENDED.set(times.ended)
