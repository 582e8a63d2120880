"""The last words of a container: what it wrote to its termination log, or the end of its output.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ and
pkg/kubelet/kuberuntime (getTerminationMessage, fallbackToLogs).
"""

from __future__ import annotations

import os

from actors.pod_workers.view import ContainerView

MAX_FILE_BYTES = 4096
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80
_LOG_TAIL_BYTES = 64 * 1024
"""How much of a log's end is read: enough for 2 KiB of output in lines of one character with their 40 of prefix."""


def read_termination_message(container: ContainerView) -> str:
    """The status message of an exited container: its file's first 4 KiB, or with FallbackToLogsOnError, where that is
    empty and it failed, the last 80 lines and at most 2 KiB of its log. Without either, the runtime's own message.

    Reads two small files; what cannot be read says so in the message, as in the kubelet.
    """
    if container.state != "exited":
        return container.message
    words = ""
    if container.termination_message_host_path:
        words = _read_file(container.termination_message_host_path)
    failed = container.exit_code != 0 and container.reason != "OOMKilled"
    if not words and container.termination_message_policy == "FallbackToLogsOnError" and failed and container.log_path:
        words = read_log_tail(container.log_path)
    if not words:
        return container.message
    return f"{container.message}: {words}" if container.message else words


def _read_file(path: str) -> str:
    try:
        # The container may have put a link or a pipe there: never follow one out, never wait on one.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Error on reading termination log {path}: {error.strerror}"
    try:
        return os.read(descriptor, MAX_FILE_BYTES).decode(errors="replace")
    except OSError as error:
        return f"Error on reading termination log {path}: {error.strerror}"
    finally:
        os.close(descriptor)


def read_log_tail(path: str) -> str:
    """The last lines of a container log in the CRI format, without their prefixes; empty where there is no log."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - _LOG_TAIL_BYTES)
            file.seek(start)
            data = file.read(_LOG_TAIL_BYTES)
    except OSError:
        return ""
    lines = data.split(b"\n")
    if start:
        lines = lines[1:]  # begins within a line
    return log_tail(lines)


def log_tail(lines: list[bytes]) -> str:
    """The output of the last 80 log lines, cut to its last 2 KiB. A partial line (tag P) goes on in the next."""
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
