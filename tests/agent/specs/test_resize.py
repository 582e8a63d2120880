"""In-place resizes of pods of the API: what the cgroups of running containers have, and what the status says."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._cgroup.quantities.resources import shares_to_weight
from proto.pods.events import ListEvents
from proto.v1 import Container, PodStatus, ResourceRequirements, from_dict, to_dict
from proto.v1.scalars.quantity import milli_value
from supervisor.sockets.client import Client
from tests.agent.agent import SLEEP, container, pod
from tests.agent.api_source import ApiSource
from tests.agent.changing import UNIFIED, container_cgroup, pod_cgroup
from tests.harness import wait_for

MIB = 1 << 20


def resources(cpu: str, memory: str, limit_cpu: str = "", limit_memory: str = "") -> dict[str, Any]:
    limits = {name: amount for name, amount in (("cpu", limit_cpu), ("memory", limit_memory)) if amount}
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}


FILES = {
    "shares": ("cpu", "cpu.shares", "cpu.weight"),
    "quota": ("cpu", "cpu.cfs_quota_us", "cpu.max"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.max"),
    "memory used": ("memory", "memory.usage_in_bytes", "memory.current"),
}
"""Controller, and the file's name on v1 and v2."""


class Shares(int):
    """CPU shares, equal to themselves on cgroup v1 and to each weight that a runtime makes of them on v2."""

    def __eq__(self, seen: object) -> bool:
        return seen in {shares_to_weight(self), steeper_weight(self)} if UNIFIED else seen == int(self)

    __hash__ = int.__hash__


def steeper_weight(shares: int) -> int:
    """The weight of later versions of runc, 1.3.6 among them: 1024 shares are 100."""
    power = math.log2(shares)
    return math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34))


def limits(shares: int, quota: int, mib: int) -> tuple[int, int, int]:
    """The figures that `cgroups` gives for these."""
    return Shares(shares), quota, mib


def cgroup(api: ApiSource, name: str, what: str, of: str = "") -> int:
    """A value of the pod's cgroup, or of that of one of its containers; -1 without a limit."""
    controller, *files = FILES[what]
    where = pod_cgroup(api.agent.dir.name, api.pods[name].metadata.uid, controller)
    if of:
        where = container_cgroup(where, container_id(api, name, of) or "none")
    first = (where / files[UNIFIED]).read_text().split()[0]
    return -1 if first == "max" else int(first)


def container_id(api: ApiSource, name: str, of: str) -> str:
    """Empty while none of that name runs, as between two lives."""
    running = {what: identity for identity, what in api.agent.running().items()}
    return running.get(f"{name}/{of}", "")


def cgroups(api: ApiSource, name: str, of: str = "") -> tuple[int, int, int]:
    """(CPU shares or weight, quota in microseconds, MiB of memory)."""
    return (
        cgroup(api, name, "shares", of),
        cgroup(api, name, "quota", of),
        cgroup(api, name, "memory", of) // MIB,
    )


def status(api: ApiSource, name: str) -> PodStatus:
    shown = api.status(name)
    assert shown is not None
    return shown.status


def condition(api: ApiSource, name: str, kind: str) -> tuple[str, str]:
    """(reason, message); two dashes without it."""
    found = next((one for one in status(api, name).conditions if one.type == kind), None)
    return ("-", "-") if found is None else (found.reason or "", found.message or "")


def shown(api: ApiSource, name: str, of: str = "c") -> dict[str, Any]:
    """The status of a container, as JSON."""
    every = to_dict(status(api, name))
    return next(one for one in every["containerStatuses"] if one["name"] == of)


def running(api: ApiSource, name: str, of: str) -> bool:
    return f"{name}/{of}" in api.agent.running().values()


def replaced(one: Container, new: dict[str, Any]) -> Container:
    return msgspec.structs.replace(one, resources=from_dict(ResourceRequirements, new))


def wait_resized(
    api: ApiSource, name: str, of: str, expected: tuple[int, int, int], whole: tuple[int, int, int] | None = None
) -> None:
    """Wait until the container, and where given the whole pod, has that, and the status says that it is done.

    The pod's cgroup may come last, and the status after both. Where the resize restarts the container there is none
    for a while.
    """
    last: Any = None

    def done() -> bool:
        nonlocal last
        try:
            last = own, of_pod = cgroups(api, name, of), cgroups(api, name)
        except (KeyError, OSError, StopIteration, ValueError) as error:
            last = error
            return False
        as_wanted = own == expected and whole in (None, of_pod)
        return as_wanted and condition(api, name, "PodResizeInProgress") == ("-", "-")

    try:
        wait_for(done, 30)
    except AssertionError:
        raise AssertionError(f"{(expected, whole)} wanted, last {last}, {status(api, name).conditions}") from None


