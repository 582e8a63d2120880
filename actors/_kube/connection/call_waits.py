"""Wait records of a client's calls: for the API server, or for the credential plugin while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from actors._base.messaging import waits
from actors._kube.connection.plugin import PLUGIN_S, PluginRun
from proto.waits.record import Wait


class CallWait:
    """The record of one call."""

    def __init__(self, what: str, timeout_s: float, server: str) -> None:
        self.record = waits.begin("http", f"host/{server}", what, timeout_s=timeout_s)
        self.first: Wait = self.record.wait
        self.began = time.monotonic()
        self.sent = 0.0
        """Monotonic seconds from when it has its credentials, and waits for no plugin; 0 before."""


class CallWaits:
    """The records of calls under way. Usable from any thread."""

    def __init__(self, server: Callable[[], str]) -> None:
        """`server`: its URL, or empty while it is not known."""
        self._server = server
        self._lock = threading.Lock()  # a change must not follow the end of its record
        self._open: set[CallWait] = set()
        self._run: PluginRun | None = None
        self._thread = threading.local()

    def begin(self, what: str, timeout_s: float) -> CallWait:
        """Record a call."""
        with self._lock:
            call = CallWait(what, timeout_s, self._server())
            self._open.add(call)
            self._show(call)
        return call

    def end(self, call: CallWait) -> None:
        """Remove the record."""
        with self._lock:
            self._open.discard(call)
            call.record.end()

    def carried_out(self, call: CallWait) -> None:
        """Note that the calling thread carries out this call from here on."""
        self._thread.call = call

    def has_credentials(self, has: bool) -> None:
        """Note that the call of the calling thread has the credentials to present, or begins to need them."""
        call: CallWait | None = getattr(self._thread, "call", None)
        if call is not None:
            with self._lock:
                call.sent = time.monotonic() if has else 0.0
                self._show(call)

    def plugin_runs(self, run: PluginRun) -> None:
        """The credential plugin has begun, or ended."""
        with self._lock:
            self._run = None if run.ended else run
            for call in self._open:
                self._show(call)

    def _show(self, call: CallWait) -> None:
        fields: dict[str, Any]
        if self._run is None or call.sent:
            if call.record.wait.kind == call.first.kind:
                return
            fields = {"kind": call.first.kind, "target": f"host/{self._server()}", "what": call.first.what}
            fields |= {"since": time.monotonic(), "deadline": call.first.deadline}
        else:
            name, pid, began, _ = self._run
            fields = {"kind": "helper", "target": f"helper/{pid}", "what": f"the work of {name}"}
            fields |= {"since": began, "deadline": began + PLUGIN_S}
        call.record.change(**fields)
