"""Checks how the suite of one node starts the agent, and which of its specs run."""

import re

import pytest

from tests.upstream.node import specs, translation

GIVEN = ["--runtime-cgroups=/docker", "--root-dir", "/var/lib/kubelet", "--v", "4", "--logtostderr",
         "--network-plugin=kubenet", "--cni-bin-dir", "/cni", "--container-runtime", "remote", "--v", "5"]  # fmt: skip


def test_flags_that_are_gone_go_with_their_values() -> None:
    assert translation.flags(GIVEN) == {"runtime-cgroups": "/docker", "root-dir": "/var/lib/kubelet", "v": "5"}


def test_the_wrapper_s_fields_win_and_gone_fields_go() -> None:
    older = {"kind": "KubeletConfiguration", "logging": {"sanitization": False}, "podLogsDir": "/logs"}
    assert translation.config(older, {"podLogsDir": "/var/log/pods"}) == {
        "kind": "KubeletConfiguration",
        "podLogsDir": "/var/log/pods",
    }


@pytest.mark.parametrize(
    ("answered", "in_force"), [({"maxPods": 9, "port": 1}, True), ({"maxPods": 8}, False), ({}, False)]
)
def test_a_configuration_in_force_needs_no_restart(answered: dict[str, int], in_force: bool) -> None:
    wanted = {"kind": "KubeletConfiguration", "maxPods": 9, "logging": {"format": "text"}}
    assert translation.are_in_force(wanted, answered) is in_force


@pytest.mark.parametrize("left_out", specs.LEFT_OUT)
def test_each_left_out_spec_has_a_reason(left_out: str) -> None:
    assert specs.LEFT_OUT[left_out]
    assert re.compile(left_out)


def test_no_serial_spec_runs_beside_others() -> None:
    assert re.search(specs.SERIAL, "[k8s.io] GarbageCollect [Serial][NodeFeature:GarbageCollect] One Container")
    assert not [name for name in specs.SIDE_BY_SIDE if re.search(name, "GarbageCollect [Serial]")]
