"""A random fault a second while pods come and go: nothing is lost, doubled or left, and all agree soon after the last.

NODEVISOR_CHAOS_S is the time of faults, NODEVISOR_CHAOS_SEED repeats a run's choices. The API server is real, and the
agent has its own runtime, so that faults concern that, too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from actors._cri.errors import CriError
from actors._kube.errors import ApiError
from actors.runtime.network.choice import bridge_name
from proto.agent.faults import Fault
from proto.agent.supervisor import EndFaults, InjectFault
from proto.node.container_gc import CollectGarbage
from proto.wire.errors import ActorError
from tests.agent.agent import Agent, container, is_ready, pod
from tests.agent.faults import words_of
from tests.agent.joined import Joined, Repeated, embedded_node
from tests.harness import wait_for

CHAOS_S = float(os.environ.get("NODEVISOR_CHAOS_S", "25"))
FULL = CHAOS_S >= 60
PODS = 12 if FULL else 6
"""Pods that come and go, beside STEADY ones."""
STEADY = 4
FILES = 2
AGREED_S = 10.0
"""After the end of the last fault."""
BUSY_S = AGREED_S if FULL else 40.0
"""The same on the machine of the short test, where other work runs."""
EMPTY_S = 60.0
STEP_S = 0.5
STORM_STEP_S = 0.2
MOST_TRIES = 5
RESTARTS = {"defaults": {"max_restarts": 100_000, "backoff_cap_s": 0.5}}
"""So many faults are past any restart intensity: nothing is degraded here."""
LIFE = "echo $HOSTNAME/$NAME >> /host/lives; "
"""Each life of a container is one line, so that no container can be started twice unseen."""
STAYS = "trap exit TERM; sleep 100000 & wait"
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 3, "timeoutSeconds": 20}


class Kind(NamedTuple):
    """The use of one kind of fault here."""

    duration_s: float = 5.0
    value: float = 0.0
    actors: tuple[str, ...] = ()
    """The actors that may have it; empty: all."""


API_CLIENTS = ("config", "status", "node", "events", "objects")
KINDS = {
    "kill": Kind(),
    "stop": Kind(),
    "socket": Kind(),
    "exception": Kind(),
    "start": Kind(duration_s=0.5),
    "busy": Kind(duration_s=3.0),
    "leak": Kind(value=32.0),
    "slow": Kind(value=0.5),
    "lose": Kind(duration_s=2.0, value=0.5),
    "full": Kind(duration_s=2.0),
    "clock": Kind(duration_s=3.0, value=600.0),
    "disk": Kind(duration_s=3.0),
    "cri": Kind(),
    "mount": Kind(actors=("volume",)),
    "throttle": Kind(duration_s=3.0, actors=API_CLIENTS),
    "away": Kind(duration_s=3.0, actors=API_CLIENTS),
    "agent": Kind(),
}
"""`agent` is kill -9 of the supervisor and a start, as systemd makes it. The others are kinds of `supervisor fault`."""
OFTEN = ("kill", "kill", "stop")
"""Every second fault or so ends or stops a process."""


class Storm:
    """The faults of one run, in order."""

    def __init__(self, world: Joined, seed: int, kinds: tuple[str, ...]) -> None:
        self._world, self._chance = world, random.Random(seed)
        self._kinds = kinds
        self._began = time.monotonic()
        self.told: list[str] = []
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        """Count time from now on."""
        self._began = time.monotonic()

    def step(self) -> None:
        """Inject one if less than one a second has been. While the supervisor restarts, faults wait and then catch up.

        What is not possible now is chosen anew: a fault of a pod without pods, for example.
        """
        if self.counts.total() > time.monotonic() - self._began:
            return
        for _ in range(MOST_TRIES):
            if self._try():
                return

    def _try(self) -> bool:
        kind = self._chance.choice((*self._kinds, *(one for one in OFTEN if one in self._kinds)))
        use, turn = KINDS[kind], self._chance.random()
        if kind == "agent":
            return self._world.eye.all_ready() and self._restart_agent()
        rows = {name: row for name, row in self._world.eye.actors().items() if name != "supervisor"}
        names = sorted(use.actors or (rows if kind in ("kill", "stop") else rows.keys() - {"forkserver"}))
        if not names or not set(names) & set(rows):
            return False
        actor, peer = self._chance.choice(names), self._chance.choice(names)
        value = use.value * self._chance.choice((-1, 1)) if kind == "clock" else use.value
        words = pod_words(self._world, int(turn * 1000)) if kind in ("cri", "mount") else ()
        fault = Fault(
            kind=kind,
            actor="" if kind == "cri" else actor,
            peer=peer if kind in ("slow", "lose", "full") and peer != actor else "",
            words=words,
            value=value,
        )
        try:
            self._world.eye.client.ask("supervisor", InjectFault(fault=fault, duration_s=use.duration_s), 5.0)
        except ActorError as error:  # no pod or peer for it, or the actor is just between two incarnations
            self._tell(f"none: {kind} {actor}: {error}")
            return False
        self.counts[kind] += 1
        self._tell(f"{kind} {fault.actor}{f' to {fault.peer}' if fault.peer else ''} {value or ''} {words[:1] or ''}")
        return True

    def _restart_agent(self) -> bool:
        self._world.agent.kill()
        self._world.agent.start(wait=False)
        self.counts["agent"] += 1
        self._tell("agent")
        return True

    def _tell(self, text: str) -> None:
        self.told.append(f"{time.monotonic() - self._began:6.2f} s {text}")

    def end(self) -> None:
        """End the faults that still last."""
        wait_for(self._ended, 30, "the supervisor answers")

    def _ended(self) -> bool:
        with contextlib.suppress(ActorError):
            self._world.eye.client.ask("supervisor", EndFaults(), 5.0)
            return True
        return False


def pod_words(world: Joined, number: int) -> tuple[str, ...]:
    """The UID of one pod, and the IDs of its containers and sandboxes."""
    pods = sorted(world.eye.pods().items())
    if not pods:
        return ()
    return words_of(world.agent, pods[number % len(pods)][1])


class Churn:
    """Pods of the API and of files that come, change and go, and steady ones."""

    def __init__(self, world: Joined, host: Path, seed: int) -> None:
        self.world, self.host = world, host
        self.chance = random.Random(seed)
        self.numbers, self.versions = itertools.count(), itertools.count(1)
        self.steady = [f"steady-{number}" for number in range(STEADY)]
        self.there: list[str] = []
        self.files = [f"file-{number}" for number in range(FILES)]
        self.made = 0

    def fill(self) -> None:
        """The pods of the beginning."""
        for name in self.steady:
            self.world.create(self.pod(name, STAYS, readinessProbe=PROBE, livenessProbe=PROBE))
        for name in self.files:
            self.write(name)
        while len(self.there) < PODS:
            self.add()

    def add(self) -> None:
        """One more, of the next kind in turn."""
        number = next(self.numbers)
        name = f"churn-{number}"
        match number % 4:
            case 0:
                made = self.pod(name, "sleep 2", restartPolicy="Never")
            case 1:
                made = self.pod(name, STAYS, readinessProbe=PROBE)
            case 2:
                made = self.pod(name, STAYS)
                made["spec"]["initContainers"] = [container("i", "exit 0")]
            case _:
                made = self.pod(name, STAYS)
                made["spec"]["volumes"].append({"name": "m", "emptyDir": {"medium": "Memory"}})
                made["spec"]["containers"][0]["volumeMounts"].append({"name": "m", "mountPath": "/m"})
        self.world.create(made)
        self.there.append(name)
        self.made += 1

    def write(self, name: str) -> None:
        """A file with another version of its pod."""
        self.world.agent.write(name, self.pod(name, f": {next(self.versions)}; {STAYS}"))

    def pod(self, name: str, script: str, restartPolicy: str = "Always", **fields: Any) -> dict[str, Any]:  # noqa: N803
        mounts = [{"name": "host", "mountPath": "/host"}]
        one = container("c", LIFE + script, env=[{"name": "NAME", "value": "c"}], volumeMounts=mounts, **fields)
        volumes = [{"name": "host", "hostPath": {"path": str(self.host), "type": "Directory"}}]
        return pod(name, one, restartPolicy=restartPolicy, volumes=volumes)

    def step(self) -> None:
        """Change one pod."""
        with contextlib.suppress(ApiError):
            if len(self.world.stored()) > 3 * PODS:
                return  # the agent starts, and ends none: more would not fit on the node
            if self.chance.random() < 0.15:
                self.write(self.chance.choice(self.files))
                return
            gone = self.there.pop(self.chance.randrange(len(self.there)))
            self.world.delete(gone, self.chance.choice((0, 1, 1, 5)))
            self.add()

    def wanted(self) -> set[str]:
        """The names in the API server."""
        return {*self.steady, *self.there, *(f"{name}-{self.world.node}" for name in self.files)}


def rows(seed: int | None = None, kinds: tuple[str, ...] = tuple(KINDS)) -> list[dict[str, Any]]:
    """One row: the faults, what they cost, and the seed to repeat them."""
    seed = int(os.environ.get("NODEVISOR_CHAOS_SEED", random.randrange(10**6))) if seed is None else seed
    print(f"chaos: NODEVISOR_CHAOS_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="nvc-", dir="/tmp") as host, embedded_node(prepare=without_degraded) as one:
        churn = Churn(one, Path(host), seed)
        return [run(one, churn, Storm(one, seed, kinds), seed)]


def without_degraded(agent: Agent) -> None:
    """Let the agent restart actors as often as this needs."""
    path = agent.dir / "supervisor.yaml"
    path.write_text(yaml.safe_dump(RESTARTS))
    agent.flags += ["--supervisor-config", str(path)]


def run(one: Joined, churn: Churn, storm: Storm, seed: int) -> dict[str, Any]:
    """The faults, then the look at all that there is."""
    churn.fill()
    wait_for(lambda: settled(one, churn), 120, f"the pods of the beginning; log: {one.agent.log}")
    steady = kept(one)
    storm.begin()
    steps, faults = Repeated(churn.step, STEP_S), Repeated(storm.step, STORM_STEP_S)
    time.sleep(CHAOS_S)  # this is the storm
    faults.close()
    steps.close()
    storm.end()
    ended = time.monotonic()
    problems = []
    try:
        wait_for(lambda: settled(one, churn), max(BUSY_S, 60.0))
    except AssertionError:
        problems = unsettled(one, churn)
    agreed_s = time.monotonic() - ended
    problems += [] if agreed_s <= BUSY_S else [f"agreed after {agreed_s:.1f} s"]
    problems += [f"{name} has another container" for name, found in kept(one).items() if steady.get(name) != found]
    problems += doubled(churn)
    problems += left_behind(one, churn)
    if problems:
        print("\n".join([*storm.told, *problems, one.evidence()]), file=sys.stderr, flush=True)
    return {
        "row": "chaos",
        "seed": seed,
        "seconds": int(CHAOS_S),
        "faults": storm.counts.total(),
        "kinds": len(storm.counts),
        "pods": churn.made + STEADY + FILES,
        "agreed_s": agreed_s,
        "problems": "; ".join(problems[:5])[:500] or 0,
        "passed": not problems,
    }


def settled(one: Joined, churn: Churn) -> bool:
    """API server, agent and runtime agree, and every wanted pod is as it should be."""
    return not unsettled(one, churn)


def unsettled(one: Joined, churn: Churn) -> list[str]:
    """The differences."""
    try:
        stored, differences = one.stored(), one.differences()
    except (ActorError, CriError) as error:
        return [f"no answer: {error}"]
    found = [f"{name} is missing" for name in churn.wanted() - stored.keys()]
    found += [f"{name} is not wanted" for name in stored.keys() - churn.wanted()]
    found += [f"{name} is {item['status'].get('phase')}" for name, item in stored.items() if not fine(item)]
    found += [f"{name} is not ready" for name, row in one.eye.actors().items() if row.state != "ready"]
    return found + [f"{name}: {told}" for name, told in differences.items()]


def fine(item: dict[str, Any]) -> bool:
    """A pod that serves, or has succeeded."""
    return is_ready(item) or item["status"].get("phase") == "Succeeded"


def kept(one: Joined) -> dict[str, list[tuple[str, int]]]:
    """Of each steady pod: containers and restarts."""
    return {
        name: [(c["containerID"], c["restartCount"]) for c in item["status"]["containerStatuses"]]
        for name, item in one.stored().items()
        if name.startswith("steady-")
    }


def doubled(churn: Churn) -> list[str]:
    """Containers that lived more than once, and wanted ones that never lived. Each version of a file's pod is one."""
    lines = Counter((churn.host / "lives").read_text().split())
    lives = {line.partition("/")[0]: count for line, count in lines.items() if not line.startswith("file-")}
    found = [f"{name} lived {count} times" for name, count in lives.items() if count > 1]
    return found + [f"{name} never lived" for name in {*churn.there, *churn.steady} if not lives.get(name)]


