"""Locks on directories: by any path, with directories made for them and removed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors._cgroup.hierarchy import hierarchy
from proto.agent.settings import Settings
from supervisor.ownership import held_claims, starting
from supervisor.ownership.claims import Claims
from supervisor.ownership.held_claims import HeldClaim, HeldClaims
from supervisor.ownership.places import places
from tests.harness import Stalls, wait_for

pytestmark = pytest.mark.needs("root", "mounts", "cgroups")

# Locks a directory in a mount and cgroup namespace of its own, by a path that exists only there.
HOLD = """
set -e
mkdir -p "$1"
mount --bind "$2" "$1"
exec {python} -c 'import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)' "$1"
"""


def claim(settings: Settings, **changes: object) -> list[int]:
    """The descriptors. Raises OwnershipError."""
    return [one.descriptor for one in starting.claim(replace(settings, **changes), [], take_over=False)]


@contextmanager
def claimed(settings: Settings) -> Iterator[list[int]]:
    descriptors = claim(settings)
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_places_are_locked_until_descriptors_are_closed(settings: Settings) -> None:
    owned = places(settings, hierarchy())
    with claimed(settings) as descriptors:
        assert len(descriptors) == len(owned)
        for place in owned:
            other = os.open(place.path, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(other)
    with claimed(settings):
        pass


@pytest.mark.parametrize("setting", ["root_dir", "pod_logs_dir", "container_logs_dir", "cgroup_root"])
def test_one_common_place_is_refused_also_by_a_link(settings: Settings, directory: Path, setting: str) -> None:
    other = Settings(
        run_dir=f"{directory}/run2",
        root_dir=f"{directory}/root2",
        pod_logs_dir=f"{directory}/logs2",
        container_logs_dir=f"{directory}/links2",
        cgroup_root=f"{settings.cgroup_root}/other",
    )
    with claimed(settings):
        there = getattr(settings, setting)
        if setting != "cgroup_root":
            (directory / "by-link").symlink_to(there)
            there = f"{directory}/by-link"
        began = time.monotonic()
        with Stalls() as machine, pytest.raises(starting.OwnershipError) as refused:
            claim(other, **{setting: there})
        assert time.monotonic() - began < 1.0 + machine.longest_s
        assert f"(pid {os.getpid()}) serves " in str(refused.value)
        assert f"--{setting.replace('_', '-')}" in str(refused.value)
        assert not (directory / "root2").exists() or setting == "root_dir"  # what was made for the claim is gone
        with claimed(other):
            pass


@pytest.mark.parametrize("what", ["root", "cgroup"])
def test_bind_mount_in_other_namespaces_leads_to_the_same_lock(settings: Settings, directory: Path, what: str) -> None:
    with claimed(settings):
        pass  # what is to be locked is there
    tree = hierarchy()
    target = settings.root_dir if what == "root" else tree.paths(f"{settings.cgroup_root}/kubepods")[0]
    script = HOLD.format(python=sys.executable)
    line = ["unshare", "--mount", "--cgroup", "sh", "-c", script, "sh", f"{directory}/elsewhere", target]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert not (directory / "elsewhere" / "pods").exists()
            with pytest.raises(starting.OwnershipError, match=rf"\(pid {holder.pid}\) serves"):
                claim(settings)
        finally:
            holder.kill()
    holder.wait()
    with claimed(settings):
        pass


@pytest.mark.parametrize(
    ("root", "overlap"), [("kubepods/besteffort", "contains"), ("..", "is inside")], ids=["below", "above"]
)
def test_cgroup_root_in_the_pods_of_another_agent_is_refused(
    settings: Settings, directory: Path, root: str, overlap: str
) -> None:
    lower = replace(settings, cgroup_root=f"{settings.cgroup_root}/kubepods/besteffort")
    first, second = (settings, lower) if root != ".." else (lower, settings)
    second = replace(
        second,
        root_dir=f"{directory}/root2",
        pod_logs_dir=f"{directory}/logs2",
        container_logs_dir=f"{directory}/links2",
    )
    with claimed(first), pytest.raises(starting.OwnershipError, match=f"a cgroup that {overlap} our cgroup"):
        claim(second)


def test_agents_with_separate_places_do_not_conflict(settings: Settings, directory: Path) -> None:
    other = Settings(
        root_dir=f"{directory}/root2",
        pod_logs_dir=f"{directory}/logs2",
        container_logs_dir=f"{directory}/links2",
        cgroup_root=f"{settings.cgroup_root}/other",
    )
    with claimed(settings), claimed(other):
        pass


def test_one_directory_for_two_purposes_is_no_conflict(settings: Settings) -> None:
    with claimed(replace(settings, container_logs_dir=settings.pod_logs_dir)):
        pass


def test_ordinary_users_agent_claims_its_directories(settings: Settings) -> None:
    with claimed(replace(settings, cgroups_per_qos=False)) as descriptors:
        assert len(descriptors) == 3


def test_waiting_start_gets_the_place_when_its_holder_ends(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.ownership.claims.WAIT_S", 20.0)  # on a busy machine the holder takes long to end
    descriptors = claim(settings)
    script = "import sys, time; time.sleep(0.1)"
    passed = tuple(descriptors)
    with subprocess.Popen([sys.executable, "-S", "-c", script], pass_fds=passed):
        for descriptor in descriptors:
            os.close(descriptor)
        with claimed(settings):
            pass


def test_refused_claim_leaves_existing_directories(settings: Settings, directory: Path) -> None:
    (directory / "logs").mkdir()
    claims = Claims()
    claims.take(places(settings, hierarchy()))
    claims.release()
    assert sorted(path.name for path in directory.iterdir()) == ["logs"]
    assert not any(Path(path).exists() for path in hierarchy().paths(settings.cgroup_root))


def test_refused_claim_leaves_a_directory_locked_meanwhile(settings: Settings) -> None:
    place = places(settings, hierarchy())[0]
    late, first = Claims(), Claims()
    late._make(place)
    first.take([place])
    late.take([place])
    assert late.refused == [place]
    late.release()
    assert Path(place.path).is_dir()
    first.release()


def test_cgroup_that_was_made_again_is_claimed_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hierarchy().paths(f"{settings.cgroup_root}/kubepods")[0]
    os.makedirs(path)
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    held = HeldClaims([HeldClaim(path, descriptor, cgroup=True)])
    os.rmdir(path)
    os.mkdir(path)
    held.tick(0.0)
    other = os.open(path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rmdir(path)
    held.tick(held_claims.CHECK_S)  # not there at all: nothing to claim, and no error
    os.mkdir(path)
    third = os.open(path, os.O_RDONLY)
    fcntl.flock(third, fcntl.LOCK_EX)
    held.tick(2 * held_claims.CHECK_S)  # another agent was faster: said, and looked at again
    os.close(third)
    held.tick(3 * held_claims.CHECK_S)
    wait_for(lambda: _is_locked(path), 10, "claimed once the other is gone")
    os.close(other)


def _is_locked(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
