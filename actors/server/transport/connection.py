"""Serves one client's connection: reads its requests with h11, sends the answers, and bounds size and time of both.

Covers deadlines, keep-alive, bodies with back-pressure, clients that vanish, and protocol upgrades. The `serve`
callback checks access and makes the answers.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11

from actors._base.messaging.tasks import Cancelled, Task
from actors._net.stream import HEAD_BLOCK, Stream
from actors.server.base.head_budget import HeadBudget
from actors.server.base.http import BadRequest, Request, Response, Upgraded, parse_target, text
from actors.server.base.send_budget import SendBudget
from proto.common import logs
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)
_limited_log = logs.Limited(log)
"""Limited over all connections, because any client that reaches the port can cause these messages."""

HEADER_BYTES = 1024 * 1024
"""As in the kubelet. The words of an exec's command are in the request target."""
HEADER_LINES = 1000
_BLANK = re.compile(rb"\n\r?\n")
_LAX = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]|\0")
"""A line end without CR, or a folded header. RFC 9112, 2.2 and 5.2, lets a server refuse both. The runtime might parse
such a head differently, and `Authorization` is removed from it line by line."""
HEADER_S = 10.0
"""Time from a new connection, or from a request's first byte, to the end of its headers. Slower clients only occupy the
connection."""
IDLE_S = 90.0
"""Time between two requests, as in the kubelet."""
LEFT_S = 1.0
"""Interval of the check whether a client that sent more data is still connected. Reading cannot tell, as it waits."""
BODY_S = 30.0
"""Time for a body that a handler reads."""
MIGHT_SWITCH: Any = h11.MIGHT_SWITCH_PROTOCOL  # type: ignore[attr-defined]  # documented, and not in its __all__
JOINED_BYTES = 128 * 1024
"""A smaller part is sent in one write with its chunk framing: the copy costs less than two more writes."""

Serve = Callable[[Stream, Request], Awaitable[Response | Upgraded]]


