"""`systemctl poweroff` with twenty pods of three priorities and no API server, and the machine's next start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from tests.containerd.images import BUSYBOX
from tests.guest.guest import Guest
from tests.guest.selection import only_if_selected
from tests.guest.service.node import Node, wait_until

pytestmark = only_if_selected("poweroff")
RECORD = "/root/record"
GRACES = {0: 25, 1000: 20, 1_000_000_000: 15}
NAMES = {0: "low", 1000: "middle", 1_000_000_000: "high"}
COUNTS = {0: 8, 1000: 8, 1_000_000_000: 4}
EARLY_S, LATE_S = 3.0, 15.0
"""Errors of a duration that containers under emulation measure."""
OBEDIENT = "trap 'now > $R.told; sleep 1; now > $R.ended; exit 0' TERM; sleep 100000 & wait"
STUBBORN = "trap 'now > $R.told' TERM; while :; do now > $R.alive; sleep 0.5; done"


def pod(name: str, priority: int, script: str = OBEDIENT, grace_s: int = 600) -> dict[str, Any]:
    """It records the seconds since the boot at which it was told to end, and at which it ended or was alive last."""
    command = f"now() {{ read up _ < /proc/uptime; echo $up; }}; R=/record/{name}; {script}"
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command],
        "volumeMounts": [{"name": "record", "mountPath": "/record"}],
    }
    volume = {"name": "record", "hostPath": {"path": RECORD, "type": "DirectoryOrCreate"}}
    spec = {
        "hostNetwork": True,  # a network of its own takes a second or two under emulation
        "priority": priority,
        "terminationGracePeriodSeconds": grace_s,
        "containers": [container],
        "volumes": [volume],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def pods() -> list[dict[str, Any]]:
    """Pods: the first ignores SIGTERM past its priority's time, the second past its own, 18 others end at once."""
    special = [pod("low-0", 0, STUBBORN), pod("middle-0", 1000, STUBBORN, grace_s=4)]
    numbers = [(priority, number) for priority, count in COUNTS.items() for number in range(count)]
    others = [pod(f"{NAMES[priority]}-{number}", priority) for priority, number in numbers]
    return special + [one for one in others if one["metadata"]["name"] not in ("low-0", "middle-0")]


class Shutdown(NamedTuple):
    """The facts about it once the machine is on again."""

    node: Node
    locks: str
    """systemd-inhibit's list before it."""
    before: dict[str, dict[str, Any]]
    """Pods by name, before it."""
    times: dict[str, float]
    """NAME.told, NAME.ended and NAME.alive, in seconds since the boot."""
    statuses: dict[str, dict[str, Any]]
    """The last ones of pods by name."""
    journal: str
    """The agent's, until the machine went down."""

    def of(self, priority: int, what: str) -> dict[str, float]:
        """NAME.told or NAME.ended of the pods of this priority."""
        names = (f"{NAMES[priority]}-{number}.{what}" for number in range(COUNTS[priority]))
        return {name: self.times[name] for name in names if name in self.times}


@pytest.fixture(scope="module")
def shutdown(guest: Guest) -> Iterator[Shutdown]:
    if not guest.is_ours:
        pytest.skip("the other machine cannot be switched on from here")
    with closing(Node(guest)) as node:
        yield power_off_with_pods(node)


