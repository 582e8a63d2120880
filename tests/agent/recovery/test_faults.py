"""`supervisor fault` on a whole agent: each kind takes effect, is listed, ends, and leaves pods alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.agent.supervisor import ActorRow
from tests.agent.agent import Agent, pod
from tests.agent.embedded import embedded_agent
from tests.agent.faults import Eye
from tests.harness import wait_for


@pytest.fixture(scope="module")
def eye() -> Iterator[Eye]:
    with embedded_agent("--fault-injection") as agent:
        one = Eye(agent)
        agent.write("a", pod("a"))
        wait_for(lambda: one.ready("a"), 60, "running")
        yield one
        one.client.close()


def inject(eye: Eye, *args: str) -> None:
    answer = eye.agent.command("fault", *args, check=False)
    assert answer.returncode == 0, answer.stderr


def listed(agent: Agent) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(agent.command("fault", "list", "-o", "json").stdout)
    return found


def replaced(eye: Eye, before: ActorRow) -> ActorRow:
    def next_one() -> ActorRow | None:
        row = eye.actors().get(before.name)
        return row if row is not None and row.state == "ready" and row.incarnation > before.incarnation else None

    return wait_for(next_one, 40, f"{before.name} replaced")


@pytest.mark.parametrize(
    ("args", "death"),
    [
        (("kill", "probe"), "killed by SIGKILL"),
        (("stop", "status"), "stopped by a signal"),
        (("exception", "pleg"), "InjectedFault"),
        (("start", "image_gc", "--for", "0.5s"), "InjectedFault"),
        (("socket", "eviction"), "socket file was removed"),
        (("busy", "volume", "--for", "60s"), "mailbox did not answer"),
    ],
)
def test_fault_of_a_process_ends_in_its_next_incarnation(eye: Eye, args: tuple[str, ...], death: str) -> None:
    before, running = eye.actors(), eye.agent.running()
    inject(eye, *args)
    assert death in replaced(eye, before[args[1]]).last_death
    wait_for(lambda: eye.ready("a"), 20, "pod ready")
    assert eye.agent.running() == running
    eye.agent.command("fault", "end", "--all")


@pytest.mark.parametrize(
    "args",
    [
        ("slow", "probe", "--to", "pod_workers", "--value", "0.1"),
        ("lose", "events", "--to", "status"),
        ("full", "stats", "--to", "volume"),
        ("leak", "stats", "--value", "8"),
        ("clock", "events", "--value", "-60"),
        ("disk",),
        ("cri", "a"),
        ("mount", "a"),
    ],
)
def test_lasting_fault_is_listed_until_it_is_ended(eye: Eye, args: tuple[str, ...]) -> None:
    inject(eye, *args, "--for", "5m")
    (one,) = listed(eye.agent)
    assert one["kind"] == args[0]
    eye.agent.command("fault", "end", str(one["id"]))
    assert listed(eye.agent) == []
    wait_for(lambda: eye.ready("a"), 20, "pod ready")
    assert eye.restarts() == {}


def test_fault_ends_by_itself_and_both_are_notes(eye: Eye) -> None:
    inject(eye, "full", "stats", "--to", "volume", "--for", "0.5s")
    wait_for(lambda: not listed(eye.agent), 20, "ended")
    log = eye.agent.log.read_text()
    assert "injecting fault" in log
    assert "full stats to volume has ended" in log


def test_leaking_actor_has_its_memory_back_at_the_end(eye: Eye) -> None:
    row = eye.actors()["stats"]
    inject(eye, "leak", "stats", "--value", "64", "--for", "30s")
    wait_for(lambda: eye.actors()["stats"].pss_kib > row.pss_kib + 48 * 1024, 20, "memory grows")
    eye.agent.command("fault", "end", "--all")
    wait_for(lambda: eye.actors()["stats"].pss_kib < row.pss_kib + 16 * 1024, 20, "memory is back")


def test_hung_runtime_call_of_one_pod_delays_no_other(eye: Eye) -> None:
    inject(eye, "cri", "a", "--for", "60s")
    began = time.monotonic()
    eye.agent.write("b", pod("b"))
    wait_for(lambda: eye.ready("a", "b"), 20, "another pod starts")
    assert time.monotonic() - began < 15
    eye.agent.command("fault", "end", "--all")
    (eye.agent.manifests / "b.yaml").unlink()
    wait_for(lambda: eye.ready("a"), 30, "the other one is gone")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("kill", "nobody"), "no actor 'nobody'"),
        (("slow", "probe", "--to", "probe"), "needs another actor"),
        (("leak", "stats", "--value", "0"), "leak takes 1 to 4096 MiB"),
        (("busy", "stats", "--for", "2h"), "it lasts from 0 to 3600 s"),
        (("end", "99"), "no active fault 99"),
        (("end",), "name their IDs"),
    ],
)
def test_wrong_fault_is_refused_with_the_reason(eye: Eye, args: tuple[str, ...], text: str) -> None:
    answer = eye.agent.command("fault", *args, check=False)
    assert answer.returncode == 1
    assert text in answer.stderr


def test_faults_are_refused_unless_the_agent_allows_them() -> None:
    with embedded_agent() as agent:
        answer = agent.command("fault", "kill", "probe", check=False)
        assert answer.returncode == 1
        assert "start the agent with --fault-injection" in answer.stderr


def test_leaking_actor_past_its_ceiling_is_replaced_and_shows_what_grew(tmp_path: Path) -> None:
    specs = tmp_path / "supervisor.yaml"
    specs.write_text("specs: {stats: {memory_ceiling_mib: 160, heartbeat_period_s: 1}}\n")
    with embedded_agent("--fault-injection", "--supervisor-config", str(specs)) as agent:
        one = Eye(agent)
        before = one.actors()
        inject(one, "leak", "stats", "--value", "192", "--for", "5m")
        after = replaced(one, before["stats"])
        assert "past its ceiling of 160 MiB; replaced in a quiet moment" in after.last_death
        record = Path(after.last_death.partition("(evidence ")[2].rstrip(")")).read_text()
        largest = record.partition("Largest types")[2].splitlines()[1]
        assert largest.endswith(" bytearray")
        assert int(largest.split()[0]) >= 150 * 1024
        assert "Replay: supervisor replay stats " in record
        (death,) = json.loads(agent.command("deaths", "stats", "-o", "json").stdout)
        assert death["cause"] == "memory"
        others = {name: row.pid for name, row in one.actors().items() if name != "stats"}
        assert others == {name: row.pid for name, row in before.items() if name != "stats"}
        one.client.close()


def test_restart_counts_outlive_pod_workers_beside_a_slow_status(eye: Eye) -> None:
    cri = eye.agent.containerd.cri

    def end_container() -> str:
        identity = next(one for one, name in eye.agent.running().items() if name == "counted-vm/c")
        cri.stop_container(identity, 0).result()
        return identity

    def count() -> int:
        found = eye.container("counted")
        return found.restart_count if found is not None and found.state.running is not None else -1

    eye.agent.write("counted", pod("counted"))
    wait_for(lambda: count() == 0, 30, "it runs")
    end_container()
    wait_for(lambda: count() == 1, 30, "it has restarted")
    inject(eye, "slow", "pod_workers", "--to", "status", "--value", "0.3", "--for", "30s")
    eye.agent.command("stop", "pod_workers")
    cri.remove_container(end_container()).result()
    eye.agent.command("start", "pod_workers")
    wait_for(lambda: count() in (0, 2), 30, "it runs again")
    eye.agent.command("fault", "end", "--all")
    assert count() == 2
    (eye.agent.manifests / "counted.yaml").unlink()
    wait_for(lambda: eye.ready("a"), 30, "the other one is gone")
