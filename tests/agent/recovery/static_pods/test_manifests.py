"""Manifests that change while their pods start and end, and disks that cannot be written to."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.agent.agent import container, pod
from tests.agent.changing import content
from tests.agent.faults import Eye, condition, expect_nothing, remove_all
from tests.harness import wait_for

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.timeout(300)]


def saying(name: str, word: str, **spec) -> dict:
    return pod(name, container("c", f"echo {word}; trap 'sleep 0.5; exit 0' TERM; sleep 100000 & wait"), **spec)


def said(eye: Eye, name: str) -> str:
    return eye.agent.command("logs", name, check=False).stdout.strip()


@pytest.mark.parametrize("pause_s", [0.0, 0.15, 0.6])
def test_edited_twice_quickly(eye, pause_s):
    for word in ("one", "two", "three"):
        eye.agent.write("web", saying("web", word))
        time.sleep(pause_s)
    wait_for(lambda: said(eye, "web") == "three", 40, "the last one runs")
    wait_for(lambda: eye.ready("web") and len(eye.agent.sandboxes()) == 1, 40, "alone")
    assert eye.runtime() == ["web/c"]
    assert eye.restarts() == {}


@pytest.mark.parametrize("pause_s", [0.1, 0.3, 0.9])
def test_removed_and_added_again_while_it_ends(eye, pause_s):
    path = eye.agent.write("web", saying("web", "one"))
    wait_for(lambda: eye.ready("web"), 40, "runs")
    first, uid = next(iter(eye.agent.running())), eye.pods()["web"].metadata.uid
    path.unlink()
    time.sleep(pause_s)
    eye.agent.write("web", saying("web", "one"))
    wait_for(lambda: first not in eye.agent.running() and eye.runtime() == ["web/c"], 40, "it ends, and comes again")
    wait_for(lambda: eye.ready("web"), 40, "ready")
    assert eye.pods()["web"].metadata.uid == uid
    assert eye.restarts() in ({"web/c": 1}, {})  # counted while its last life is still known
    time.sleep(0.8)  # what cleans up after the first life leaves the second one's directories alone
    assert (eye.agent.root_dir / "pods" / uid).is_dir()
    # After what its first life said, if that is still there: the paths are the same.
    wait_for(lambda: said(eye, "web"), 40, "its log is there")


def test_removed_and_added_again_at_once(eye):
    """It ends and starts again with a counted restart, even if no look saw its absence."""
    path = eye.agent.write("web", saying("web", "one"))
    wait_for(lambda: eye.ready("web"), 40, "runs")
    first, text = next(iter(eye.agent.running())), path.read_text()
    path.unlink()
    path.write_text(text)
    wait_for(lambda: eye.restarts() == {"web/c": 1} and eye.ready("web"), 40, "it ended, and runs again")
    assert first not in eye.agent.running()
    assert eye.runtime() == ["web/c"]
    path.unlink()
    wait_for(lambda: not eye.agent.sandboxes(), 40, "nothing of either life is left")


def test_a_renamed_file(eye):
    path = eye.agent.write("web", saying("web", "one"))
    wait_for(lambda: eye.ready("web"), 40, "runs")
    path.rename(eye.agent.manifests / "other.yaml")
    time.sleep(1)
    wait_for(lambda: eye.ready("web") and eye.runtime() == ["web/c"], 40, "runs")
    assert eye.restarts() == {}


def test_thirty_at_once_and_gone_at_once(eye):
    names = [f"p{n}" for n in range(30)]
    for name in names:
        eye.agent.write(name, pod(name))
    wait_for(lambda: eye.ready(*names), 90, "thirty ready")
    assert eye.runtime() == sorted(f"{name}/c" for name in names)
    remove_all(eye)
    expect_nothing(eye, 90)


def test_a_broken_version_between_two_good_ones(eye):
    eye.agent.write("web", saying("web", "one"))
    wait_for(lambda: eye.ready("web"), 40, "runs")
    before = eye.agent.running()
    eye.agent.write("web", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: 7}\n")
    wait_for(lambda: "web.yaml" in eye.agent.log.read_text(), 40, "said")
    assert eye.agent.running() == before
    eye.agent.write("web", saying("web", "two"))
    wait_for(lambda: said(eye, "web") == "two" and eye.ready("web"), 40, "replaced")


def test_config_killed_while_a_manifest_is_broken_touches_no_pod(eye):
    eye.agent.write("web", saying("web", "one"))
    wait_for(lambda: eye.ready("web"), 40, "runs")
    before = eye.agent.running()
    checkpoint = eye.agent.root_dir / "nodevisor/config.json"
    wait_for(lambda: b"web.yaml" in content(checkpoint), 40, "its last good version is on the disk")
    eye.agent.write("web", "{{{ not yaml")
    wait_for(lambda: "web.yaml" in eye.agent.log.read_text(), 40, "said")
    eye.signal("config")
    time.sleep(2)
    assert eye.agent.running() == before
    assert eye.ready("web")


def told(eye: Eye, name: str) -> str:
    """Why it does not run: its status, and the agent's log."""
    now = eye.container(name)
    waiting = now.state.waiting if now is not None else None
    return f"{waiting.message if waiting is not None else ''} {eye.agent.log.read_text()}".lower()


def unmounted(path: str) -> bool:
    """Unmount; return False while a process still looks there."""
    return subprocess.run(["umount", path], check=False).returncode == 0


def remounted(path: str, *how: str) -> None:
    subprocess.run(["mount", *how, path], check=True)


@pytest.mark.parametrize("part", ["root/pods", "logs"])
def test_a_directory_that_cannot_be_written_to(eye, part):
    eye.agent.write("before", pod("before"))
    wait_for(lambda: eye.ready("before"), 40, "runs")
    path = str(eye.agent.dir / part)
    subprocess.run(["mount", "--bind", path, path], check=True)
    remounted(path, "-o", "remount,bind,ro")
    try:
        eye.agent.write("after", pod("after"))
        wait_for(lambda: "read-only file system" in told(eye, "after"), 40, "the reason is told")
        assert condition(eye.pods()["before"], "Ready") == "True"
        assert all(row.state == "ready" for row in eye.actors().values())
        assert all(row.restarts == 0 for name, row in eye.actors().items() if name != "config")
    finally:
        wait_for(lambda: unmounted(path), 20, f"nobody holds {path}")
    wait_for(lambda: eye.ready("before", "after"), 30, "goes on by itself")
    assert eye.restarts() == {}


def test_pod_runs_again_after_pod_workers_died_at_its_end(eye):
    """Its UID is the same; how its first life ended is not its second one's business."""
    path = eye.agent.write("web", saying("web", "one"))
    wait_for(lambda: eye.ready("web"), 40, "runs")
    for pause_s in (0.3, 0.45, 0.7, 0.9):
        path.unlink()
        time.sleep(pause_s)
        eye.signal("pod_workers")
        wait_for(lambda: not eye.agent.sandboxes(), 30, "ended")
        eye.agent.write("web", saying("web", "one"))
        wait_for(lambda: eye.ready("web") and eye.runtime() == ["web/c"], 30, f"runs again after {pause_s}")
