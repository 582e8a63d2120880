"""`supervisor start` beside other agents, as a user starts it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors._cgroup.hierarchy import hierarchy
from proto.agent.settings import Settings
from tests.harness import Stalls, alive, wait_for
from tests.ownership.stand_ins import Nodevisor
from tests.ownership.test_facts import pod_cgroup

pytestmark = pytest.mark.needs("root", "mounts", "cgroups")


def elsewhere(settings: Settings, directory: Path, **shared: str) -> Settings:
    """An agent with everything of its own, but what is `shared`."""
    other = {
        "run_dir": f"{directory}/run2",
        "root_dir": f"{directory}/root2",
        "pod_logs_dir": f"{directory}/logs2",
        "container_logs_dir": f"{directory}/links2",
        "cgroup_root": f"{settings.cgroup_root}/other",
    }
    return replace(settings, **(other | shared))


@pytest.fixture
def first(settings: Settings) -> Iterator[Nodevisor]:
    with Nodevisor(settings) as agent:
        yield agent


def test_second_agent_is_refused_and_the_first_unharmed(first: Nodevisor, settings: Settings, directory: Path) -> None:
    before = first.pids()
    supervisor, run_dir = first.process.pid, settings.run_dir
    who = f"another nodevisor, pid {supervisor} with run directory {run_dir}, serves"
    for shared in ("root_dir", "pod_logs_dir", "container_logs_dir", "cgroup_root"):
        other = elsewhere(settings, directory, **{shared: getattr(settings, shared)})
        said = Nodevisor(other).refused()
        assert who in said
        assert f"`supervisor stop --run-dir {run_dir}`" in said
        assert f"--{shared.replace('_', '-')}" in said
    same = Nodevisor(settings).refused()
    assert f"{run_dir} is in use by the supervisor with pid {supervisor}" in same
    bound = elsewhere(settings, directory, root_dir=f"{directory}/bound")
    mount = f'mkdir {directory}/bound && mount --bind {settings.root_dir} {directory}/bound && exec "$@"'
    assert who in Nodevisor(bound, before=("unshare", "--mount", "sh", "-c", mount, "sh")).refused()
    assert first.pids() == before
    assert not (directory / "run2").exists()
    with Nodevisor(elsewhere(settings, directory)):
        assert first.pids() == before


def test_only_the_supervisor_holds_its_claims(first: Nodevisor, settings: Settings) -> None:
    def claims(pid: int) -> set[str]:
        links = [os.path.realpath(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
        return {link for link in links if link.endswith("/kubepods") or link == settings.root_dir}

    before = first.pids()
    assert len(claims(before["supervisor"])) == 1 + len(hierarchy().paths("/"))
    os.kill(before["forkserver"], signal.SIGKILL)
    wait_for(lambda: first.pids()["forkserver"] not in (0, before["forkserver"]), 30, "another forkserver")
    os.kill(before["probe"], signal.SIGKILL)
    wait_for(lambda: first.serves() and first.pids()["probe"] != before["probe"], 30, "another probe")
    for name, pid in first.pids().items():
        assert bool(claims(pid)) == (name == "supervisor"), name


@pytest.mark.parametrize("deleted", [False, True], ids=["same run directory", "run directory deleted"])
def test_start_after_a_killed_supervisor_succeeds_at_once(first: Nodevisor, settings: Settings, deleted: bool) -> None:
    old = first.pids()
    stopped = old["probe"]
    os.kill(stopped, signal.SIGSTOP)  # an actor of the old agent that is still there
    first.process.kill()
    first.process.wait()
    if deleted:
        shutil.rmtree(settings.run_dir)
    try:
        with Nodevisor(settings) as second:
            assert second.pids()["supervisor"] == second.process.pid
    finally:
        if alive(stopped):
            os.kill(stopped, signal.SIGKILL)


def test_agent_that_ends_on_lock_contention_is_followed(settings: Settings) -> None:
    lock = f"--lock-file={settings.run_dir}.lock"
    with Nodevisor(settings, lock, "--exit-on-lock-contention") as old, Nodevisor(settings, lock) as new:
        assert old.process.wait(60) == 0
        assert new.process.poll() is None


def test_start_beside_a_foreign_pod_needs_take_over(settings: Settings) -> None:
    with pod_cgroup(settings, "f0e1", hierarchies=1) as pid:
        began = time.monotonic()
        with Stalls() as machine:
            said = Nodevisor(settings).refused()
        assert "1 pod of another agent runs below our cgroup root" in said
        assert f"pid {pid} sleep" in said
        assert time.monotonic() - began < 10 + machine.longest_s
        assert alive(pid)
        assert not Path(settings.run_dir).exists()
        with Nodevisor(settings, "--take-over"):
            assert Path(settings.root_dir, "pods/f0e1").is_dir()
