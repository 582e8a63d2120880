"""Reads the termination message of a container: its termination log, or the end of its output.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ and
pkg/kubelet/kuberuntime (getTerminationMessage, fallbackToLogs).
"""

from __future__ import annotations

from actors._host.files.untrusted_files import read_tail
from actors.pod_workers.model.view import ContainerView

MAX_FILE_BYTES = 4096
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80
_LOG_TAIL_BYTES = 64 * 1024
"""Bytes read from the end of a log: enough for 2 KiB of one-character lines with prefixes of 40 characters."""


def read_termination_message(container: ContainerView) -> str:
    """The status message of an exited container: the end of its file, at most 4 KiB.

    A failed container with FallbackToLogsOnError and an empty file gets the last 80 lines of its log, at most 2 KiB.
    The runtime's own message is put before. A read error becomes the message, as in the kubelet.
    """
    if container.state != "exited":
        return container.message
    words = ""
    if container.termination_message_host_path:
        words = _read_file(container.termination_message_host_path)
    if not words and may_be_of_log(container):
        words = read_log_tail(container.log_path)
    if not words:
        return container.message
    return f"{container.message}: {words}" if container.message else words


def may_be_of_log(container: ContainerView) -> bool:
    """Return True when the message is the end of the log if the container has written no other."""
    falls_back = container.termination_message_policy == "FallbackToLogsOnError" and container.exit_code != 0
    return falls_back and bool(container.log_path)


def _read_file(path: str) -> str:
    try:
        return read_tail(path, MAX_FILE_BYTES)[0].decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Error on reading termination log {path}: {error.strerror}"


def read_log_tail(path: str) -> str:
    """The last lines of a container log in the CRI format, without prefixes; empty without a log."""
    try:
        data, whole = read_tail(path, _LOG_TAIL_BYTES)
    except OSError:
        return ""
    lines = data.split(b"\n")
    if not whole:
        lines = lines[1:]  # begins within a line
    return log_tail(lines)


def log_tail(lines: list[bytes]) -> str:
    """The last 2 KiB of the last 80 output lines. A partial line (tag P) is joined with the next."""
    output: list[bytes] = []
    ended = True
    for line in lines:
        parts = line.split(b" ", 3)
        if len(parts) < 4:
            continue
        if ended:
            output.append(b"")
        ended = not parts[2].startswith(b"P")
        output[-1] += parts[3] + (b"\n" if ended else b"")
    return b"".join(output[-MAX_LOG_LINES:])[-MAX_LOG_BYTES:].decode(errors="replace")
