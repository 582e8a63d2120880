"""Exec probes: a command run in the container by the runtime (rpc ExecSync)."""

from __future__ import annotations

from collections.abc import Sequence

from actors._base import MailboxActor
from actors._cri.call import beside
from actors._cri.client import Cri
from actors._cri.errors import CriDeadline, CriError
from actors._net.probing.outcome import MAX_BODY_BYTES, Outcome

_SLACK_S = 1.0
"""Given to the runtime to kill a command that ran over its time and to say so."""
_ALIVE_S = 2.0
"""Deadline of the question whether the runtime itself answers."""


async def run(actor: MailboxActor, cri: Cri, container_id: str, command: Sequence[str], timeout_s: float) -> Outcome:
    """Run `command`: exit code 0 is success, any other and a timeout are failures, the runtime's trouble is neither.

    A probe that is cancelled leaves its call to end by itself, as its timeout has it.
    """
    call = cri.exec_sync(container_id, command, int(timeout_s))
    answered = beside(call)
    timer = actor.after(timeout_s + _SLACK_S, lambda: answered.set_error(TimeoutError()))
    try:
        answer = await answered
    except CriDeadline:
        return _timed_out(command, timeout_s)
    except CriError as error:
        return Outcome("errored", error.grpc_text())
    except TimeoutError:
        call.cancel()
        if await _answers(cri):  # the command cannot be killed, or something it started holds its pipe
            return _timed_out(command, timeout_s)
        return Outcome("errored", "the runtime does not answer")
    finally:
        timer.cancel()
    output = (answer.stdout + answer.stderr)[:MAX_BODY_BYTES].decode("utf-8", "replace")
    return Outcome("success" if answer.exit_code == 0 else "failure", output)


async def _answers(cri: Cri) -> bool:
    """True when the runtime answers at all: when it hangs, that says nothing about the container."""
    try:
        await cri.version(timeout=_ALIVE_S)
    except CriError:
        return False
    return True


def _timed_out(command: Sequence[str], timeout_s: float) -> Outcome:
    return Outcome("failure", f'command timed out: "{" ".join(command)}" timed out after {timeout_s:g}s')
