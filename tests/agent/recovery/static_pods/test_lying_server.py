"""Static pods from a URL whose server lies, stalls and redirects, between good answers.

Some quick lies and one stall in the ordinary run; `NODEVISOR_LIES_S=3600` for an hour of all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.agent import Agent, pod
from tests.agent.embedded import answered, embedded_agent
from tests.agent.faults import Eye
from tests.agent.recovery import residue
from tests.config.lies import STALLS, WRONG, chunked, stall
from tests.config.lying_server import Answer, LyingServer, redirect, whole
from tests.harness import wait_for

LIES_S = float(os.environ.get("NODEVISOR_LIES_S", "0"))
SECRET = "s3cret-value"
PERIOD_S, FETCH_S = 1.0, 10.0
APPLIED_S = FETCH_S + 5 * PERIOD_S
"""For a good answer: the fetch under way may last its whole deadline."""
MORE_FDS, MORE_THREADS, MORE_TASKS, MORE_KIB = 3, 3, 4, 8 * 1024
CHILD_KIB = 1200 * 1024
"""For a child process: that which parses may have MAX_PARSE_BYTES beside the shared pages."""

pytestmark = pytest.mark.timeout(LIES_S + 600)

QUICK = 8
"""Lies of the ordinary run that need no deadline; tests/config/test_url.py has more of them."""

Lies = list[tuple[str, Answer]]
chance = random.Random(LIES_S)


def good(turn: int, *more: dict[str, Any]) -> bytes:
    """The list with the steady pod, the pod whose label is the turn, and further ones."""
    turning = pod("turning")
    turning["metadata"] |= {"uid": "0f9aa3fd-1f6e-4d24-9d42-7a1f7b8a4a55", "labels": {"turn": str(turn)}}
    return json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [pod("steady"), turning, *more]}).encode()


def slowly(body: bytes) -> Answer:
    """A good answer in pieces, within the deadline."""
    answer = chunked(*(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:100], body[100:])))

    def send(connection: socket.socket, stopped: threading.Event) -> None:
        for begin in range(0, len(answer), 200):
            connection.sendall(answer[begin : begin + 200])
            stopped.wait(0.05)

    return send


def ways(body: bytes, server: LyingServer) -> Answer:
    """The body in one of the ways that good servers send it."""
    server.paths["/there"] = whole(body)
    yaml_text = yaml.safe_dump(json.loads(body)).encode()
    plain = [
        whole(body),
        whole(yaml_text),
        slowly(body),
        redirect("/there"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + whole(body),
    ]
    return chance.choice(plain)


def lies(server: LyingServer, other: LyingServer) -> Iterator[Lies]:
    """Lots of lies, each followed by a good answer: quick ones first, then a few at random."""
    quick = [
        *WRONG.items(),
        ("another host's loop", redirect(f"{other.url}/loop")),
        ("another host's lie", redirect(f"{other.url}/lie")),
    ]
    other.paths |= {"/pods/loop": redirect(server.url), "/pods/lie": whole(b"<html>"), "/pods/stall": stall()}
    stalls = [*STALLS.items(), ("another host's stall", redirect(f"{other.url}/stall"))]
    yield quick if LIES_S else chance.sample(quick, QUICK)
    while True:
        yield [chance.choice(stalls)]
        for _ in range(chance.randint(1, 4)):
            yield chance.sample(quick, chance.randint(1, 5))


class Watch(threading.Thread):
    """Follows the children of a process, and keeps the largest memory that any of them had."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak_kib = pid, 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{self.pid}/task").iterdir():
                    for child in (task / "children").read_text().split():
                        self.peak_kib = max(self.peak_kib, _peak_kib(child))

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()


