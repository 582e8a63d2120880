"""The interactive prompt, with history and completion."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.common import Session, client_of
from supervisor.cli.console.lines import LEAVE, Completions, run_line
from supervisor.cli.errors import INTERRUPTED
from supervisor.cli.views import render

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import StyleAndTextTuples


class Repl:
    """The interactive prompt."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last_code = 0

    def loop(self) -> None:
        """Read and run lines until Ctrl-D or `exit`."""
        render.echo(self._greeting())
        prompt = self._prompt_session()
        while True:
            try:
                line = prompt.prompt(self._prompt())
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if line.strip() in LEAVE:
                return
            if line.strip():
                self._last_code = run_line(line, self._session)

    def _greeting(self) -> str:
        hint = "`help` lists commands, Tab completes, Ctrl-D leaves"
        try:
            with client_of(self._session, self._session.place) as client:
                rows = client.actors()
        except (ActorError, ProtocolError, OSError) as error:
            return f"{error}\n{hint}"
        ready = sum(row.state == "ready" for row in rows)
        return f"agent at {self._session.place}, {ready} of {len(rows)} processes ready; {hint}"

    def _prompt(self) -> StyleAndTextTuples:
        failed = self._last_code not in (0, INTERRUPTED)
        if not render.colours():
            return [("", "supervisor> ")]
        return [("bold", "supervisor"), ("fg:ansired" if failed else "fg:ansigreen", "> ")]

    def _prompt_session(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - not for `-c`
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter  # noqa: PLC0415
        from prompt_toolkit.document import Document  # noqa: PLC0415
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory  # noqa: PLC0415

        found = Completions(self._session)

        class FromCommands(Completer):
            def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
                line = document.text_before_cursor
                typed = len(line) - (max(line.rfind(" "), line.rfind("\t")) + 1)
                for name, text in found.of(line):
                    yield Completion(name, start_position=-typed, display_meta=text)

        file = history_file()
        history: History = FileHistory(str(file)) if file else InMemoryHistory()
        return PromptSession(history=history, completer=ThreadedCompleter(FromCommands()), complete_while_typing=False)


def history_file() -> Path | None:
    """$XDG_STATE_HOME/nodevisor/history, by default in ~/.local/state; None when it cannot be written."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(base) / "nodevisor" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        render.echo(f"supervisor: cannot keep a history in {path}: {error.strerror}", err=True)
        return None
    return path
