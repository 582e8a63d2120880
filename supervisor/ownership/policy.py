"""Decides from the collected facts if the agent may start, and writes the refusal. Pure.

A living agent on the same directories or cgroup always prevents the start, and so does any process on a port of ours.
Running pods without a mark of ours prevent it unless --take-over is given. A lock of another ordinary user only warns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proto.node.runtime import EMBEDDED
from supervisor.ownership.places import Place

SHOWN = 3
"""The most agents, pods or ports that one message lists."""

_STOP_COMMANDS = {
    "kubelet": "systemctl stop kubelet",
    "k3s": "systemctl stop k3s (or k3s-agent)",
    "k0s": "k0s stop",
    "rke2": "systemctl stop rke2-server (or rke2-agent)",
    "kubelite": "snap stop microk8s",
}


class Process(NamedTuple):
    """A process that prevents the start."""

    pid: int
    name: str
    uid: int = 0
    run_dir: str = ""
    """The run directory of a supervisor; empty for other processes and if it is not visible."""


class LockedPlace(NamedTuple):
    """A place that is locked, lies in a locked cgroup, or contains a locked cgroup."""

    place: Place
    by: Process | None
    """None if the process is not visible."""
    overlaps: str = ""
    """`contains` or `is inside`: the relation of the holder's cgroup to ours. Empty for the same directory."""


class Agent(NamedTuple):
    """A kubelet, or a program with a kubelet in it, that serves places of ours without a lock on them."""

    process: Process
    serves: tuple[str, ...]
    """Labels of our places."""
    lock_file: str = ""
    """The file that it has locked (the kubelet's --lock-file); empty for none."""


class Port(NamedTuple):
    """A port of ours on which another process listens."""

    number: int
    option: str
    by: Process | None


class ForeignPod(NamedTuple):
    """A pod with living processes below our cgroup root that our root directory does not know."""

    uid: str
    cgroup: str
    pid: int
    command: str


class RuntimeFacts(NamedTuple):
    """The container runtime of the last start, and if pods of ours run."""

    former: str = ""
    """`unix:///PATH` or `embedded`; empty: unknown."""
    alive: str = ""
    """A pod of ours with a living process, for messages; empty: none runs."""
    embedded: str = ""
    """A container of the embedded runtime that runs, for messages; empty: none runs."""
    damaged: str = ""
    """Why the file of the last start cannot be used."""
    record: str = ""
    """The paths of the files that name `former`, for messages."""


class Facts(NamedTuple):
    """All collected facts."""

    locked: tuple[LockedPlace, ...] = ()
    agents: tuple[Agent, ...] = ()
    ports: tuple[Port, ...] = ()
    pods: tuple[ForeignPod, ...] = ()
    runtime: RuntimeFacts = RuntimeFacts()


class Own(NamedTuple):
    """Facts about the agent that starts."""

    uid: int
    run_dir: str
    root_dir: str
    take_over: bool = False
    endpoint: str = ""
    """The chosen container runtime: `unix:///PATH` or `embedded`; empty: none is chosen."""


class Decision(NamedTuple):
    """`refusal` is the message of a refused start; empty to start."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    """UIDs of pods to take over."""


def decide(facts: Facts, own: Own) -> Decision:
    """Check, in this order: locked places, agents without a lock, ports, our pods' runtime, pods without a mark."""
    serious = [one for one in facts.locked if _can_be_an_agent(one.by, own.uid)]
    warnings = tuple(_harmless(one) for one in facts.locked if one not in serious)
    warnings += _abandoned(facts.runtime, own.endpoint)
    refusal = (
        _claimed(serious, own)
        or _served(facts.agents)
        or _ports_taken(facts.ports)
        or _other_runtime(facts.runtime, own.endpoint)
        or ("" if own.take_over else _unknown_pods(facts.pods, own))
    )
    if refusal:
        return Decision(f"cannot start: {refusal}", warnings)
    return Decision("", warnings, tuple(pod.uid for pod in facts.pods))


def _can_be_an_agent(process: Process | None, uid: int) -> bool:
    """True unless it is another ordinary user's process, which cannot serve root's places."""
    return process is None or process.uid in (0, uid)


def _harmless(locked: LockedPlace) -> str:
    assert locked.by is not None
    return (
        f"{_process(locked.by)} of uid {locked.by.uid} holds a lock on {locked.place.path}; it cannot be an agent "
        f"here, so the agent starts without that lock; end that process with: kill {locked.by.pid}"
    )


