"""Follows the health of a DRA driver's devices (NodeWatchResources), in a thread for each plugin.

A report is read once the one before is taken, so that gRPC's flow control slows down a driver that sends without end.
Reports are partial: none can be left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import grpc

from actors._cri.call import wrapped
from actors._plugins.client import Client
from proto.common.safe_text import clipped
from proto.plugins import drahealth_pb2 as pb

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""The kubelet's pause between two streams."""
PAUSE_S = 0.1
"""Shortest time between two reports, for a driver that sends without end."""
SERVICE = pb.DESCRIPTOR.services_by_name["DRAResourceHealth"]


class HealthStream:
    """One plugin's stream; it is opened again until `close`. A driver without the service is asked once."""

    def __init__(
        self,
        driver: str,
        client: Client,
        take: Callable[[Any, Callable[[float], None]], None],
        ended: Callable[[], None],
        one_at_a_time: threading.Lock,
    ) -> None:
        """`take` gets the devices of each report, and calls its second argument with the seconds until the next one.

        `ended` is called after each stream. Both are called in the thread. `one_at_a_time`: of all plugins' reports.
        """
        self._driver, self._client, self._take, self._ended = driver, client, take, ended
        self._one_at_a_time = one_at_a_time
        self._closed = threading.Event()
        self._taken = threading.Event()
        self._pause_s = PAUSE_S

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="device-health", daemon=True).start()

    def close(self) -> None:
        """Stop. The stream ends with the client's connection."""
        self._closed.set()
        self._taken.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            reason = self._follow()
            self._ended()
            if reason == "Unimplemented":
                log.info("DRA driver %s does not report the health of its devices", self._driver)
                return
            self._closed.wait(RETRY_S)

    def _follow(self) -> str:
        """Follow one stream. Returns the gRPC code of its end; empty if the driver has ended it."""
        try:
            for response in self._client.stream(SERVICE, "NodeWatchResources", pb.NodeWatchResourcesRequest()):
                self._hand_over(response.devices)
                if self._closed.wait(self._pause_s):
                    break
        except (grpc.RpcError, grpc.FutureCancelledError, ValueError) as error:
            ended = wrapped(error, "NodeWatchResources")
            if not self._closed.is_set():
                log.debug("the health of DRA driver %s: %s", self._driver, clipped(ended.grpc_text()))
            return ended.code
        return ""

    def _hand_over(self, devices: Any) -> None:
        """Wait until the report is taken, or `close` is called."""
        with self._one_at_a_time:
            self._taken.clear()
            if not self._closed.is_set():
                self._take(devices, self._rest)
                self._taken.wait()

    def _rest(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._taken.set()
