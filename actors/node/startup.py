"""Times the start of a new node: boot, the agent's start, registration, Ready. In seconds since boot.

Source: pkg/kubelet/util/node_startup_latency_tracker.go. A Node that existed before gets no times.
"""

from __future__ import annotations

import os
from contextlib import suppress

from actors._host.system import pid_of, since_boot
from actors._metrics import kubelet as metrics
from proto.common.machine import procfs


class NodeStartup:
    """State: the first attempt to register the Node, its creation, and whether it was Ready."""

    def __init__(self, supervisor_pidfd: int) -> None:
        self._agent = 0.0
        with suppress(OSError):
            self._agent = procfs.start_time(pid_of(supervisor_pidfd)) / os.sysconf("SC_CLK_TCK")
        self._attempt = self._created = 0.0

    def attempted(self) -> None:
        """The Node is about to be registered."""
        self._attempt = self._attempt or since_boot()

    def created(self) -> None:
        """The Node was created."""
        if self._created or not self._agent:
            return
        self._created = since_boot()
        metrics.NODE_BEFORE_AGENT_SECONDS.set(self._agent)
        metrics.NODE_BEFORE_REGISTRATION_SECONDS.set(self._attempt - self._agent)
        metrics.NODE_REGISTRATION_SECONDS.set(self._created - self._attempt)

    def ready(self) -> None:
        """The Node is Ready for the first time."""
        if self._created:
            now = since_boot()
            metrics.NODE_AFTER_REGISTRATION_SECONDS.set(now - self._created)
            metrics.NODE_STARTUP_SECONDS.set(now)
