"""Exec probes: a command run in the container by the runtime (rpc ExecSync)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from actors._base import MailboxActor
from actors._cri.call import Call, beside
from actors._cri.client import Cri
from actors._cri.errors import CriDeadline, CriError
from actors._net.probing.outcome import MAX_BODY_BYTES, Outcome
from proto.v1.scalars.duration import SECOND, format_duration

_SLACK_S = 1.0
"""Time for the runtime to kill a command after its timeout and to answer."""
_UNFINISHED_S = 30.0
"""Time for the call after that. A runtime under load may still be starting the command.
After its start containerd kills it, but not if the call was cancelled before: then it runs on for good."""
MOST_UNFINISHED = 3
"""Calls of one command in one container that are given that time. Other probes of the container go on."""
_ALIVE_S = 2.0
"""Deadline of the check that the runtime itself answers."""
_CUT_OFF_S = 30.0
"""Time from this process's start in which a late command does not count if its container has not answered yet.
The death of the process before it may have cancelled an ExecSync that was starting its command. Then containerd 1.6
starts the container's next command 30 s late. A command that did start and is killed at its timeout has an answer."""

_Command = tuple[str, tuple[str, ...]]
"""Container ID, and the words of the command."""


class ExecProbes:
    """Runs the commands of all exec probes. For the actor's thread."""

    def __init__(self, actor: MailboxActor, cri: Cri) -> None:
        self._actor, self._cri = actor, cri
        self._unfinished: dict[_Command, set[Call[Any]]] = {}
        """Calls that have not ended in their probe's time."""
        self._just_started = True
        self._answered: set[str] = set()
        """IDs of containers with an answer since this process's start, while that matters."""
        actor.after(_CUT_OFF_S, self._have_run)

    def _have_run(self) -> None:
        self._just_started = False
        self._answered.clear()

    async def run(self, container_id: str, command: Sequence[str], timeout_s: float) -> Outcome:
        """Run `command`. Exit code 0 is success. Other codes and a timeout are failures; a runtime's error is neither.

        With MOST_UNFINISHED calls it counts as timed out without another call. The call of a cancelled probe ends by
        itself, at its timeout.
        """
        of_probe = container_id, tuple(command)
        if len(self._unfinished.get(of_probe, ())) >= MOST_UNFINISHED:
            return await self._late(of_probe, timeout_s)
        call = self._cri.exec_sync(container_id, command, int(timeout_s))
        answered = beside(call)
        timer = self._actor.after(timeout_s + _SLACK_S, lambda: answered.set_error(TimeoutError()))
        try:
            answer = await answered
        except CriDeadline:
            self._note_answer(container_id)
            return _timed_out(command, timeout_s)
        except CriError as error:
            return Outcome("errored", error.grpc_text())
        except TimeoutError:
            self._leave(of_probe, call)
            return await self._late(of_probe, timeout_s)
        finally:
            timer.cancel()
        self._note_answer(container_id)
        output = (answer.stdout + answer.stderr)[:MAX_BODY_BYTES].decode("utf-8", "replace")
        return Outcome("success" if answer.exit_code == 0 else "failure", output)

    def _leave(self, of_probe: _Command, call: Call[Any]) -> None:
        """Cancel the call later, unless it ends."""
        self._unfinished.setdefault(of_probe, set()).add(call)
        timer = self._actor.after(_UNFINISHED_S, call.cancel)

        def ended(_: object) -> None:
            timer.cancel()
            self._actor.post(self._forget, of_probe, call)

        call.on_end(ended)

    def _forget(self, of_probe: _Command, call: Call[Any]) -> None:
        calls = self._unfinished[of_probe]
        calls.discard(call)
        if not calls:
            del self._unfinished[of_probe]

    def _note_answer(self, container_id: str) -> None:
        if self._just_started:
            self._answered.add(container_id)

    async def _late(self, of_probe: _Command, timeout_s: float) -> Outcome:
        """The command cannot be killed, or a child of it holds its pipe. A hang of the runtime is no failure."""
        try:
            await self._cri.version(timeout=_ALIVE_S)
        except CriError:
            return Outcome("errored", "the runtime does not answer")
        container_id, command = of_probe
        if self._just_started and container_id not in self._answered:
            return Outcome("errored", "the runtime does not answer for this container")
        return _timed_out(command, timeout_s)


def _timed_out(command: Sequence[str], timeout_s: float) -> Outcome:
    quoted = json.dumps(" ".join(command), ensure_ascii=False)  # as Go's %q, for most commands
    lasted = format_duration(round(timeout_s * SECOND))
    return Outcome("failure", f"command timed out: {quoted} timed out after {lasted}")
