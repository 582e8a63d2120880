"""HTTP and TCP probes over non-blocking connections: hundreds at a time, without threads, independent of each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from actors._net.probing import http
from actors._net.probing.connection import Connection, Failed, Wait
from actors._net.probing.outcome import Outcome
from actors._net.probing.poller import Poller
from actors._net.probing.target import DEFAULT_PORTS, MOST_PORT, Url, fragment_of, joined, quoted
from proto.common.logs import Limited
from proto.v1 import HTTPHeader

_limited_log = Limited(logging.getLogger(__name__))

Done = Callable[[Outcome], None]


class TcpProbe:
    """Success as soon as the port accepts. `done` gets the outcome once, in the actor's thread, unless cancelled."""

    def __init__(self, poller: Poller, addresses: Sequence[str], port: int, done: Done) -> None:
        """`addresses`: of the host, best first. As in Go, the next one is tried when one refuses the connection."""
        self._poller = poller
        self._done: Done | None = done
        self._connection: Connection | None = None
        self._address, *self._others = addresses
        self._port = port
        self._peer = joined(self._address, port)

    def start(self) -> None:
        """Begin; `done` may be called before this returns."""
        self._open(self._address, self._port)

    def _open(self, address: str, port: int) -> None:
        try:
            self._connection = Connection(address, port)
        except Failed as failure:
            self._fail(str(failure))
        else:
            self._step()

    def _step(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            outcome = self._advance(connection)
        except Wait as wait:
            self._poller.wait(connection.fileno(), wait.event, self._step)
        except (Failed, http.BadResponse) as failure:
            self._fail(str(failure))
        except Exception as error:  # a container may cause it: it ends this request, not the process
            _limited_log.log(logging.WARNING, "%s: cannot read the answer: %s", self._peer, error, exc_info=True)
            self._finish(self._failed(f"cannot read the answer: {type(error).__name__}"))
        else:
            if outcome is not None:
                self._finish(outcome)

    def _advance(self, connection: Connection) -> Outcome | None:
        """Advance as far as possible. The outcome, or None when the probe goes on with a new connection."""
        connection.connect()
        return Outcome("success")

    def _fail(self, text: str) -> None:
        if not self._others or not self._is_first_connection():
            self._finish(self._failed(text))
            return
        self._close()
        self._address = self._others.pop(0)
        self._peer = joined(self._address, self._port)
        self._open(self._address, self._port)

    def _is_first_connection(self) -> bool:
        """Return True while the connection is not established and no redirect was followed."""
        return True

    def _failed(self, text: str) -> Outcome:
        return Outcome("failure", text)

    def _late_text(self) -> str:
        return f"dial tcp {self._peer}: i/o timeout"

    def expire(self) -> None:
        """The probe's timeout has passed."""
        self._finish(self._failed(self._late_text()))

    def cancel(self) -> None:
        """End the probe without calling `done`."""
        self._done = None
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._poller.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _finish(self, outcome: Outcome) -> None:
        self._close()
        done, self._done = self._done, None
        if done is not None:
            done(outcome)


class HttpProbe(TcpProbe):
    """One GET and the redirects within its host, all within one timeout."""

    agent = http.PROBE_AGENT

    def __init__(
        self, poller: Poller, addresses: Sequence[str], url: Url, headers: Sequence[HTTPHeader], done: Done
    ) -> None:
        super().__init__(poller, addresses, url.port, done)
        self._url, self._first_host = url, url.host
        self._last = str(url)
        """The last URL with its fragment."""
        self._shown = quoted(self._last)
        """The URL in the texts of errors."""
        self._given = self._headers = headers
        """Of the manifest; a redirect may have ended its Host. `_headers` are those of the present request."""
        self._hops = 0
        self._begin()

    def _is_first_connection(self) -> bool:
        return self._stage == "connect" and not self._hops

    def _begin(self) -> None:
        self._stage = "connect"
        self._answer = http.Exchange(self._url, self._headers, self.agent)

    def _advance(self, connection: Connection) -> Outcome | None:
        if self._stage == "connect":
            connection.connect()
            self._stage = "secure" if self._url.scheme == "https" else "request"
        if self._stage == "secure":
            connection.secure(self._url.host)
            self._stage = "request"
        if self._stage == "request":
            self._stage = "send"
            connection.send(self._answer.request())
        if self._stage == "send":
            connection.send()
            self._stage = "head"
        return self._receive(connection)

    def _receive(self, connection: Connection) -> Outcome | None:
        while True:
            state = self._answer.read()
            if state == "complete":
                return self._verdict(self._answer)
            if state == "head":
                target = http.redirect_of(self._url, self._answer.location, self._first_host)
                if target is not None:
                    self._follow(target)
                    return None
                self._stage = "body"
            else:
                self._answer.take(connection.receive())

    def _follow(self, url: Url) -> None:
        """Request the redirect's URL on a new connection. The body of the redirect is not read. Raises BadResponse."""
        self._hops += 1
        location = self._answer.location
        if self._hops >= http.MAX_REQUESTS:
            self._shown = quoted(location)  # as it was received: Go's client does not resolve it here
            raise http.BadResponse("stopped after 10 redirects")
        self._url, self._peer = url, joined(self._address, url.port)
        before, self._last = self._last, f"{url}{fragment_of(location)}"
        self._shown = quoted(self._last)
        if url.scheme not in DEFAULT_PORTS:
            raise http.BadResponse(f'unsupported protocol scheme "{url.scheme}"')
        if url.port > MOST_PORT:
            raise http.BadResponse(f"dial tcp: address {url.port}: invalid port")
        self._given = http.redirect_headers(self._given, location)
        self._headers = http.with_referer(self._given, before, url)
        self._close()
        self._begin()
        self._open(self._address, url.port)

    def _verdict(self, answer: http.Exchange) -> Outcome:
        return http.judge(answer)

    def _failed(self, text: str) -> Outcome:
        if self._stage == "body":
            return Outcome("errored", text, "failure")  # an incomplete body gives no result, as in the kubelet
        return Outcome("failure", f"Get {self._shown}: {text}")

    def _late_text(self) -> str:
        if self._stage == "body":
            return "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        late = "Client.Timeout exceeded while awaiting headers"
        if self._stage == "connect":
            return f"dial tcp {self._peer}: i/o timeout ({late})"
        return f"context deadline exceeded ({late})"


class HttpHook(HttpProbe):
    """The request of a lifecycle hook. Any answer is success, also an error status or a redirect to another host."""

    agent = http.LIFECYCLE_AGENT

    def _verdict(self, answer: http.Exchange) -> Outcome:  # noqa: ARG002 - the base's signature
        return Outcome("success")

    def _failed(self, text: str) -> Outcome:
        return Outcome("success") if self._stage == "body" else super()._failed(text)
