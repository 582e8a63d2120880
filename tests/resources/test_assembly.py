"""The managers that the settings and the state files make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors._base import Future
from actors.resources.assembly import Managers, make_managers
from actors.resources.errors import PolicyError
from actors.resources.machine.numa import read_distances
from actors.resources.machine.sysfs import TopologyError
from proto.agent.settings import ReservedMemory, Settings
from tests.resources.cpu.pods import at_once
from tests.resources.hints import finish, hint
from tests.resources.memory import container, pod


def blocking(_timeout_s: float, function: Any, *args: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set(function(*args))
    return done


def static(root: Path, **fields: Any) -> Settings:
    return Settings(root_dir=str(root), cpu_manager_policy="static", reserved_system_cpus="0", **fields)


def test_policy_none_assigns_nothing_and_keeps_its_state_file(tmp_path: Path) -> None:
    managers = make_managers(Settings(root_dir=str(tmp_path)), blocking)
    assert (managers.providers, managers.shared_cpus, managers.topology.policy) == ((), "", "none")
    assert '"policyName":"none"' in (tmp_path / "cpu_manager_state").read_text()


def test_static_policy_shares_every_cpu_at_first(tmp_path: Path) -> None:
    managers = make_managers(static(tmp_path), blocking)
    assert managers.shared_cpus == Path("/sys/devices/system/cpu/online").read_text().strip()
    assert len(managers.providers) == 1


def test_topology_manager_has_its_settings(tmp_path: Path) -> None:
    options = {"max-allowable-numa-nodes": "10"}
    settings = static(
        tmp_path,
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        topology_manager_policy_options=options,
    )
    topology = make_managers(settings, blocking).topology
    assert (topology.policy, topology.scope, topology.options) == ("restricted", "pod", options)
    assert topology.numa_nodes == set(read_distances())


def test_memory_manager_has_its_settings(tmp_path: Path) -> None:
    def make(reserved: str) -> Managers:
        settings = Settings(
            root_dir=str(tmp_path),
            memory_manager_policy="Static",
            system_reserved={"memory": "100Mi"},
            reserved_memory=(ReservedMemory(numa_node=0, limits={"memory": reserved}),),
        )
        return make_managers(settings, blocking)

    with pytest.raises(PolicyError, match='total amount "1048576" of type "memory" is not equal'):
        make("1Mi")
    assert len(make("200Mi").providers) == 1
    assert '"policyName":"Static"' in (tmp_path / "memory_manager_state").read_text()


@pytest.mark.parametrize(("policy", "whole"), [("none", False), ("restricted", True)])
def test_pod_has_memory_of_its_own_with_a_topology_policy(tmp_path: Path, policy: str, whole: bool) -> None:
    settings = Settings(
        root_dir=str(tmp_path),
        memory_manager_policy="Static",
        system_reserved={"memory": "200Mi"},
        reserved_memory=(ReservedMemory(numa_node=0, limits={"memory": "300Mi"}),),
        topology_manager_policy=policy,
        topology_manager_scope="pod",
        pod_level_resource_managers=True,
    )
    (memory,) = make_managers(settings, at_once).providers
    subject = pod("p", container("c", 1), resources=container("", 2)["resources"])
    finish(memory.allocate(subject, subject.spec.containers[0], hint("0-")))
    assert ("podEntries" in (tmp_path / "memory_manager_state").read_text()) == whole


@pytest.mark.parametrize("content", ["{", "", '{"policyName":"none","defaultCpuSet":"","checksum":1}', "\0" * 100])
def test_damaged_state_file_is_named_with_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cpu_manager_state"
    path.write_text(content)
    with pytest.raises(PolicyError, match=f'delete the CPU manager checkpoint file "{path}"'):
        make_managers(static(tmp_path), blocking)
    assert path.read_text() == content


def test_state_of_another_policy_is_refused(tmp_path: Path) -> None:
    make_managers(Settings(root_dir=str(tmp_path)), blocking)
    with pytest.raises(PolicyError, match='configured policy "static" differs from state checkpoint policy "none"'):
        make_managers(static(tmp_path), blocking)


def test_distances_of_upstreams_machine_are_read(tmp_path: Path) -> None:
    rows = ("10 11 12 12", "11 10 12 12", "12 12 10 11", "12 12 11 10")
    for node, row in enumerate(rows):
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/distance").write_text(row)
    assert read_distances(str(tmp_path)) == {
        node: dict(enumerate(map(int, row.split()))) for node, row in enumerate(rows)
    }


def test_distances_are_read_by_node(tmp_path: Path) -> None:
    assert read_distances(str(tmp_path)) == {0: {0: 10}}
    for node, distances in ((0, "10 21"), (3, "21 10")):
        directory = tmp_path / f"node/node{node}"
        directory.mkdir(parents=True)
        (directory / "distance").write_text(f"{distances}\n")
    assert read_distances(str(tmp_path)) == {0: {0: 10, 3: 21}, 3: {0: 21, 3: 10}}
    for content, problem in (("21", "1 distances for 2"), ("21 -10", "negative"), ("21 ten", "invalid literal")):
        (tmp_path / "node/node3/distance").write_text(f"{content}\n")
        with pytest.raises(TopologyError, match=problem):
            read_distances(str(tmp_path))
