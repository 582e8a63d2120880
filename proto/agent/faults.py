"""Faults that a user injects into a running agent: the record of one, and the kinds with the values that each needs.

`supervisor fault` makes them, the supervisor keeps them in RUN_DIR/faults.json, and actors read that file when they
start. Injection is off unless the agent was started with --fault-injection.
"""

from __future__ import annotations

from typing import NamedTuple

from proto.wire.message import Record

FILE = "faults.json"
"""Below the run directory: the active faults, as a JSON array of `Fault`."""


class Fault(Record, frozen=True, kw_only=True):
    """One fault. It ends at `until` without a further message, also when the supervisor is dead."""

    id: int = 0
    """Given by the supervisor."""
    kind: str
    """A key of KINDS."""
    actor: str = ""
    """The actor that has the fault; empty: every actor that makes such calls."""
    peer: str = ""
    """The receiver of slow or lost messages."""
    words: tuple[str, ...] = ()
    """For `cri` and `mount`: a pod's UID, and the IDs of its sandbox and containers. For `exception`: message types."""
    value: float = 0.0
    """Unit and meaning are those of the kind."""
    until: float = 0.0
    """The end, in seconds of CLOCK_MONOTONIC; 0: it happens once."""


class Kind(NamedTuple):
    """One kind of fault."""

    help: str
    value: str = ""
    """Unit and meaning of `value`; empty: it has none."""
    default: float = 0.0
    lasts: bool = True
    """False: it happens once, without a duration."""
    scope: str = "actor"
    """`actor`: one must be named; `peer`: also a receiver; `pod`: a pod; `agent`: all actors unless one is named."""


KINDS: dict[str, Kind] = {
    "kill": Kind("end its process with SIGKILL", lasts=False),
    "stop": Kind("stop its process with SIGSTOP; SIGCONT at the end"),
    "socket": Kind("remove its socket file", lasts=False),
    "busy": Kind("keep its mailbox's thread busy"),
    "leak": Kind("let its memory grow", "MiB in all", 64.0),
    "exception": Kind("raise an exception in its next handler", lasts=False),
    "start": Kind("raise an exception in each of its starts, and end the present incarnation"),
    "slow": Kind("delay its messages to another actor", "seconds", 0.5, scope="peer"),
    "lose": Kind("lose its messages to another actor", "share, 0 to 1", 1.0, scope="peer"),
    "full": Kind("refuse its messages to another actor, as a full queue does", scope="peer"),
    "clock": Kind("move its time of day", "seconds", 3600.0),
    "disk": Kind("fail its writes of checkpoints with ENOSPC", scope="agent"),
    "cri": Kind("leave a pod's calls of the runtime without an answer", scope="pod"),
    "mount": Kind("let reads of a pod's volumes hang, as on a dead mount", scope="pod"),
    "throttle": Kind("answer requests to the API server with 429", scope="agent"),
    "away": Kind("let requests to the API server fail as without a network", scope="agent"),
}
OF_THE_SUPERVISOR = frozenset({"kill", "stop", "socket"})
"""Kinds that need no code in the actor."""
MAX_S = 3600.0
MAX_ACTIVE = 100
MAX_LEAK_MIB = 4096
MAX_VALUE = 86_400.0 * 366


def wrong(fault: Fault, actors: frozenset[str]) -> str:
    """The reason why a fault cannot be injected; empty when it can."""
    kind = KINDS.get(fault.kind)
    if kind is None:
        return f"no fault {fault.kind!r}; there are: {', '.join(KINDS)}"
    unknown = [name for name in (fault.actor, fault.peer) if name and name not in actors]
    problems = (
        (bool(unknown), f"no actor {''.join(unknown[:1])!r}; there are: {', '.join(sorted(actors))}"),
        (kind.scope in ("actor", "peer") and not fault.actor, f"{fault.kind} needs an actor"),
        (kind.scope == "peer" and fault.peer in ("", fault.actor), f"{fault.kind} needs another actor as the receiver"),
        (kind.scope == "pod" and not fault.words, f"{fault.kind} needs a pod"),
        (not abs(fault.value) <= MAX_VALUE, f"a value of {fault.value:g} is not possible"),  # true for NaN, too
        (fault.kind == "leak" and not 0 < fault.value <= MAX_LEAK_MIB, f"leak takes 1 to {MAX_LEAK_MIB} MiB"),
        (fault.kind == "slow" and not 0 <= fault.value <= MAX_S, f"slow takes 0 to {MAX_S:g} seconds"),
    )
    return next((text for holds, text in problems if holds), "")