class Connection:
    """Serves one client until either side ends the connection."""

    def __init__(
        self, stream: Stream, serve: Serve, idle: dict[Stream, None], heads: HeadBudget, send_budget: SendBudget
    ) -> None:
        """The connection is in `idle` until its client has sent a complete request."""
        self._stream = stream
        self._serve = serve
        self._idle = idle
        self._heads = heads
        self._send_budget = send_budget
        self._http: h11.Connection | None = None
        self._head = bytearray()
        self._searched = self._lines = 0
        """The bytes of the head in which the end was searched, and their lines."""

    async def run(self) -> None:
        """Serve until the end. Errors of the client end this connection only."""
        self._idle[self._stream] = None
        try:
            await self._within(HEADER_S, self._stream.handshake())
            wait_s = HEADER_S
            while await self._one_request(wait_s):
                wait_s = IDLE_S
        except (OSError, h11.LocalProtocolError) as error:
            log.debug("connection of %s: %s", self._stream.remote, error)
        except ActorError as error:
            log.warning("an answer to %s was cut off: %s", self._stream.remote, error)
        except Exception:  # only this connection ends: other clients have execs and logs open in this process
            _limited_log.log(logging.ERROR, "an answer to %s was cut off", self._stream.remote, exc_info=True)
        finally:
            self._heads.forget(self._stream)
            self._stream.close()

    async def _within(self, seconds: float, waiting: Awaitable[Any]) -> Any:
        """Await, and cut the connection when it takes longer than `seconds`."""
        timer = self._stream.loop.call_later(seconds, self._stream.abort)
        try:
            return await waiting
        finally:
            timer.cancel()

    async def _one_request(self, wait_s: float) -> bool:
        """Serve a request. False when the connection is over."""
        self._idle[self._stream] = None
        if self._http is None:
            first = await self._within(wait_s, self._stream.read(HEAD_BLOCK))
            if not first:
                return False
            self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
            self._feed(first)
        http = self._http
        try:
            event = await self._within(HEADER_S, self._next_event())
            self._idle.pop(self._stream, None)
            if not isinstance(event, h11.Request):
                return False
            request = self._request(event)
            if not request.has_body:
                http.next_event()  # the end of the message
        except (h11.RemoteProtocolError, BadRequest) as error:
            await self._refuse(http, error)
            return False
        answer = await self._answer(request)
        self._heads.forget(self._stream)
        if isinstance(answer, Upgraded):
            await self._switch_protocol(answer)
            return False
        await self._send(http, request, answer)
        return await self._ready_for_next(http)

    async def _ready_for_next(self, http: h11.Connection) -> bool:
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            await self._stream.end()
            return False
        http.start_next_cycle()
        self._head.clear()
        self._searched = self._lines = 0
        if not http.trailing_data[0]:
            self._http = None  # an idle connection has no parser
        else:
            self._head += http.trailing_data[0]
        return True

    # In

    def _feed(self, data: bytes) -> None:
        assert self._http is not None
        if self._http.their_state is h11.IDLE:
            self._head += data
            self._heads.count(self._stream, len(self._head))
        self._http.receive_data(data)

    async def _next_event(self) -> Any:
        assert self._http is not None
        while True:
            if self._http.their_state is h11.IDLE:
                self._bound_head()
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._stream.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            self._feed(await self._stream.read(HEAD_BLOCK))

    def _bound_head(self) -> None:
        """Refuse a head of too many lines before h11 parses each of them, which would delay all connections."""
        blank = _BLANK.search(self._head, max(0, self._searched - 2))
        end = blank.start() if blank else len(self._head)
        self._lines += self._head.count(b"\n", self._searched, end)
        self._searched = len(self._head)
        if self._lines > HEADER_LINES:
            raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
        if blank and _LAX.search(self._head, 0, blank.end()):
            raise h11.RemoteProtocolError("a line of the head does not end in CR and LF, or is folded")

    def _request(self, event: h11.Request) -> Request:
        target = parse_target(event.target)
        headers: dict[str, str] = {}
        for name, value in event.headers:
            key, found = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {found}" if key in headers else found
        end = self._head.find(b"\r\n\r\n")
        return Request(
            event.method.decode("latin-1"),
            target.path,
            target.query,
            headers,
            head=bytes(self._head[: end + 4]) if end >= 0 else b"",
            redirect=target.redirect,
            read_body=lambda limit: self._within(BODY_S, self._body(limit)),
        )

    async def _body(self, limit: int) -> bytes:
        parts = bytearray()
        assert self._http is not None
        if self._http.their_state is not h11.SEND_BODY:
            return b""
        while True:
            try:
                event = await self._next_event()
            except h11.RemoteProtocolError as error:
                raise BadRequest(str(error)) from error
            if isinstance(event, h11.Data):
                parts += event.data
                if len(parts) > limit:
                    raise BadRequest(f"the body is larger than {limit} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(parts)
            else:
                raise ConnectionResetError("the client went away within its request")

    # Out

    async def _answer(self, request: Request) -> Response | Upgraded:
        """The handler's answer. The handler is cancelled when the client disconnects."""
        loop = self._stream.loop
        task = loop.spawn(_call(self._serve, self._stream, request), request.path)
        watch = loop.spawn(self._watch(task), "watch client")
        try:
            return await task
        except Cancelled:
            task.cancel()
            raise
        finally:
            watch.cancel()

    async def _watch(self, task: Task[Any]) -> None:
        """Cancel the task when the client disconnects. At most one block of its further data is read."""
        with contextlib.suppress(OSError):
            # The handler reads a body.
            if self._http is not None and self._http.their_state in (h11.DONE, MIGHT_SWITCH):
                data = await self._stream.read(HEAD_BLOCK)
                if data:
                    self._feed(data)
                else:
                    task.cancel()
                    return
            await self._stream.loop.sleep(LEFT_S)
            while not self._stream.peer_left:
                await self._stream.loop.sleep(LEFT_S)
        task.cancel()

    async def _refuse(self, http: h11.Connection, error: Exception) -> None:
        status = getattr(error, "error_status_hint", 400)
        _limited_log.log(logging.INFO, "refused a request of %s: %s", self._stream.remote, error)
        with contextlib.suppress(h11.LocalProtocolError, OSError):
            await self._send(http, None, text(status, "400 Bad Request" if status == 400 else "Bad Request"))
            await self._stream.end()

    async def _send(self, http: h11.Connection, request: Request | None, answer: Response) -> None:
        whole = answer.body if isinstance(answer.body, bytes) else None
        headers = [
            ("Date", formatdate(time.time(), usegmt=True)),
            ("Content-Type", answer.content_type),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers.items(),
        ]
        length = len(whole) if whole is not None else answer.length
        if answer.status == HTTPStatus.NOT_MODIFIED:
            pass  # the length would be that of the whole file (RFC 9110, 8.6)
        elif length is not None:
            headers.append(("Content-Length", str(length)))
        elif request is None or not _is_http_1_1(http):
            headers.append(("Connection", "close"))
        else:
            headers.append(("Transfer-Encoding", "chunked"))
        if http.their_state not in (h11.DONE, MIGHT_SWITCH):
            headers.append(("Connection", "close"))  # the body was not read, so no request can follow
        reason = HTTPStatus(answer.status).phrase.encode()
        out = http.send(h11.Response(status_code=answer.status, reason=reason, headers=headers)) or b""
        head_only = request is not None and request.method == "HEAD"
        if whole is not None:
            if not head_only:
                out += http.send(h11.Data(data=whole)) or b""
            out += http.send(h11.EndOfMessage()) or b""
            with self._send_budget.pending(self._stream, len(out)):
                await self._stream.write(out)
            return
        await self._stream.write(out)
        if head_only:
            await answer.body.aclose()  # type: ignore[union-attr]  # bytes have returned above
        else:
            await self._send_parts(http, answer)
        await self._stream.write(http.send(h11.EndOfMessage()) or b"")

    async def _send_parts(self, http: h11.Connection, answer: Response) -> None:
        """Send the parts of the body one after the other, until the client disconnects."""
        assert not isinstance(answer.body, bytes)
        loop = self._stream.loop
        sending = loop.spawn(self._copy(http, answer.body), "send parts")
        watch = loop.spawn(self._watch(sending), "watch client")
        try:
            await sending
        except Cancelled:
            sending.cancel()
            raise ConnectionResetError("the client went away") from None
        finally:
            watch.cancel()

    async def _copy(self, http: h11.Connection, body: Any) -> None:
        try:
            async for part in body:
                pieces: list[Any] = http.send_with_data_passthrough(h11.Data(data=part)) or []
                if len(part) < JOINED_BYTES:
                    pieces = [b"".join(pieces)]
                with self._send_budget.pending(self._stream, len(part)):
                    for piece in pieces:
                        await self._stream.write(piece)
        finally:
            await body.aclose()

    # Upgrades

    async def _switch_protocol(self, upgraded: Upgraded) -> None:
        assert self._http is not None
        self._http.next_event()
        await upgraded.carry(self._stream, bytes(self._http.trailing_data[0]))


async def _call(serve: Serve, stream: Stream, request: Request) -> Response | Upgraded:
    return await serve(stream, request)


def _is_http_1_1(http: h11.Connection) -> bool:
    return http.their_http_version is not None and http.their_http_version >= b"1.1"
