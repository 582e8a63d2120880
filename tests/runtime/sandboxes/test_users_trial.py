"""The trial of user namespaces: what it finds out, and what it leaves alone."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._host.files import mounts
from actors.runtime.assembly import data_dir
from actors.runtime.filesystems import rootfs
from actors.runtime.model import namespaces
from actors.runtime.model.user_mapping import PodUsers, UserMapping
from actors.runtime.oci import user_namespaces
from actors.runtime.oci.helper import HELPER
from actors.runtime.oci.runtime import OciError
from actors.runtime.sandboxes import users_trial
from tests.runtime.instance import EmbeddedInstance

IDS = UserMapping(1 << 21, 65_536)
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8


@pytest.fixture
def users(tmp_path: Path) -> Iterator[PodUsers]:
    """A pinned user namespace."""
    with user_namespaces.held(IDS, ["uts"]) as holder:
        pins = namespaces.make(tmp_path / "ns", ["uts"], "pod", {}, holder=holder)
    try:
        yield PodUsers(IDS, pins["user"])
    finally:
        namespaces.release(tmp_path / "ns")


@pytest.mark.parametrize(
    ("oci", "overlay", "why"), [(HELPER, True, "isolation level 1"), ("runc", False, "it takes an overlayfs")]
)
def test_machine_without_the_means_is_not_tried(oci: str, overlay: bool, why: str) -> None:
    engine: Any = SimpleNamespace(rootfs=SimpleNamespace(overlay=overlay), ocis={oci: None}, offered=(oci,))
    assert why in users_trial.problems(engine)[oci]


def test_trial_goes_on_after_an_oci_runtime_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Oci:
        def __init__(self, name: str) -> None:
            self.name = name

        def version(self) -> str:
            if self.name == "broken":
                raise OciError("broken --version: exit code 1")
            return "1"

        def delete(self, _: str) -> None:
            """Nothing was made."""

    def tried(_: Any, oci: Oci, *__: Any) -> None:
        ran.append(oci.name)
        if oci.name == "slow":
            raise subprocess.TimeoutExpired("run", 30)
        if oci.name == "old":
            raise users_trial.Lacking("old would give the machine's /dev/null to the pod")

    ran: list[str] = []
    names = ("old", "slow", "broken", "good")
    engine: Any = SimpleNamespace(rootfs=SimpleNamespace(overlay=True), ocis={one: Oci(one) for one in names})
    engine.offered, engine.boot, engine.run, engine.root = names, "boot", tmp_path, tmp_path / "root"
    engine.pins_of = lambda _: tmp_path / "pins"
    for name, replaced in (("_try_container", tried), ("_try_tmpfs", lambda _: None)):
        monkeypatch.setattr(users_trial, name, replaced)
    monkeypatch.setattr(users_trial, "try_mapped_overlay", lambda *_: None)
    monkeypatch.setattr(users_trial.user_namespaces, "held", lambda *_: contextlib.nullcontext(0))
    monkeypatch.setattr(users_trial.namespaces, "make", lambda *_, **__: {"user": "pinned"})
    found = users_trial.problems(engine)
    assert [name for name in names if not found[name]] == ["good"]
    assert ("/dev/null" in found["old"], "30 s" in found["slow"], "--version" in found["broken"]) == (True,) * 3
    assert users_trial.problems(engine) == found
    assert ran == [*names, *names[:3]]  # a success is remembered


@pytest.mark.needs("mounts")
@pytest.mark.parametrize(("script", "owner"), [("true", 0), ("chown 7 /proc/self/fd/0", 7)])
def test_owner_of_a_null_device_tells_of_a_bad_oci_runtime(tmp_path: Path, script: str, owner: int) -> None:
    before = os.stat("/dev/null").st_uid
    assert users_trial._run(["sh", "-c", f"{script}; echo said"], tmp_path) == ("said\n", owner)
    assert os.stat("/dev/null").st_uid == before


@pytest.mark.needs("users of pods")
def test_success_is_remembered_for_the_boot() -> None:
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvtrial-")), isolation=1) as made:
        done = next(Path(made.settings.run_dir, "runtime").glob(f"{users_trial._DONE}-*"))
        remembered = done.read_text()
        assert remembered.startswith(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        written = done.stat().st_mtime_ns
        for content, again in ((remembered, False), ("an older boot", True)):
            if again:
                done.write_text(content)
                written = done.stat().st_mtime_ns
            made.kill()
            made.start()
            assert (done.stat().st_mtime_ns != written) == again
            assert done.read_text() == remembered
            assert made.cri.status().result().runtime_handlers[0].features.user_namespaces
        left = [made.settings.run_dir + "/runtime/ns", made.settings.run_dir + "/runtime/oci"]
        assert [os.listdir(one) for one in left if os.path.isdir(one)] in ([[]], [[], []])
        assert not (data_dir(made.settings) / "probe").exists()


@pytest.mark.needs("users of pods")
def test_root_directory_without_devices_and_programs_will_do(tmp_path: Path) -> None:
    mounts.mount("tmpfs", str(tmp_path), "tmpfs", "", _NOSUID | _NODEV | _NOEXEC)
    try:
        with EmbeddedInstance(tmp_path / "machine", isolation=1) as made:
            assert made.cri.status().result().runtime_handlers[0].features.user_namespaces
    finally:
        mounts.unmount(str(tmp_path), mounts.MNT_DETACH)


@pytest.mark.needs("mounts")
def test_many_mapped_layers_are_one_file_system(tmp_path: Path, users: PodUsers) -> None:
    """More than mount(2) takes as options."""
    names = [f"{number}-{'x' * 40}" for number in range(200)]
    for name in names:
        (tmp_path / "layers" / name / "fs").mkdir(parents=True)
        (tmp_path / "layers" / name / "fs" / name).touch()
    target = tmp_path / "target"
    target.mkdir()
    lower = [f"{name}/fs" for name in names]
    rootfs._overlay(str(tmp_path / "layers"), lower, str(target), namespace=users.namespace)
    try:
        assert sorted(one.name for one in target.iterdir()) == sorted(names)
        assert {one.stat().st_uid for one in (target, *target.iterdir())} == {IDS.first}
        assert [one.fs_type for one in mounts.mounts_under(str(tmp_path))] == ["nsfs", "nsfs", "overlay"]
    finally:
        namespaces.unmount_all(str(target))


@pytest.mark.needs("mounts")
def test_holder_of_namespaces_ends_with_them() -> None:
    with user_namespaces.held(IDS, ["network", "ipc", "uts"]) as pid:
        maps = Path(f"/proc/{pid}/uid_map").read_text().split()
        assert maps == ["0", str(IDS.first), str(IDS.length)]
        assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
        assert os.stat(f"/proc/{pid}/ns").st_uid in (0, IDS.first)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.needs("mounts")
def test_impossible_mapping_is_told() -> None:
    with (
        pytest.raises(OSError, match=r"uid_map|Invalid argument"),
        user_namespaces.held(UserMapping(2**32 - 10, 65_536), []),
    ):
        pass
