"""Decides from the findings if the agent may start, and words the refusal. Pure.

A living agent on the same directories, cgroup or port always refuses the start. Pods that another agent left refuse it
unless --take-over says that they are ours from now on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from supervisor.ownership.places import Place

SHOWN = 3
"""So many agents, pods and ports are named in one message; the rest is a number."""

_STOP_COMMANDS = {
    "kubelet": "systemctl stop kubelet",
    "k3s": "systemctl stop k3s (or k3s-agent)",
    "k0s": "k0s stop",
    "rke2": "systemctl stop rke2-server (or rke2-agent)",
    "kubelite": "snap stop microk8s",
}


class Process(NamedTuple):
    """A process that is in the way."""

    pid: int
    name: str
    uid: int = 0
    run_dir: str = ""
    """The run directory of a supervisor; empty for other processes and where it cannot be seen."""


class Held(NamedTuple):
    """A place that is locked, lies in a locked cgroup, or has one below it."""

    place: Place
    by: Process | None
    """None: no process that is visible from here."""
    overlaps: str = ""
    """`contains` or `is inside`, said of the holder's cgroup and ours; empty when it is the same directory."""


class Agent(NamedTuple):
    """A kubelet, or a program that has one in it, which serves places of ours without a lock on them."""

    process: Process
    serves: tuple[str, ...]
    """Labels of our places."""
    lock_file: str = ""
    """The lock file that it holds; empty for none."""


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


class Found(NamedTuple):
    """Everything that the look found."""

    held: tuple[Held, ...] = ()
    agents: tuple[Agent, ...] = ()
    ports: tuple[Port, ...] = ()
    pods: tuple[ForeignPod, ...] = ()


class Own(NamedTuple):
    """The facts of this agent that the decision needs."""

    uid: int
    run_dir: str
    root_dir: str
    take_over: bool = False


class Decision(NamedTuple):
    """`refusal` is the message of a start that may not be; empty: go on."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    """UIDs of the pods that are taken over."""


def decide(found: Found, own: Own) -> Decision:
    """The first of: claims that others hold, living agents, ports, pods of another agent."""
    serious = [one for one in found.held if _can_be_an_agent(one.by, own.uid)]
    warnings = tuple(_harmless(one) for one in found.held if one not in serious)
    refusal = (
        _claimed(serious, own)
        or _served(found.agents)
        or _ports_taken(found.ports)
        or ("" if own.take_over else _unknown_pods(found.pods, own))
    )
    if refusal:
        return Decision(f"cannot start: {refusal}", warnings)
    return Decision("", warnings, tuple(pod.uid for pod in found.pods))


def _can_be_an_agent(process: Process | None, uid: int) -> bool:
    """An ordinary user's process cannot serve what is root's: it must not keep the agent from starting."""
    return process is None or process.uid in (0, uid)


def _harmless(held: Held) -> str:
    assert held.by is not None
    return (
        f"{_process(held.by)} of uid {held.by.uid} holds a lock on {held.place.path}; it cannot be an agent here, so "
        f"the agent starts without that lock; end that process with: kill {held.by.pid}"
    )


def _claimed(held: list[Held], own: Own) -> str:
    if not held:
        return ""
    first = held[0].by
    theirs = [one for one in held if one.by == first]
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


def _place(held: Held) -> str:
    if not held.overlaps:
        return held.place.label
    return f"a cgroup that {held.overlaps} our {held.place.label}"


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


def _unknown_pods(pods: tuple[ForeignPod, ...], own: Own) -> str:
    if not pods:
        return ""
    shown = "; ".join(f"{pod.uid} in {pod.cgroup} (pid {pod.pid} {pod.command})" for pod in pods[:SHOWN])
    few = len(pods) == 1
    return (
        f"{len(pods)} {'pod of another agent runs' if few else 'pods of another agent run'} below our cgroup root, and "
        f"root directory {own.root_dir} does not know {'it' if few else 'them'}: {shown}{_more(len(pods) - SHOWN)}. "
        "Have that agent end them, choose another --cgroup-root, or name its root directory with --root-dir. If that "
        "agent is gone for good, --take-over makes them ours: those that nobody wants are ended"
    )


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _process(process: Process) -> str:
    return f"{process.name or 'a process'} (pid {process.pid})"


def _once(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
