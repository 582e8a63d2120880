"""The reload state that `supervisor start` hands to the agent: command line, files and configurations."""

from __future__ import annotations

import msgspec

from supervisor.config.reload.candidate import Candidate, Entry
from supervisor.config.reload.look import Seen


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
    """The configuration that the agent starts with."""
    good: Candidate | None = None
    bad: tuple[str, ...] = ()
    refused: str = ""
    """Digest of the files when the agent starts with another configuration."""
    entries: tuple[Entry, ...] = ()
    """Reported once the agent runs."""
