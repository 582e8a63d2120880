"""Container logs: the CRI log format, the file a container writes to, the last lines of it, and following it.

Reads the files directly, so it works while any actor is down. Only the current file is read, as the kubelet does: what
rotation has moved away is not. Which pod and container is meant, and when a container has ended, is the caller's part.
Format: https://kubernetes.io/docs/concepts/cluster-administration/logging/
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from proto.v1 import Container, ContainerStatus, EphemeralContainer, Pod

BLOCK = 64 * 1024
POLL_S = 0.1
"""Between two looks at a followed file that did not grow. Not inotify: rotation and its end need a look too."""


class LogFormatError(ValueError):
    """A line that is not in the CRI log format."""


class LogLine(NamedTuple):
    """One entry. `partial`: the line goes on in the next entry of that stream."""

    timestamp: str
    """RFC 3339 with nanoseconds, as written."""
    stream: str
    partial: bool
    content: bytes


def parse(line: bytes) -> LogLine:
    """An entry without its newline: `TIME STREAM TAG[:TAG...] CONTENT`. Raises LogFormatError."""
    parts = line.split(b" ", 3)
    if len(parts) < 3:
        raise LogFormatError(f"not in the CRI log format: {line[:80]!r}")
    timestamp, stream, tags = parts[0].decode(errors="replace"), parts[1].decode(errors="replace"), parts[2].split(b":")
    if stream not in ("stdout", "stderr"):
        raise LogFormatError(f"stream {stream!r} is neither stdout nor stderr: {line[:80]!r}")
    if tags[0] not in (b"P", b"F"):
        raise LogFormatError(f"tag {tags[0][:20]!r} is neither P nor F: {line[:80]!r}")
    return LogLine(timestamp, stream, tags[0] == b"P", parts[3] if len(parts) > 3 else b"")


class Printer:
    """Entries to bytes for people: partial entries joined, the time only where a line begins."""

    def __init__(self, timestamps: bool = False, since: float | None = None) -> None:
        self._timestamps = timestamps
        self._since = since
        self._mid_line = False

    def render(self, raw: bytes) -> bytes:
        """What to print for one entry; nothing when it is older than `since`. A foreign line is printed as it is."""
        try:
            entry = parse(raw)
        except LogFormatError:
            return raw + b"\n"
        if self._since is not None and _seconds(entry.timestamp) < self._since:
            return b""
        prefix = f"{entry.timestamp} ".encode() if self._timestamps and not self._mid_line else b""
        self._mid_line = entry.partial
        return prefix + entry.content + (b"" if entry.partial else b"\n")


def _seconds(timestamp: str) -> float:
    from supervisor.pod_status import seconds_of  # noqa: PLC0415 - only `--since` needs dates

    try:
        return seconds_of(timestamp)
    except ValueError:
        return float("inf")


# Which file


class NoSuchContainer(LookupError):
    """The pod has no container of that name, or it never ran. The message is for people."""


def container_names(pod: Pod) -> list[str]:
    """Every container of the pod: regular ones first, then init, then ephemeral."""
    groups: tuple[tuple[Container | EphemeralContainer, ...], ...] = (
        pod.spec.containers,
        pod.spec.init_containers,
        pod.spec.ephemeral_containers,
    )
    return [container.name for group in groups for container in group]


def default_container(pod: Pod) -> str:
    """The one `kubectl logs` takes without -c: the annotated one, else the first regular one."""
    named = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    return named if named in container_names(pod) else pod.spec.containers[0].name


def container_status(pod: Pod, container: str) -> ContainerStatus | None:
    """What the node says of a container of the pod; None before it says anything."""
    status = pod.status
    groups = (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses)
    return next((s for group in groups for s in group if s.name == container), None)


def log_file(pod_logs_dir: str | Path, pod: Pod, container: str, *, previous: bool = False) -> Path:
    """The log of the container's current run, or of the one before; `RESTARTCOUNT.log` in the container's directory.

    Raises NoSuchContainer when there is no such container or no such run.
    """
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if container not in container_names(pod):
        raise NoSuchContainer(
            f"cannot find container {container!r} in pod {name}; it has {', '.join(container_names(pod))}"
        )
    state = container_status(pod, container)
    directory = Path(pod_logs_dir) / f"{pod.metadata.namespace}_{pod.metadata.name}_{config_uid(pod)}" / container
    attempt = _attempt(state, previous)
    if attempt is None or attempt < 0:
        if previous:
            raise NoSuchContainer(f"cannot find a previous run of container {container!r} in pod {name}")
        waiting = state.state.waiting.reason if state and state.state.waiting else None
        raise NoSuchContainer(
            f"container {container!r} in pod {name} is waiting to start: {waiting or 'ContainerCreating'}"
        )
    return directory / f"{attempt}.log"


def config_uid(pod: Pod) -> str:
    """The UID in a pod's directories: its own; for a mirror pod that of the static pod behind it."""
    return pod.metadata.annotations.get("kubernetes.io/config.mirror", pod.metadata.uid)


