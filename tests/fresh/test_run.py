"""`make run` on a machine where nothing is prepared, as root and as an ordinary user, without any network."""

import re

import pytest

from tests.fresh.conftest import FIRST_RUN, LOAD, READY, READY_S, FirstRun
from tests.fresh.machine import Machine
from tests.fresh.terminal import Terminal
from tests.fresh.traces import Traces

pytestmark = [FIRST_RUN, pytest.mark.needs("mmdebstrap", "root"), pytest.mark.timeout(600)]


def test_all_samples_get_ready_or_complete_soon_after_the_set_up(first_run: FirstRun) -> None:
    assert first_run.own_ready_s < READY_S * LOAD
    assert first_run.ready_s < READY_S * LOAD


def test_the_table_has_every_sample(first_run: FirstRun) -> None:
    rows = re.findall(r"(\S+)-fresh +\d/\d +(Running|Completed)", first_run.said)
    assert {name for name, _ in rows} == {"greeting", "job", "shared-volume", "watched", "web"}


def test_ctrl_c_ends_it_as_it_ends_other_commands(first_run: FirstRun) -> None:
    assert first_run.code in (0, 130), first_run.said
    assert "Traceback" not in first_run.said


def test_nothing_is_left_of_a_run(first_run: FirstRun) -> None:
    assert first_run.left == {}


SHARING = """
apiVersion: v1
kind: Pod
metadata: {name: sharing}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: host
      command: [sh, -c, "mkdir -p /shared/mine && mount -t tmpfs mine /shared/mine"]
      securityContext: {privileged: true}
      volumeMounts: [{name: shared, mountPath: /shared, mountPropagation: Bidirectional}]
  volumes:
    - name: shared
      hostPath: {path: /mnt}
"""


@pytest.mark.parametrize("first_run", ["root"], indirect=True)
def test_pod_with_shared_mounts_removes_none_of_the_machine(ready: Machine, first_run: FirstRun) -> None:
    """Here / is shared, as systemd has it, and /tmp with the pods' root file systems is another mount."""
    before = Traces.of(ready).mounts
    ready.must("sh", "-c", 'printf %s "$1" > /root/sharing.yaml', "sh", SHARING)
    command = [".venv/bin/supervisor", "run", "/root/sharing.yaml"]
    with Terminal(ready, command, first_run.user, first_run.clone) as terminal:
        terminal.wait_for(READY, READY_S * LOAD)
        after = Traces.of(ready).mounts
        terminal.interrupt()
        terminal.wait(60 * LOAD)
    assert before - after == set()
    assert "/mnt/mine" in after
