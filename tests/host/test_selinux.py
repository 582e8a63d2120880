"""The state of SELinux, the labels of containers' files, and the directories of plugins."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors._host import selinux
from actors._host.selinux import LabelError, Places, SELinux
from proto.v1 import SELinuxOptions

PROCESS, FILE = "system_u:system_r:container_t:s0", "system_u:object_r:container_file_t:s0"
LINE = "24 1 0:22 / {} rw - {} none rw\n"
CONTAINERS = SELinux(enabled=True, process=PROCESS, file=FILE)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A machine with SELinux and a policy for containers."""
    (tmp_path / "fs").mkdir()
    (tmp_path / "mounts").write_text(LINE.format("/", "ext4") + LINE.format(tmp_path / "fs", "selinuxfs"))
    (tmp_path / "current").write_text("system_u:system_r:unconfined_service_t:s0\0")
    contexts = tmp_path / "targeted/contexts"
    contexts.mkdir(parents=True)
    (tmp_path / "config").write_text("# SELINUXTYPE=other\nSELINUX=permissive\nSELINUXTYPE=targeted\n")
    (contexts / "lxc_contexts").write_text(
        f'process = "{PROCESS}"\n; file = "x"\nfile = "{FILE}"\nsandbox_lxc_process\n'
    )
    return Places(str(tmp_path / "mounts"), str(tmp_path / "current"), str(tmp_path), str(tmp_path / "none"))


def test_selinux_is_on_with_its_file_system_and_a_policy(places: Places) -> None:
    assert selinux.read(places) == CONTAINERS


def test_contexts_of_the_containers_package_come_first(places: Places) -> None:
    Path(places.contexts).write_text('process="u:r:t"\nfile="u:r:f"\n')
    assert selinux.read(places) == SELinux(enabled=True, process="u:r:t", file="u:r:f")


def test_selinux_may_be_on_without_a_policy_for_containers(places: Places) -> None:
    Path(places.policies, "config").unlink()
    assert selinux.read(places) == SELinux(enabled=True)


@pytest.mark.parametrize("lack", ["file system", "table", "policy", "writable file system"])
def test_selinux_is_off_without_one_of_its_parts(places: Places, lack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lack == "file system":
        Path(places.mounts).write_text(LINE.format("/", "ext4"))
    elif lack == "table":
        Path(places.mounts).unlink()
    elif lack == "policy":
        Path(places.current).write_text("kernel\0")
    else:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert selinux.read(places) == SELinux()


def test_this_machine_can_be_read() -> None:
    assert selinux.read().enabled is (" - selinuxfs " in Path("/proc/self/mountinfo").read_text())


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"level": "s0:c1,c2"}, "system_u:object_r:container_file_t:s0:c1,c2"),
        ({"level": "s0:c1", "user": "u", "role": "r", "type": "spc_t"}, "u:object_r:container_file_t:s0:c1"),
        ({"level": "s0:c1", "user": "my-user_u"}, "my-user_u:object_r:container_file_t:s0:c1"),
        ({"type": "spc_t"}, ""),
        ({}, ""),
    ],
)
def test_file_label_is_the_default_with_user_and_level(options: dict[str, str], label: str) -> None:
    assert selinux.file_label(SELinuxOptions(**options), CONTAINERS) == label


@pytest.mark.parametrize("known", [SELinux(enabled=True), SELinux(enabled=True, file=FILE)])
def test_without_a_policy_for_containers_no_label_is_known(known: SELinux) -> None:
    assert selinux.file_label(SELinuxOptions(level="s0:c1"), known) == ""


def test_policy_without_levels_needs_none() -> None:
    known = SELinux(enabled=True, process="system_u:system_r:container_t", file="system_u:object_r:container_file_t")
    assert selinux.file_label(SELinuxOptions(type="t"), known) == "system_u:object_r:container_file_t"


@pytest.mark.parametrize(
    "options",
    [
        {"level": 's0",nodev="'},
        {"level": "s0\n"},
        {"level": "s0", "user": "a:b"},
        {"level": "s0:" + "c1," * 300_000},
        {"level": "s0", "user": "u" * 5000},
    ],
    ids=["quotes", "line", "part", "long level", "long user"],
)
def test_options_that_would_add_mount_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(LabelError, match="failed to construct SELinux label"):
        selinux.file_label(SELinuxOptions(**options), CONTAINERS)


@pytest.mark.parametrize(
    ("mounts", "labelled"),
    [
        ({"/": "rw,seclabel"}, True),
        ({"/": "rw,seclabel", "/pods/v": "rw"}, False),
        ({"/": "rw,seclabel", "/pods/v": 'rw,context="u:r:t:s0"'}, False),
        ({"/": "rw", "/pods/v": "rw,seclabel", "/pods/volume": "rw"}, True),
        ({"/": "rw", "/pods/v": "rw,seclabel", "/pods/v/below": "rw"}, True),
        ({"/": "rw", "/pods/v": "rw,noseclabel"}, False),
        ({}, False),
    ],
)
def test_mount_tells_if_its_files_have_labels(tmp_path: Path, mounts: dict[str, str], labelled: bool) -> None:
    lines = (f"24 1 0:22 / {point} rw - ext4 none {options}\n" for point, options in mounts.items())
    (tmp_path / "table").write_text("".join(lines))
    assert selinux.has_seclabel("/pods/v", str(tmp_path / "table")) is labelled


@pytest.mark.needs("mounts")
def test_directories_of_plugins_get_the_label_of_containers(tmp_path: Path) -> None:
    one, missing = tmp_path / "one", tmp_path / "a/b"
    one.mkdir(mode=0o700)
    (one / "inside").touch()
    selinux.share_with_plugins(str(one), str(missing))
    assert [os.getxattr(path, "security.selinux") for path in (one, missing)] == [FILE.encode()] * 2
    assert one.stat().st_mode & 0o777 == 0o700
    with pytest.raises(OSError, match="No data"):
        os.getxattr(one / "inside", "security.selinux")


def test_directory_that_cannot_be_labelled_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    selinux.share_with_plugins(str(tmp_path / "file"))
    assert "cannot label" in caplog.text