def _peak_kib(pid: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


@contextmanager
def agent_of(url: str) -> Iterator[Agent]:
    """An agent whose pods are those of the URL; `httpCheckFrequency` is the shortest."""

    def prepare(agent: Agent) -> None:
        config = yaml.safe_load(agent.config.read_text())
        config |= {"staticPodURL": url, "staticPodURLHeader": {"X-Key": [SECRET]}, "httpCheckFrequency": "1s"}
        agent.config.write_text(yaml.safe_dump(config))

    with embedded_agent(prepare=prepare) as agent:
        yield agent


class Truth:
    """The good answers of a server in turn."""

    def __init__(self, agent: Agent, server: LyingServer) -> None:
        self.agent, self.server, self.turn, self.slowest_s = agent, server, 0, 0.0
        self.is_seen: Callable[[], bool] = lambda: self._turn() == str(self.turn)

    def _turn(self) -> str:
        return str(self.agent.pod("turning").get("metadata", {}).get("labels", {}).get("turn", ""))

    def tell(self, *more: dict[str, Any]) -> None:
        """Answer well, and wait until the agent shows it."""
        self.turn += 1
        began = time.monotonic()
        self.server.answer = ways(good(self.turn, *more), self.server)
        wait_for(self.is_seen, APPLIED_S + 15, f"turn {self.turn} is applied; log: {self.agent.log}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)


def lie(server: LyingServer, name: str, answer: Answer) -> None:
    """Answer wrongly until the agent has asked twice since: then it has done with the first of them."""
    server.answer = answer
    before = len(server.heads)
    wait_for(lambda: len(server.heads) >= before + 2, 2 * FETCH_S + 20, f"it asks again after: {name}")


def expect_steady(eye: Eye, held: residue.Held, first: dict[str, str]) -> None:
    running = answered(eye.agent.running) or {}
    assert first.items() <= running.items(), "the first containers run on"
    assert not eye.restarts()
    assert eye.actors()["config"].pid == held.pid, "config is the same process"


def is_bounded(before: residue.Held, after: residue.Held) -> bool:
    return (
        after.fds <= before.fds + MORE_FDS
        and after.threads <= before.threads + MORE_THREADS
        and after.tasks <= before.tasks + MORE_TASKS
        and after.private_kib <= before.private_kib + MORE_KIB
    )


@pytest.mark.needs("mounts")
def test_pods_outlive_a_server_that_lies_and_stalls() -> None:
    with LyingServer(whole(good(0))) as server, LyingServer() as other, agent_of(server.url) as agent:
        wait_for(lambda: len(agent.running()) == 2, 90, f"both pods run; log: {agent.log}")
        first, truth, eye = agent.running(), Truth(agent, server), Eye(agent)
        truth.tell()
        held = residue.of_the_actors(eye)["config"]
        ends, told = time.monotonic() + LIES_S, 0
        with closing(eye.client), Watch(held.pid) as children:
            for number, lot in enumerate(lies(server, other)):
                for name, answer in lot:
                    lie(server, name, answer)
                    told += 1
                expect_steady(eye, held, first)
                if number % 20 == 10:
                    truth.tell(pod(f"new{number}"))
                    wait_for(lambda: len(answered(agent.running) or ()) == 3, 60, "a new pod of the list runs")
                truth.tell()
                expect_steady(eye, held, first)
                if number and time.monotonic() > ends:
                    break
            # Each second a fetch has pipes for a moment: bounded once, between two of them, is bounded.
            expected = f"config holds hardly more than {held}"
            wait_for(lambda: is_bounded(held, residue.of_the_actors(eye)["config"]), 30, expected)
            assert 0 < children.peak_kib < CHILD_KIB
        assert not any(SECRET in head for head in other.heads), "headers go to their own server only"
        assert SECRET not in agent.log.read_text()
        print(f"{told} lies, {truth.turn} good answers, slowest {truth.slowest_s:.1f} s, {children.peak_kib} KiB")
        server.answer = whole(b'{"apiVersion": "v1", "kind": "PodList", "items": []}')
        wait_for(lambda: not agent.running(), 60, "no pod is left")
