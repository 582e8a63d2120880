"""Keys of remote consoles, and the first frame of their messages. The actor takes only the messages of every actor.

A remote console connects a DEALER with CURVE to the TCP port. Its messages have three frames: target, header and body.
The target is an actor's name or `supervisor`. `Subscribe` to the target `world` or `tap:ACTOR` starts a stream, whose
messages have the target as first frame and then the publisher's. Answers have the target, header and body.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from proto.agent.console_roles import Role

SUBSCRIBE = "Subscribe"
"""The type in the header that starts a stream."""
WORLD, TAP = "world", "tap:"
KEY_NAME = "^[a-z0-9][a-z0-9._-]{0,62}$"
_Z85 = Annotated[str, msgspec.Meta(min_length=40, max_length=40)]


class ConsoleKey(msgspec.Struct, frozen=True, kw_only=True):
    """A client's key file. Keys are Z85 texts of CURVE keys (https://rfc.zeromq.org/spec/32/)."""

    name: str
    role: Role
    public: _Z85
    secret: _Z85
    server: _Z85
    """The server's public key: the client refuses any other server."""


class AuthorizedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that may connect."""

    name: Annotated[str, msgspec.Meta(pattern=KEY_NAME)]
    role: Role
    public: _Z85
    added: str = ""
    """RFC 3339."""


class AuthorizedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The file keys.json."""

    keys: tuple[AuthorizedKey, ...] = ()


class ServerKey(msgspec.Struct, frozen=True, kw_only=True):
    """The file server.json."""

    public: _Z85
    secret: _Z85