def power_off_with_pods(node: Node) -> Shutdown:
    """Start twenty pods, power the machine off, and on again."""
    guest = node.guest
    graces = [{"priority": priority, "shutdownGracePeriodSeconds": grace_s} for priority, grace_s in GRACES.items()]
    node.start(shutdownGracePeriodByPodPriority=graces, maxPods=50)
    guest.run(f"systemctl enable containerd nodevisor; mkdir -p {RECORD} /var/log/journal; journalctl --flush")
    given = pods()
    for some in range(0, len(given), 5):  # twenty at once are a load of 40 under emulation
        node.write(*given[some : some + 5])
        before = node.wait_all_ready([one["metadata"]["name"] for one in given[: some + 5]], 600)
    locks = guest.run("systemd-inhibit --list --no-pager").stdout
    guest.power_off_and_on(600)
    found = guest.run(f"cd {RECORD} && grep -H . *.told *.ended *.alive").stdout.split()
    times = {name: float(number) for name, _, number in (line.partition(":") for line in found)}
    statuses = {name: one["status"] for name, one in node.pods().items()}
    journal = guest.run("journalctl --no-pager -b -1 -u nodevisor -o cat").stdout
    return Shutdown(node, locks, before, times, statuses, journal)


def test_logind_lets_the_agent_delay_the_shutdown(shutdown: Shutdown) -> None:
    assert "Kubelet needs time to handle node shutdown" in shutdown.locks
    drop_in = shutdown.node.guest.get("/etc/systemd/logind.conf.d/99-kubelet.conf")
    assert f"InhibitDelayMaxSec={sum(GRACES.values())}\n" in drop_in


def test_pods_end_in_the_order_of_their_priorities(shutdown: Shutdown) -> None:
    for priority, count in COUNTS.items():
        assert len(shutdown.of(priority, "told")) == count, shutdown.journal
    low, middle, high = GRACES
    assert len(shutdown.of(low, "ended")) == COUNTS[low] - 1
    assert len(shutdown.of(middle, "ended")) == COUNTS[middle] - 1
    assert len(shutdown.of(high, "ended")) == COUNTS[high]
    assert max(shutdown.of(low, "ended").values()) < min(shutdown.of(middle, "told").values())
    assert max(shutdown.of(middle, "ended").values()) < min(shutdown.of(high, "told").values())
    ended = [
        line.split("ending ")[1] for line in shutdown.journal.splitlines() if "ending " in line and "priority" in line
    ]
    assert ended == [f"{COUNTS[one]} pods of priority {one} and up within {GRACES[one]} s" for one in GRACES]


def test_a_stubborn_pod_has_its_priorities_time(shutdown: Shutdown) -> None:
    had_s = shutdown.times["low-0.alive"] - shutdown.times["low-0.told"]
    assert -EARLY_S < had_s - GRACES[0] < LATE_S
    middle = min(shutdown.of(1000, "told").values())
    assert middle - shutdown.times["low-0.told"] > GRACES[0] - EARLY_S


def test_a_stubborn_pod_has_its_own_shorter_time(shutdown: Shutdown) -> None:
    had_s = shutdown.times["middle-0.alive"] - shutdown.times["middle-0.told"]
    assert -EARLY_S < had_s - 4 < LATE_S


def test_last_statuses_say_why_the_pods_ended(shutdown: Shutdown) -> None:
    """A static pod is Failed also where its container exits 0, and runs again by that reason."""
    assert set(shutdown.statuses) == set(shutdown.before)
    for name, status in shutdown.statuses.items():
        (container,) = status["containerStatuses"]
        assert container["state"]["terminated"]["exitCode"] == (137 if name in ("low-0", "middle-0") else 0), name
        assert (status["phase"], status["reason"]) == ("Failed", "Terminated"), name
        assert status["message"] == "Pod was terminated in response to imminent node shutdown."


def test_all_pods_run_again_once_the_machine_is_on(shutdown: Shutdown) -> None:
    shutdown.node.show_pods()
    wait_until(shutdown.node.guest, "systemctl is-active nodevisor", 480)
    after = shutdown.node.wait_all_ready(shutdown.before, 900)
    assert {name: one["metadata"]["uid"] for name, one in after.items()} == {
        name: one["metadata"]["uid"] for name, one in shutdown.before.items()
    }
    for name, one in after.items():
        (old,), (new,) = shutdown.before[name]["status"]["containerStatuses"], one["status"]["containerStatuses"]
        assert new["containerID"] != old["containerID"]
        assert "reason" not in one["status"]
