"""The rest of a container's config: command, stop signal, hooks, termination log."""

import pytest

from actors.pod_workers.cri_config.host_files import (
    HostFiles,
)
from proto.cri import api_pb2 as pb
from tests.pod_workers.cri_config.config_parts import config_of, pod


def test_command_and_arguments_are_expanded_and_bytes_kept():
    subject = pod({"command": ["sh", "-c", "echo $(A) $(NONE)"], "args": ["$$(A)"], "workingDir": "/w", "tty": True})
    got = config_of(subject, envs={"A": "ä"}, restart_count=2)
    assert (list(got.command), list(got.args)) == (["sh", "-c", "echo ä $(NONE)"], ["$(A)"])
    assert got.envs[0].value == "ä".encode()
    assert (got.working_dir, got.tty, got.stdin) == ("/w", True, False)
    assert (got.metadata.attempt, got.log_path) == (2, "c/2.log")
    assert got.annotations["io.kubernetes.container.restartCount"] == "2"


def test_stop_signal_and_pre_stop_are_carried():
    lifecycle = {"stopSignal": "SIGRTMIN+3", "preStop": {"exec": {"command": ["bye"]}}}
    got = config_of(pod({"lifecycle": lifecycle}))
    assert got.stop_signal == pb.SIGNAL_SIGRTMINPLUS3
    assert got.annotations["io.kubernetes.container.preStopHandler"] == '{"exec":{"command":["bye"]}}'


def test_files_of_the_host_are_mounted_last():
    subject = pod({"terminationMessagePath": "/dev/termination-log"})
    got = config_of(subject, files=HostFiles("/r/etc-hosts", "/r/words"))
    assert [(m.container_path, m.host_path) for m in got.mounts] == [
        ("/etc/hosts", "/r/etc-hosts"),
        ("/dev/termination-log", "/r/words"),
    ]


@pytest.mark.parametrize(
    ("asked", "mounted"),
    [("msg/log", "/msg/log"), ("//dev//log/", "/dev/log"), ("../log", "/log"), ("/a/./b/../log", "/a/log")],
)
def test_termination_log_is_at_an_absolute_clean_path(asked, mounted):
    got = config_of(pod({"terminationMessagePath": asked}), files=HostFiles("", "/r/words"))
    assert [(m.container_path, m.host_path) for m in got.mounts] == [(mounted, "/r/words")]
    assert got.annotations["io.kubernetes.container.terminationMessagePath"] == asked
