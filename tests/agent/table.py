"""Tables of small pods: all pods of a table run at once on one agent, and each is checked in its final state.

A case's containers print their observations; the agent reports their status.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from proto import v1
from proto.pods.events import ListEvents
from tests.agent.agent import Agent, container, pod
from tests.agent.faults import Eye
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

SETTLES_S = 90.0
"""For a whole table on a busy machine; one pod alone takes about a second."""
SAID_S = 10.0
"""From a pod's status to what is told beside it."""


class Seen:
    """One pod as it is now."""

    def __init__(self, table: Table, name: str, item: dict[str, Any]) -> None:
        self.table, self.name, self.item = table, name, item
        self.status: dict[str, Any] = item.get("status", {})
        self.phase: str = self.status.get("phase", "")

    def container(self, name: str = "c") -> dict[str, Any]:
        """Status of a container of any kind; empty when there is none."""
        kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        every = (one for kind in kinds for one in self.status.get(kind, ()))
        return next((one for one in every if one["name"] == name), {})

    def state(self, name: str = "c", which: str = "state") -> dict[str, Any]:
        """Its state without the kind: reason, message, exitCode, ..."""
        return next(iter(self.container(name).get(which, {}).values()), {})

    def reason(self, name: str = "c") -> str:
        return str(self.state(name).get("reason", ""))

    def message(self, name: str = "c") -> str:
        return str(self.state(name).get("message", ""))

    def log(self, name: str = "c", life: int = 0) -> str:
        """Return the log of one restart of a container, without the prefixes of the CRI format."""
        meta = self.item["metadata"]
        directory = self.table.agent.dir / "logs" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        return log_text(directory / name / f"{life}.log")

    def events(self, reason: str) -> list[str]:
        """Messages of the pod's events of a reason, oldest first."""
        uid = self.item["metadata"]["uid"]
        found = self.table.eye.client.ask("events", ListEvents(), 5).events
        return [one.message or "" for one in found if one.involved_object.uid == uid and one.reason == reason]

    def lines(self, name: str = "c") -> list[str]:
        return self.log(name).splitlines()

    def values(self, name: str = "c") -> dict[str, str]:
        """Lines `NAME=value` or `Name:<tab>value` of its output."""
        found = {}
        for line in self.lines(name):
            key, mark, value = line.partition(":\t" if ":\t" in line else "=")
            if mark:
                found[key] = value.strip()
        return found


def log_text(path: Path) -> str:
    """The output in a log file of the CRI format; empty while there is none."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return ""
    parts = [line.split(" ", 3) for line in lines]
    return "".join(text + ("" if tag.startswith("P") else "\n") for _, _, tag, text in parts)


def over(seen: Seen) -> bool:
    """Succeeded or Failed."""
    return seen.phase in ("Succeeded", "Failed")


def waits(*reasons: str) -> Callable[[Seen], bool]:
    """Its container `c` waits for one of these reasons."""
    return lambda seen: seen.reason() in reasons


def ready(seen: Seen) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in seen.status.get("conditions", ()))


@dataclass(frozen=True)
class Case:
    """A pod, when to look at it, and what must be seen then."""

    manifest: Mapping[str, Any]
    check: Callable[[Seen], None]
    settled: Callable[[Seen], bool] = over


@dataclass
class Table:
    """The pods of a table on their agent."""

    agent: Agent
    eye: Eye
    cases: Mapping[str, Case] = field(default_factory=dict)

    def see(self, name: str) -> Seen | None:
        found = self.eye.pods().get(name)
        return Seen(self, name, v1.to_dict(found)) if found is not None else None

    def check(self, name: str) -> None:
        """Wait until the case has settled, then look."""
        case = self.cases[name]
        last: Seen | None = None

        def settled() -> bool:
            nonlocal last
            last = self.see(name)
            return last is not None and case.settled(last)

        try:
            wait_for(settled, SETTLES_S)
        except AssertionError:
            shown = last.status if last is not None else "not shown"
            raise AssertionError(f"{name} does not settle: {shown}; log: {self.agent.log}") from None
        assert last is not None
        self._check(case, last)

    def _check(self, case: Case, seen: Seen) -> None:
        """Check what was seen. Logs and events are read anew: they go another way than the status, and may be later.

        containerd may write an output's last lines after the exit.
        """

        def is_right() -> bool:
            try:
                case.check(seen)
            except (AssertionError, LookupError, ValueError):
                return False
            return True

        with contextlib.suppress(AssertionError):
            wait_for(is_right, SAID_S)
            return
        case.check(seen)  # says what is wrong


@contextmanager
def running(
    containerd: ContainerdInstance,
    cases: Mapping[str, Case],
    prepare: Callable[[Agent], tuple[str, ...]] = lambda _: (),
) -> Iterator[Table]:
    """The table on an agent of its own. `prepare` puts files in place before the start and returns further flags."""
    with closing(Agent(containerd)) as agent:
        # A pod that needs the periodic sync to reach its state has missed an event.
        config = yaml.safe_load(agent.config.read_text())
        agent.config.write_text(yaml.safe_dump({**config, "syncFrequency": "1h"}))
        flags = prepare(agent)
        agent.start(*flags)
        eye = Eye(agent)
        with closing(eye.client):
            for name, case in cases.items():
                agent.write(name, {**case.manifest, "metadata": {**case.manifest["metadata"], "name": name}})
            yield Table(agent, eye, cases)


def once(script: str, *, spec: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A pod of one container `c` that runs a script to its end; `spec` is the pod's, the rest the container's."""
    return pod("", container("c", script, **fields), **{"restartPolicy": "Never", **(spec or {})})
