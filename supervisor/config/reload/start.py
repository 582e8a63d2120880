"""What the agent is handed for live configuration: where its configuration came from, and what is known of it."""

from __future__ import annotations

import msgspec

from supervisor.config.reload.candidate import Candidate, Entry

Seen = tuple[tuple[str, int, int, int], ...]
"""Path, inode, mtime in ns and size of every file; equal when nothing has changed."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One command line and its files."""

    arguments: tuple[str, ...]
    flags: str
    """Digest of `arguments`."""
    config: str
    config_dir: str
    seen: Seen
    """The files before they were read."""
    candidate: Candidate
    """What the agent starts with."""
    good: Candidate | None = None
    bad: tuple[str, ...] = ()
    refused: str = ""
    """Digest of what the files hold when that is not what the agent starts with."""
    entries: tuple[Entry, ...] = ()
    """To be reported once the agent can."""
