"""Messages of the toy actor."""

from proto.wire.message import Message, Request


class Seen(Message, frozen=True, kw_only=True):
    values: tuple[int, ...]
    peers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Remember(Message, frozen=True, kw_only=True):
    value: int


class Recall(Request[Seen], frozen=True, kw_only=True):
    pass


class SlowRecall(Request[Seen], frozen=True, kw_only=True):
    delay_s: float


class AskPeer(Request[Seen], frozen=True, kw_only=True):
    timeout_s: float


class Refuse(Request[Seen], frozen=True, kw_only=True):
    pass


class Crash(Request[Seen], frozen=True, kw_only=True):
    where: str


class Hang(Message, frozen=True, kw_only=True):
    pass
