"""Runs the process that reads changed configuration files, `supervisor.cli.agent.resolve`, within a deadline."""

from __future__ import annotations

import msgspec

from proto.common import untrusted
from supervisor.config.reload.candidate import Resolved
from supervisor.config.reload.reader import DEADLINE_S, Reader


class Resolver(Reader):
    """One run. Its `pidfd` becomes readable at its end; then call `result`."""

    def __init__(self, arguments: tuple[str, ...], now: float) -> None:
        """Raises OSError."""
        super().__init__("supervisor.cli.agent.resolve", msgspec.json.encode(arguments), now)

    def result(self) -> Resolved:
        """The process's result, or an error when it gave none. Call after its end; closes the descriptors."""
        content = self.content()
        if self.overdue:
            text = f"cannot read the files within {DEADLINE_S:g} s; check their file system"
            return Resolved(digest=text, error=text)
        try:
            return untrusted.decode_json(content, Resolved)
        except msgspec.DecodeError:
            text = "cannot read the files: the process that reads them failed; its error is in the log"
            return Resolved(digest=text, error=text)
