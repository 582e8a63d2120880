"""Reading a configuration file whole or not at all, also when it is replaced or written meanwhile."""

import os
import socket
import threading
from pathlib import Path

import pytest

from supervisor.config.kubeletconfig import loading
from supervisor.config.kubeletconfig.loading import MAX_BYTES, load
from tests.kubeletconfig.samples import EVERY, HEAD, KUBEADM


def message(path: Path) -> str:
    loaded = load(path)
    assert len(loaded.errors) == 1
    return str(loaded.errors[0])


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(KUBEADM)
    loaded = load(file)
    assert (loaded.errors, loaded.config.cgroup_driver, loaded.file) == ((), "systemd", str(file))


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    assert message(path) == f"{path}: does not exist; check the path, or leave the flag out for the defaults"


def test_directory_is_an_error_that_names_config_dir(tmp_path: Path) -> None:
    assert message(tmp_path) == (
        f"{tmp_path}: is a directory, not a file; a directory of drop-ins is given with --config-dir"
    )


def test_dangling_link_is_an_error(tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(tmp_path / "gone")
    assert message(link) == f"{link}: is a symbolic link without a target; restore its target"


def test_loop_of_links_is_an_error(tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(link)
    assert "Too many levels of symbolic links" in message(link)


def test_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "secret.yaml"
    file.write_text(KUBEADM)
    monkeypatch.setattr(loading.os, "open", refuse)  # the tests may run as root, who can read everything
    assert message(file) == (
        f"{file}: cannot be read: Permission denied; check the permissions of the file and of the directories above it"
    )


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    assert message(fifo) == f"{fifo}: is not a regular file"


def test_a_socket_and_a_device_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert "cannot be read: No such device or address" in message(tmp_path / "s")
    assert message(Path("/dev/zero")) == "/dev/zero: is not a regular file"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as out:
        out.truncate(1 << 40)
    assert message(file) == f"{file}: is larger than a configuration may be ({MAX_BYTES} bytes)"


def test_name_with_a_zero_byte_is_an_error() -> None:
    assert "embedded null" in str(load("a\0b").errors[0])


def test_a_file_that_grows_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD)
    fstat, calls = os.fstat, []

    def growing(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 2:  # between the first reading and the look after it
            file.write_text(HEAD + "maxPods: 7\n")
        return fstat(descriptor)

    monkeypatch.setattr(loading.os, "fstat", growing)
    assert load(file).config.max_pods == 7


def test_constantly_changing_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD)
    fstat = os.fstat

    def growing(descriptor: int) -> os.stat_result:
        with file.open("a") as out:
            out.write("#")
        return fstat(descriptor)

    monkeypatch.setattr(loading.os, "fstat", growing)
    assert "is being written; write another file and rename it over this one" in message(file)


def test_swapped_links_give_one_version(tmp_path: Path) -> None:
    """As the kubelet updates a ConfigMap volume: ..data is renamed over, the old directory is removed."""
    versions = {"a": KUBEADM, "b": EVERY}
    for name, text in versions.items():
        (tmp_path / f"..{name}").mkdir()
        (tmp_path / f"..{name}" / "kubelet").write_text(text)
    data, file = tmp_path / "..data", tmp_path / "kubelet"
    data.symlink_to("..a")
    file.symlink_to("..data/kubelet")
    done = threading.Event()

    def swap() -> None:
        while not done.wait(0.0005):
            for name in versions:
                temporary = tmp_path / "..data_tmp"
                temporary.symlink_to(f"..{name}")
                temporary.replace(data)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        read = [loading.read(str(file)) for _ in range(500)]
    finally:
        done.set()
        thread.join()
    assert set(read) <= {text.encode() for text in versions.values()}