def wait_shown(api: ApiSource, name: str, of: str = "c", **expected: Any) -> None:
    """Wait until these fields of a container's status are so."""

    def as_expected() -> bool:
        now = shown(api, name, of)
        return {key: now.get(key) for key in expected} == expected

    wait_for(as_expected, 20, f"{expected} of {name}; log: {api.agent.log}")


@pytest.fixture(autouse=True)
def _no_pods_are_left(api):
    """Each test has the node's CPUs to itself."""
    yield
    left = dict(api.pods)
    for name, one in left.items():
        if one.metadata.deletion_timestamp is None:  # else it goes by itself, and may have gone by now
            api.delete(name, 1)
    api.wait_gone(*left)


def test_a_running_container_is_resized_where_it_is(api):
    api.add(pod("grow", container("c", SLEEP, resources=resources("100m", "32Mi", "200m", "64Mi"))))
    api.wait_ready("grow")
    assert cgroups(api, "grow", "c") == limits(102, 20_000, 64)
    assert cgroups(api, "grow") == limits(102, 20_000, 64)
    before = container_id(api, "grow", "c")
    api.update_container("grow", "c", resources=resources("250m", "48Mi", "500m", "128Mi"))
    wait_resized(api, "grow", "c", limits(256, 50_000, 128), limits(256, 50_000, 128))
    api.update_container("grow", "c", resources=resources("150m", "40Mi", "300m", "96Mi"))
    wait_resized(api, "grow", "c", limits(153, 30_000, 96), limits(153, 30_000, 96))
    asked = api.agent.counts("pod_workers", "kubelet_container_requested_resizes_total")
    four = [(what, kind) for what in ("cpu", "memory") for kind in ("requests", "limits")]
    assert asked == {(*one, way): 1 for one in four for way in ("increase", "decrease")}
    timed = "kubelet_pod_resize_duration_milliseconds"  # counted once the container has been read again
    wait_for(lambda: api.agent.counts("pod_workers", timed) == {("true",): 2}, 10, "both resizes are timed")
    assert container_id(api, "grow", "c") == before
    amounts = {"limits": {"cpu": "300m", "memory": "96Mi"}, "requests": {"cpu": "150m", "memory": "40Mi"}}
    wait_shown(api, "grow", allocatedResources=amounts["requests"], resources=amounts, restartCount=0)


def test_resize_restarts_only_the_container_with_that_policy(api):
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    given = resources("100m", "32Mi", "200m", "64Mi")
    api.add(pod("two", container("c", SLEEP, resources=given, resizePolicy=policy), container("d", resources=given)))
    api.wait_ready("two")
    before, other = container_id(api, "two", "c"), container_id(api, "two", "d")
    api.update_container("two", "c", resources=resources("150m", "32Mi", "300m", "64Mi"))
    wait_resized(api, "two", "c", limits(153, 30_000, 64))
    assert container_id(api, "two", "c") == before  # for CPU it need not
    api.update_container("two", "c", resources=resources("150m", "32Mi", "300m", "80Mi"))
    wait_for(lambda: shown(api, "two")["restartCount"] == 1, 20, "restarted")
    api.wait_ready("two")
    wait_resized(api, "two", "c", limits(153, 30_000, 80), limits(256, 50_000, 144))
    assert container_id(api, "two", "c") != before
    assert container_id(api, "two", "d") == other
    wait_shown(api, "two", resources=resources("150m", "32Mi", "300m", "80Mi"))


