"""Asks the kernel to tell when the node's memory usage crosses a threshold (cgroup v1).

Source: section 9 of admin-guide/cgroup-v1/memory.rst of Linux, and pkg/kubelet/eviction/memory_threshold_notifier.go
of Kubernetes 1.36. As there, nothing is done on cgroup v2.
"""

from __future__ import annotations

import os

from actors._cgroup import figures

TOLERANCE = 16 << 20
"""Bytes by which the usage may differ from a better one before the kernel is asked again."""
PAUSE_S = 1.0
"""Shortest time between two looks for a notice."""


def ask_kernel(directory: str, usage_bytes: int) -> int:
    """Return an eventfd, readable after usage crosses this number in either direction. Raises OSError.

    `directory` is a cgroup of the memory controller. Closing the eventfd ends the request.
    """
    event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    opened = [event]
    try:
        opened.append(os.open(f"{directory}/memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC))
        opened.append(os.open(f"{directory}/cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC))
        os.write(opened[2], f"{event} {opened[1]} {usage_bytes}".encode())
    except OSError:
        os.close(opened.pop(0))
        raise
    else:
        opened.pop(0)
    finally:
        for fd in opened:
            os.close(fd)
    return event


def usage_at(directory: str, capacity: int, threshold: int) -> int:
    """Return the usage in bytes at which less than `threshold` is available. Raises OSError.

    Page cache that is not in use counts as available.
    """
    return capacity - threshold + figures.stat(f"{directory}/memory.stat").get("total_inactive_file", 0)
