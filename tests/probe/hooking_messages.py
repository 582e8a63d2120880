"""Messages of the actor that sends hooks."""

from proto.wire.message import Message, Request


class Came(Message, frozen=True, kw_only=True):
    kind: str
    output: str


class Hook(Request[Came], frozen=True, kw_only=True):
    port: int
    path: str
    timeout_s: float
    scheme: str = "http"
    host: str = "127.0.0.1"