def _attempt(status: ContainerStatus | None, previous: bool) -> int | None:
    """The restart count in the file's name. While a container waits (back-off) it is that of the run that ended."""
    if status is None:
        return None
    started = status.state.running is not None or status.state.terminated is not None
    if started:
        return status.restart_count - 1 if previous else status.restart_count
    return status.restart_count if status.last_state.terminated is not None else None


def has_ended(pod: Pod | None, container: str, attempt: int) -> bool:
    """Whether the run whose log is `attempt`.log is over: the pod is gone, the container ended or is in a later run."""
    if pod is None:
        return True
    status = container_status(pod, container)
    if status is None:
        return False
    return status.restart_count > attempt or status.state.running is None


# Reading


def tail_offset(file: IO[bytes], lines: int) -> int:
    """Where the last `lines` entries of the file begin, read from the end in blocks."""
    end = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return end
    wanted, position = lines, end
    while position > 0:
        start = max(0, position - BLOCK)
        file.seek(start)
        block = file.read(position - start)
        # The newline that ends the file ends its last entry and does not begin another.
        scan_end = len(block) - (1 if position == end and block.endswith(b"\n") else 0)
        while (found := block.rfind(b"\n", 0, scan_end)) >= 0:
            wanted -= 1
            if wanted == 0:
                return start + found + 1
            scan_end = found
        position = start
    return 0


def read(path: Path, tail: int | None = None) -> Iterator[bytes]:
    """The entries of a file now, without newlines; the last `tail` of them. Raises OSError."""
    with path.open("rb") as file:
        file.seek(tail_offset(file, tail) if tail is not None else 0)
        for raw in file:
            yield raw.rstrip(b"\n")


def follow(
    path: Path,
    ended: Callable[[], bool],
    tail: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """The entries of a file as they come, across rotation (the name moves on to a new file), until `ended`.

    `ended` is asked while nothing comes; what the file still holds after it said so is yielded too. A half-written
    entry is kept back until its newline. Raises OSError when the file cannot be opened.
    """
    file: IO[bytes] = path.open("rb")
    try:
        file.seek(tail_offset(file, tail) if tail is not None else 0)
        rest = b""
        while True:
            over = ended()  # before reading: whatever was written until then is read below
            successor = _successor(path, file)  # likewise: nothing is added to a file that has a successor
            while block := file.read(BLOCK):
                *whole, rest = (rest + block).split(b"\n")
                yield from whole
            if successor is not None:
                file.close()
                file = successor
            elif over:
                break
            else:
                sleep(POLL_S)
        if rest:
            yield rest
    finally:
        file.close()


def _successor(path: Path, file: IO[bytes]) -> IO[bytes] | None:
    """The file that has taken over the name, opened; None while it is the same one or there is none at the moment."""
    try:
        current = path.stat()
        held = os.fstat(file.fileno())
        if (current.st_dev, current.st_ino) == (held.st_dev, held.st_ino):
            return None
        return path.open("rb")
    except FileNotFoundError:
        return None
