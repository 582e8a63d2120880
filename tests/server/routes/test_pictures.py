"""The page's pictures in a real browser, with an agent whose containers are its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.agent.agent import Agent, container, is_ready, pod
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for
from tests.metrics.browser import Browser
from tests.ports import free_port

pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("cgroups")]

PROBED = pod(
    "probed",
    container("main", "exec sleep 100000", readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1}),
    volumes=[{"name": "data", "emptyDir": {}}],
)


class Watched(NamedTuple):
    agent: Agent
    port: int

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = (answer.status, answer.read())
        connection.close()
        return found

    def json(self, name: str) -> Any:
        status, data = self.get(f"/page/{name}")
        assert status == 200, data
        return json.loads(data)


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    port = free_port()
    with embedded_agent(f"--page-address={port}") as agent:
        agent.write("probed", PROBED)
        wait_for(lambda: is_ready(agent.pod("probed")), 60, f"the pod is ready; log: {agent.log}")
        os.kill(agent.rows()["probe"]["pid"], signal.SIGKILL)
        wait_for(lambda: agent.rows()["probe"]["incarnation"] == 2, 20, "probe is back")
        yield Watched(agent, port)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def test_graph_counts_messages_by_sender(watched: Watched) -> None:
    found = watched.json("graph.json")
    counts = {(edge["from"], edge["to"]): edge["count"] for edge in found["edges"]}
    assert counts["config", "pod_workers"] >= 1
    assert counts["pod_workers", "status"] >= 1
    assert all(edge["queue_s"] >= 0 for edge in found["edges"])


def test_hour_has_the_kill_and_the_pods_readiness(watched: Watched) -> None:
    def of_probe() -> Any:
        one = watched.json("hour.json")
        return one if ("probe", "Died") in {(fault["actor"], fault["reason"]) for fault in one["faults"]} else None

    found = wait_for(of_probe, 20, "the fault is there")
    (pod_,) = (one for one in found["pods"] if one["name"] == "default/probed-vm")
    assert pod_["changes"][-1][1] is True


def test_timelines_have_every_step_of_the_start(watched: Watched) -> None:
    found = watched.json("timelines.json")
    probed = next(one for one in found["pods"] if one["name"] == "probed-vm")  # another one waits for its image
    names = {step["name"] for step in probed["steps"]}
    assert names == {"config", "admission", "volumes", "sandbox", "image", "prepare", "create", "start", "probe"}
    assert {one["step"] for one in found["totals"]} == names | {"total"}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("actor=nobody", 400),
        ("actor=pleg&seconds=99", 400),
        ("actor=pleg&seconds=x", 400),
        ("", 400),
        ("actor=pleg&seconds=-1", 400),
    ],
)
def test_wrong_profile_is_refused(query: str, status: int, watched: Watched) -> None:
    assert watched.get(f"/page/flame.json?{query}")[0] == status


WAITING = pod("waiting", container("main", "sleep 100") | {"image": "127.0.0.1:1/absent:1"})


def reason(watched: Watched, name: str = "waiting-vm") -> Any:
    """The answer for the pod that waits, once it is recorded. There is no record between two tries to pull."""
    status, data = watched.get(f"/page/why.json?subject=pod/{name}")
    found = json.loads(data) if status == 200 else {"lines": []}
    return found if any("127.0.0.1:1/absent:1" in line for line in found["lines"]) else None


def test_why_names_the_image_without_a_registry(watched: Watched) -> None:
    watched.agent.write("waiting", WAITING)
    for name in ("waiting-vm", "default/waiting-vm"):
        found = wait_for(partial(reason, watched, name), 30, "the wait is recorded")
        assert found["sentence"].startswith("Pod default/waiting-vm")


def test_why_says_that_a_ready_pod_waits_for_nothing(watched: Watched) -> None:
    found = watched.json("why.json?subject=pod/probed-vm")
    assert (found["sentence"], found["lines"]) == ("Pod default/probed-vm is Running and waits for nothing.", [])


def test_why_knows_the_actor_of_now(watched: Watched) -> None:
    watched.json("page.json")
    before = watched.agent.rows()["pleg"]
    os.kill(before["pid"], signal.SIGKILL)

    def serves() -> bool:
        row = watched.agent.rows()["pleg"]
        return bool(row["incarnation"] > before["incarnation"] and row["state"] == "ready")

    wait_for(serves, 20, "pleg serves again")
    assert "not in service" not in watched.json("why.json?subject=actor/pleg")["sentence"]


@pytest.mark.parametrize("subject", ["", "x", "actor/nobody", "pod/..", "pod/" + "a" * 5000])
def test_why_refuses_what_it_does_not_know(subject: str, watched: Watched) -> None:
    status, data = watched.get(f"/page/why.json?subject={subject}")
    assert status == 404
    assert data.startswith(b"cannot ")
    assert len(data) < 1000


@pytest.mark.needs("chromium")
def test_why_is_a_click_away(watched: Watched, browser: Browser, tmp_path: Path) -> None:
    watched.agent.write("waiting", WAITING)
    wait_for(lambda: reason(watched), 30, "the wait is recorded")
    browser.messages.clear()
    browser.open(f"http://127.0.0.1:{watched.port}/page/")
    button = "[...document.querySelectorAll('#pods .ask')].find((one) => one.textContent === 'waiting-vm')"
    sentence, lines = (f"document.getElementById('why-{part}').textContent" for part in ("sentence", "lines"))

    def names_the_image() -> bool:
        """Ask once. Between two tries to pull the image there is no record of the wait."""
        browser.wait(f"{button} !== undefined")
        browser.evaluate(f"{sentence} = ''; {button}.click()")
        return "absent" in browser.wait(sentence) and "absent" in browser.evaluate(lines)

    wait_for(names_the_image, 30, "the page names the image")
    directory = Path(os.environ.get("NODEVISOR_PICTURES", tmp_path))
    browser.picture(directory / "picture-why.png")
    browser.evaluate("document.getElementById('why-subject').value = 'actor/none'")
    browser.evaluate("document.querySelector('#why button').click()")
    browser.wait("document.getElementById('why-sentence').textContent.startsWith('cannot find actor')")
    assert [one for one in browser.messages if "404" not in one] == []


@pytest.mark.needs("chromium")
def test_pictures_are_drawn_and_live(watched: Watched, browser: Browser, tmp_path: Path) -> None:
    browser.messages.clear()
    browser.open(f"http://127.0.0.1:{watched.port}/page/")
    browser.wait("document.querySelectorAll('#graph path.edge').length > 10")
    browser.wait("document.querySelector(\"#graph path[data-edge='config>pod_workers']\")?.tagName")
    browser.wait("document.querySelector(\"#hour [data-fault='probe Died']\")?.tagName")
    browser.wait("document.querySelector(\"#hour rect.fill-good[data-pod='default/probed-vm']\")?.tagName")
    chosen = "document.getElementById('timeline-pod')"
    browser.wait(f"({chosen}.value = 'default/probed-vm') && {chosen}.value")
    browser.evaluate(f"{chosen}.dispatchEvent(new Event('change'))")
    steps = browser.wait("[...document.querySelectorAll('#timeline rect')].map((one) => one.dataset.step).join()")
    assert {"config", "sandbox", "image", "start", "probe"} <= set(steps.split(","))
    assert "total" in browser.wait("document.querySelector('#totals tbody').innerText")
    for change in ("waits').checked = true", "seconds').value = 1", "start').click()"):
        browser.evaluate(f"document.getElementById('flame-{change}")
    assert browser.wait("document.querySelectorAll('#flame rect').length > 5")
    is_moving = r"/ (0\.[1-9]|[1-9][0-9.]*) messages a second/.test(one.textContent)"
    browser.wait(f"[...document.querySelectorAll('#graph title')].some((one) => {is_moving})")
    directory = Path(os.environ.get("NODEVISOR_PICTURES", tmp_path))
    for name in ("graph", "hour", "timeline", "flame"):
        browser.evaluate(f"document.getElementById('{name}').scrollIntoView()")
        browser.picture(directory / f"picture-{name}.png")
    assert browser.messages == []
