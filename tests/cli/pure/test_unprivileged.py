"""Directories and settings of an agent without root."""

import pytest

from proto.agent.settings import Settings
from supervisor.host.unprivileged import adapted, default_run_dir, state_dir


@pytest.mark.parametrize(
    ("environment", "uid", "run_dir"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, 0, "/run/nodevisor"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, 7, "/run/user/7/nodevisor"),
        ({}, 7, "/tmp/nodevisor-7"),
        ({"XDG_RUNTIME_DIR": ""}, 7, "/tmp/nodevisor-7"),
    ],
)
def test_the_run_directory_is_the_users(environment: dict[str, str], uid: int, run_dir: str) -> None:
    assert default_run_dir(environment, uid) == run_dir


@pytest.mark.parametrize(
    ("environment", "directory"),
    [({}, "/home/me/.local/state/nodevisor"), ({"XDG_STATE_HOME": "/elsewhere"}, "/elsewhere/nodevisor")],
)
def test_other_directories_are_in_the_users_state(environment: dict[str, str], directory: str) -> None:
    assert state_dir(environment, "/home/me") == directory


def test_chosen_directories_stay_and_cgroups_are_off() -> None:
    usual = adapted(Settings(), "/mine")
    assert (usual.root_dir, usual.cert_dir) == ("/mine/root", "/mine/root/pki")
    assert (usual.pod_logs_dir, usual.container_logs_dir) == ("/mine/pods", "/mine/containers")
    chosen = adapted(Settings(root_dir="/r", pod_logs_dir="/logs"), "/mine")
    assert (chosen.root_dir, chosen.cert_dir, chosen.pod_logs_dir) == ("/r", "/r/pki", "/logs")
    for settings in (usual, chosen):
        assert not settings.cgroups_per_qos
        assert settings.enforce_node_allocatable == ()
