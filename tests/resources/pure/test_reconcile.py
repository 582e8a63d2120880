"""Upstream's cases of the CPUs of running containers (cpu_manager_test.go), with a runtime that is a table."""

from types import SimpleNamespace

import pytest

from actors._cri.errors import CriError
from actors.resources.reconcile import CHECK_ROUNDS, Reconciler
from tests.resources.cpu.pods import run

LABELS = {"io.kubernetes.pod.uid": "p", "io.kubernetes.container.name": "c"}


class Runtime:
    """One running container `id`. `fail`: the call that fails."""

    def __init__(self, cpus="", fail=""):
        self.cpus, self.fail = cpus, fail
        self.calls = []

    async def list_containers(self, _filter):
        self._call("list")
        return [SimpleNamespace(id="id", labels=LABELS)]

    async def container_status(self, _identity):
        self._call("status")
        return SimpleNamespace(status=SimpleNamespace(resources=self._resources()))

    async def update_container_resources(self, identity, resources):
        self._call("update")
        assert identity == "id"
        self.cpus = resources.cpuset_cpus

    def _call(self, name):
        self.calls.append(name)
        if self.fail == name:
            raise CriError("Unknown", "fake error")

    def _resources(self):
        return SimpleNamespace(linux=SimpleNamespace(cpuset_cpus=self.cpus))


def reconciler(runtime, wanted):
    return Reconciler(runtime, lambda uid, name: wanted.get((uid, name)))


@pytest.mark.parametrize(
    ("has", "wanted", "calls"),
    [
        ("", "1-2", ["list", "status", "update"]),
        ("4-7", "1-2", ["list", "status", "update"]),
        ("1-2", "1-2", ["list", "status"]),
        ("1,2", "1-2", ["list", "status"]),
        ("1-2", "", ["list"]),
        ("1-2", None, ["list"]),
        ("a", "1-2", ["list", "status", "update"]),
    ],
)
def test_container_gets_the_cpus_it_should_have(has, wanted, calls):
    runtime = Runtime(has)
    found = reconciler(runtime, {("p", "c"): wanted})
    run(found.run())
    assert runtime.calls == calls
    assert (runtime.cpus, found.updates) == ((wanted, 1) if "update" in calls else (has, 0))


@pytest.mark.parametrize("fail", ["list", "status", "update"])
def test_failed_call_is_done_again_in_the_next_round(fail, caplog):
    runtime = Runtime("4-7", fail)
    found = reconciler(runtime, {("p", "c"): "1-2"})
    run(found.run())
    assert (runtime.cpus, found.updates) == ("4-7", 0)
    assert "fake error" in caplog.text
    runtime.fail = ""
    run(found.run())
    assert (runtime.cpus, found.updates) == ("1-2", 1)


def test_shared_pool_that_changes_is_followed():
    runtime, wanted = Runtime("0-7"), {("p", "c"): "0-7"}
    found = reconciler(runtime, wanted)
    run(found.run())
    wanted["p", "c"] = "0,3-7"
    run(found.run())
    assert (runtime.cpus, runtime.calls[2:]) == ("0,3-7", ["list", "update"])


def test_cpus_that_others_changed_are_set_again_within_six_rounds():
    runtime = Runtime("1-2")
    found = reconciler(runtime, {("p", "c"): "1-2"})
    run(found.run())
    runtime.cpus = "0-7"
    for _ in range(CHECK_ROUNDS):
        run(found.run())
    assert (runtime.cpus, runtime.calls.count("status"), found.updates) == ("1-2", 2, 1)