def test_resize_without_room_is_deferred_or_infeasible(api):
    milli_cpu = (os.cpu_count() or 1) * 1000
    big = f"{milli_cpu - 300}m"
    api.add(pod("big", container("c", SLEEP, resources=resources(big, "16Mi"))))
    api.add(pod("small", container("c", SLEEP, resources=resources("50m", "16Mi"))))
    api.wait_ready("big", "small")
    used = sum(milli_value(one.spec.containers[0].resources.requests["cpu"]) for one in api.pods.values())
    more = milli_cpu - used + 51
    api.update_container("small", "c", resources=resources(f"{more}m", "16Mi"))
    wait_for(lambda: condition(api, "small", "PodResizePending")[0] == "Deferred", 20, "deferred")
    _, message = condition(api, "small", "PodResizePending")
    amounts = f"requested: {more}, used: {used - 50}, capacity: {milli_cpu}"
    assert message == f"Node didn't have enough resource: cpu, {amounts}"
    assert shown(api, "small")["allocatedResources"] == {"cpu": "50m", "memory": "16Mi"}
    assert status(api, "small").observed_generation == 2
    assert cgroup(api, "small", "shares", "c") == limits(51, 0, 0)[0]
    api.update_container("small", "c", resources=resources(f"{milli_cpu + 1}m", "16Mi"))
    wait_for(lambda: condition(api, "small", "PodResizePending")[0] == "Infeasible", 20, "infeasible")
    _, message = condition(api, "small", "PodResizePending")
    assert message == f"Node didn't have enough capacity: cpu, requested: {milli_cpu + 1}, capacity: {milli_cpu}"
    assert api.agent.counts("pod_workers", "kubelet_pod_pending_resizes") == {("infeasible",): 1}
    infeasible = api.agent.counts("pod_workers", "kubelet_pod_infeasible_resizes_total")
    assert infeasible == {("insufficient_node_allocatable",): 1}
    api.update_container("small", "c", resources=resources(f"{more}m", "16Mi"))
    wait_for(lambda: condition(api, "small", "PodResizePending")[0] == "Deferred", 20, "deferred again")
    before = container_id(api, "small", "c")
    api.delete("big", 1)
    wait_for(lambda: condition(api, "small", "PodResizePending") == ("-", "-"), 20, "granted")
    wait_for(lambda: cgroup(api, "small", "shares", "c") == limits(more * 1024 // 1000, 0, 0)[0], 20, "carried out")
    late = api.agent.counts("pod_workers", "kubelet_pod_deferred_accepted_resizes_total")
    assert late == {("pods_removed",): 1}
    assert container_id(api, "small", "c") == before


def test_memory_in_use_is_not_taken_away(api):
    hold = f"dd if=/dev/zero of=/dev/shm/x bs=1M count=24 2>/dev/null; {SLEEP}"
    api.add(pod("held", container("c", hold, resources=resources("10m", "32Mi", "50m", "64Mi"))))
    api.add(pod("other", container("c", SLEEP, resources=resources("10m", "16Mi"))))
    api.wait_ready("held", "other")
    wait_for(lambda: cgroup(api, "held", "memory used", "c") > 24 * MIB, 20, "in use")
    api.update_container("held", "c", resources=resources("10m", "8Mi", "50m", "16Mi"))

    def refused() -> str:
        reason, message = condition(api, "held", "PodResizeInProgress")
        return message if reason == "Error" else ""

    message = wait_for(refused, 30, "refused")
    assert message.startswith("cannot decrease memory limits: [attempting to set pod memory limit (16777216) below")
    assert 'attempting to set container "c" memory limit (16777216) below current usage (' in message
    assert cgroups(api, "held", "c")[2] == 64
    assert shown(api, "held")["resources"]["limits"]["memory"] == "64Mi"
    assert shown(api, "held")["allocatedResources"]["memory"] == "8Mi"
    nearly_all = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") - 4 * MIB
    api.update_container("other", "c", resources=resources("10m", str(nearly_all)))
    wait_for(lambda: condition(api, "other", "PodResizePending")[0] == "Deferred", 20, "deferred")
    amounts = f"memory, requested: {nearly_all}, used: {32 * MIB}, "
    assert amounts in condition(api, "other", "PodResizePending")[1], "it is not given to others, either"
    api.update_container("held", "c", resources=resources("10m", "32Mi", "50m", "96Mi"))
    wait_resized(api, "held", "c", limits(10, 5_000, 96))


def test_a_resize_outlives_kills_of_pod_workers(api):
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    given = resources("100m", "32Mi", "200m", "64Mi")
    api.add(pod("k", container("c", resources=given), container("r", resources=given, resizePolicy=policy)))
    api.wait_ready("k")
    before = container_id(api, "k", "c")
    for turn in range(1, 4):
        new = resources(f"{100 + turn}m", "32Mi", f"{200 + turn * 10}m", f"{64 + turn}Mi")
        api.update("k", containers=tuple(replaced(one, new) for one in api.pods["k"].spec.containers))
        time.sleep(0.03 * turn)  # somewhere in the middle of it
        api.agent.kill_actors("pod_workers")
        expected = limits((100 + turn) * 1024 // 1000, (200 + turn * 10) * 100, 64 + turn)
        wait_for(lambda e=expected: running(api, "k", "r") and cgroups(api, "k", "c") == e, 30, f"{expected}")
        wait_resized(api, "k", "r", expected)
        wait_for(lambda t=turn: shown(api, "k", "r")["restartCount"] == t, 20, "one restart for each resize")
    assert container_id(api, "k", "c") == before
    api.agent.kill_actors("pod_workers")
    api.wait_ready("k")
    assert (container_id(api, "k", "c"), shown(api, "k", "r")["restartCount"]) == (before, 3)
    state = json.loads((api.agent.root_dir / "allocated_pods_state").read_text())
    entry = json.loads(state["data"])["entries"][api.pods["k"].metadata.uid]
    assert entry["ContainerResources"]["c"] == new
    assert (api.agent.root_dir / "actuated_pods_state").exists()


def test_a_grant_is_acted_on_once_it_is_kept(api):
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    given = resources("100m", "32Mi", "200m", "64Mi")
    api.add(pod("g", container("r", resources=given, resizePolicy=policy)))
    api.wait_ready("g")
    before = container_id(api, "g", "r")
    unwritten = api.agent.root_dir / "allocated_pods_state.tmp"
    os.mkfifo(unwritten)  # who opens it to write waits for a reader: a disk that hangs
    api.update_container("g", "r", resources=resources("101m", "32Mi", "210m", "64Mi"))
    with Client(api.agent.run_dir) as client:

        def granted() -> bool:
            told = client.ask("events", ListEvents(), 5.0).events
            return any((one.reason, one.involved_object.name) == ("ResizeStarted", "g") for one in told)

        wait_for(granted, 20, "it is granted")
    assert container_id(api, "g", "r") == before
    unwritten.unlink()  # a resize that waits there keeps waiting
    api.agent.kill_actors("pod_workers")
    wait_for(
        lambda: running(api, "g", "r") and container_id(api, "g", "r") not in (before, ""), 30, "it is restarted for it"
    )
    wait_resized(api, "g", "r", limits(103, 21_000, 64))
    wait_for(lambda: shown(api, "g", "r")["restartCount"] == 1, 20, "once")


QOS = {
    "guaranteed": (resources("100m", "32Mi", "100m", "32Mi"), (102, 10_000, 32), "Guaranteed"),
    "burstable": (resources("100m", "32Mi", "200m", "64Mi"), (102, 20_000, 64), "Burstable"),
    "besteffort": ({}, (2, -1, None), "BestEffort"),
}


def test_limits_of_each_class_are_in_the_cgroups(api):
    for name, (given, _, _) in QOS.items():
        api.add(pod(name, container("c", resources=given)))
    api.wait_ready(*QOS)
    for name, (_, (shares, quota, memory), qos) in QOS.items():
        for of in ("c", ""):
            seen = cgroups(api, name, of)
            assert seen[:2] == limits(shares, quota, 0)[:2]
            assert memory in (None, seen[2])
        assert status(api, name).qos_class == qos
    scores = [oom_score_adj(api, name) for name in QOS]  # a runtime without the right to go below its own raises -997
    assert scores[0] < 3 <= scores[1] < scores[2] == 1000


def oom_score_adj(api: ApiSource, name: str) -> int:
    where = pod_cgroup(api.agent.dir.name, api.pods[name].metadata.uid, "memory")
    pid = (container_cgroup(where, container_id(api, name, "c")) / "cgroup.procs").read_text().split()[0]
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_the_pods_own_resources_are_resized(api):
    own = resources("200m", "64Mi", "400m", "128Mi")
    api.add(pod("own", container("c"), container("d", resources=resources("50m", "16Mi")), resources=own))
    api.wait_ready("own")
    assert cgroups(api, "own") == limits(204, 40_000, 128)
    assert cgroups(api, "own", "c") == limits(409, 40_000, 128)  # the pod's limits are its own, and so its request
    before = {of: container_id(api, "own", of) for of in "cd"}
    api.update("own", resources=resources("300m", "96Mi", "600m", "160Mi"))
    wait_for(lambda: cgroups(api, "own") == limits(307, 60_000, 160), 20, "the pod's cgroup follows")
    wait_for(lambda: cgroups(api, "own", "c") == limits(614, 60_000, 160), 20, "and so does that of `c`")
    wait_for(lambda: condition(api, "own", "PodResizeInProgress") == ("-", "-"), 20, "done")
    assert {of: container_id(api, "own", of) for of in "cd"} == before
    amounts = resources("300m", "96Mi", "600m", "160Mi")

    def said() -> bool:
        now = to_dict(status(api, "own"))
        return (now.get("resources"), now.get("allocatedResources")) == (amounts, amounts["requests"])

    wait_for(said, 20, f"{amounts}; log: {api.agent.log}")
