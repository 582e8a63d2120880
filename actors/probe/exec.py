"""Exec probes: a command run in the container by the runtime (rpc ExecSync)."""

from __future__ import annotations

from collections.abc import Sequence

from actors._base import MailboxActor
from actors._cri.call import beside
from actors._cri.client import Cri
from actors._cri.errors import CriDeadline, CriError
from actors._net.probing.outcome import MAX_BODY_BYTES, Outcome

_SLACK_S = 1.0
"""Time for the runtime to kill a command after its timeout and to answer."""
_ALIVE_S = 2.0
"""Deadline of the check that the runtime itself answers."""


async def run(actor: MailboxActor, cri: Cri, container_id: str, command: Sequence[str], timeout_s: float) -> Outcome:
    """Run `command`. Exit code 0 is success. Other codes and a timeout are failures; a runtime's error is neither.

    The call of a cancelled probe ends by itself, at its timeout.
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
        if await _answers(cri):  # the command cannot be killed, or a child of it holds its pipe
            return _timed_out(command, timeout_s)
        return Outcome("errored", "the runtime does not answer")
    finally:
        timer.cancel()
    output = (answer.stdout + answer.stderr)[:MAX_BODY_BYTES].decode("utf-8", "replace")
    return Outcome("success" if answer.exit_code == 0 else "failure", output)


async def _answers(cri: Cri) -> bool:
    """True when the runtime answers. A hang of the runtime is no failure of the container."""
    try:
        await cri.version(timeout=_ALIVE_S)
    except CriError:
        return False
    return True


def _timed_out(command: Sequence[str], timeout_s: float) -> Outcome:
    return Outcome("failure", f'command timed out: "{" ".join(command)}" timed out after {timeout_s:g}s')