def left_behind(one: Joined, churn: Churn) -> list[str]:
    """Find leftovers on the node after every pod has been deleted."""
    for name in (*churn.steady, *churn.there):
        with contextlib.suppress(ApiError):
            one.delete(name, 1)
    for path in one.agent.manifests.iterdir():
        path.unlink()
    looks: dict[str, Callable[[], list[str]]] = {
        "API server": lambda: sorted(one.stored()),
        "node": one.eye.left,
        "runtime": lambda: of_the_runtime(one.agent),
    }
    found: list[str] = []

    def nothing() -> bool:
        nonlocal found
        try:
            one.eye.client.ask("container_gc", CollectGarbage(), 10)
            found = [f"{where} has {what} left" for where, look in looks.items() for what in look()]
        except (ActorError, CriError, OSError) as error:
            found = [f"not known: {error}"]
        return not found

    with contextlib.suppress(AssertionError):
        wait_for(nothing, EMPTY_S)
    return found


def of_the_runtime(agent: Agent) -> list[str]:
    """Namespaces, root file systems, records and network of the embedded runtime."""
    run, data = agent.run_dir / "runtime", agent.root_dir / "nodevisor/runtime"
    places = (*(run / name for name in ("ns", "rootfs", "oci")), *(data / name for name in ("sandboxes", "containers")))
    found = [str(path) for place in places if place.is_dir() for path in place.iterdir()]
    links = Path("/sys/class/net", bridge_name(data), "brif")
    return found + ([f"interface {link.name}" for link in links.iterdir()] if links.is_dir() else [])