def _claimed(locked: list[LockedPlace], own: Own) -> str:
    if not locked:
        return ""
    first = locked[0].by
    theirs = [one for one in locked if one.by == first]
    options = ", ".join(_once(one.place.option for one in theirs))
    if first is not None and first.run_dir and first.run_dir == own.run_dir:
        return (
            f"{own.run_dir} is in use by the supervisor with pid {first.pid}; stop it "
            f"(`supervisor stop --run-dir {own.run_dir}`), or choose another --run-dir and other {options}"
        )
    places = ", ".join(_once(_place(one) for one in theirs))
    if first is None:
        return (
            f"a process that cannot be seen from here (in another pid namespace, or another user's) serves {places}; "
            f"stop that agent, or choose other places with {options}"
        )
    if first.run_dir:
        who = f"another nodevisor, pid {first.pid} with run directory {first.run_dir},"
        end = f"end it with `supervisor stop --run-dir {first.run_dir}`"
    else:
        who = f"{_process(first)}"
        end = f"end that process (kill {first.pid})"
    return f"{who} serves {places}; {end}, or choose other places with {options}"


def _place(locked: LockedPlace) -> str:
    if not locked.overlaps:
        return locked.place.label
    return f"a cgroup that {locked.overlaps} our {locked.place.label}"


def _served(agents: tuple[Agent, ...]) -> str:
    if not agents:
        return ""
    first, *others = agents
    lock = f" and holds lock file {first.lock_file}" if first.lock_file else ""
    more = f" (so do {_names(others)})" if others else ""
    stop = _STOP_COMMANDS.get(first.process.name, f"kill {first.process.pid}")
    return (
        f"{_process(first.process)} serves {', '.join(first.serves)}{lock}{more}; two agents would end each other's "
        f"pods. To take its pods over, stop it first: {stop}. To run beside it, choose other directories and another "
        "--cgroup-root"
    )


def _names(agents: list[Agent]) -> str:
    shown = ", ".join(_process(one.process) for one in agents[:SHOWN])
    return shown + _more(len(agents) - SHOWN)


def _ports_taken(ports: tuple[Port, ...]) -> str:
    if not ports:
        return ""
    parts = []
    for port in ports[:SHOWN]:
        who = "a process that cannot be seen from here" if port.by is None else _process(port.by)
        if port.by is not None and port.by.run_dir:
            who = f"another nodevisor, pid {port.by.pid} with run directory {port.by.run_dir}"
        parts.append(f"port {port.number} is in use by {who}")
    options = ", ".join(_once(port.option for port in ports))
    return f"{' and '.join(parts)}; stop it, or choose another port with {options}"


def _other_runtime(last: RuntimeFacts, chosen: str) -> str:
    """The refusal of another runtime than that of pods that run: it would start each of them a second time."""
    if not last.alive or not last.former or chosen in ("", last.former):
        return ""
    return (
        f"container runtime {last.former} runs pods of ours ({last.alive}), and {chosen} would start them a second "
        f"time; start with --container-runtime-endpoint={last.former}, or end the pods before the change (drain the "
        f"node, and take the manifests away). If both are one runtime, remove {last.record}"
    )


def _abandoned(last: RuntimeFacts, chosen: str) -> tuple[str, ...]:
    """The warning of containers that an older release has left on the embedded runtime."""
    if not last.embedded or chosen in ("", EMBEDDED):
        return ()
    return (f"{last.embedded}, runs, and no agent will manage it on {chosen}; if it is not needed, kill that process",)


def lost_runtime(last: RuntimeFacts) -> str:
    """The refusal to choose a runtime while pods of ours run on an unknown or silent runtime."""
    why = last.damaged or "no container runtime answers on the usual sockets"
    return (
        f"{why}, and pods of ours run ({last.alive}): another runtime would start them a second time; start theirs, "
        "and name it with --container-runtime-endpoint"
    )


def _unknown_pods(pods: tuple[ForeignPod, ...], own: Own) -> str:
    if not pods:
        return ""
    shown = "; ".join(f"{pod.uid} in {pod.cgroup} (pid {pod.pid} {pod.command})" for pod in pods[:SHOWN])
    few = len(pods) == 1
    return (
        f"{len(pods)} {'pod of another agent runs' if few else 'pods of another agent run'} below our cgroup root, and "
        f"root directory {own.root_dir} does not know {'it' if few else 'them'}: {shown}{_more(len(pods) - SHOWN)}. "
        "Have that agent end them, choose another --cgroup-root, or name its root directory with --root-dir. If that "
        "agent is gone for good, --take-over makes them ours: pods without a manifest are ended"
    )


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _process(process: Process) -> str:
    return f"{process.name or 'a process'} (pid {process.pid})"


def _once(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
