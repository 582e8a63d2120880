"""Images made of this machine's own programs run where nothing else of the machine is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.containerd import layers, machine
from tests.containerd.images import Image, made_of, python, write_archive

Run = Callable[..., str]


TRUSTED: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
"""Python 3.14 refuses absolute links without it. The 3.11.2 of Debian 12 does not know it."""


@pytest.fixture(scope="module")
def shell() -> bytes:
    return layers.shell(None)


@pytest.fixture
def run(shell: bytes, tmp_path: Path) -> Run:
    """Runs a command in a root file system of layers."""

    def in_layers(*command: str, above: bytes = b"") -> str:
        root = tmp_path / "root"
        for layer in (shell, above):
            if layer:
                with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                    tar.extractall(root, **TRUSTED)
        become_root = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
        line = [*become_root, "chroot", str(root), *command]
        environment = {"PATH": "/bin:/usr/bin:/usr/sbin:/sbin", "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return in_layers


def names(layer: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return tar.getnames()


def test_the_machines_shell_and_tools_run_without_the_machine(run: Run) -> None:
    script = (
        "echo one > /tmp/f; cat /tmp/f; date +%s > /dev/null; test -e /tmp/f && sleep 0.01; id -u; tail -n 1 /tmp/f"
    )
    assert run("sh", "-c", script.replace("> /dev/null", "> /tmp/date")).split() == ["one", "0", "one"]


def test_every_tool_finds_its_libraries(run: Run, shell: bytes) -> None:
    loader = "for tool in /bin/*; do LD_TRACE_LOADED_OBJECTS=1 $tool < /etc/passwd; done"
    assert "not found" not in run("sh", "-c", loader)
    assert {"bin/sh", "bin/sleep", "bin/ls", "bin/touch", "bin/tail"} <= set(names(shell))


def test_the_machines_python_runs_a_server_without_the_machine(run: Run) -> None:
    script = "import asyncio, ctypes, http.server, json, os, ssl, sys; print(sys.version_info[:2], os.__file__)"
    said = run("python3", "-c", script, above=layers.python())
    assert said.startswith(str(sys.version_info[:2]))


def test_the_same_machine_gives_the_same_bytes(shell: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert layers.shell.__wrapped__(None) == shell
    files = list(machine.python_files())
    monkeypatch.setattr(machine, "python_files", lambda: iter(files))  # others may compile a module meanwhile
    assert layers.python.__wrapped__() == layers.python.__wrapped__()
    monkeypatch.undo()
    sources = [[file for file in found if file.suffix != ".pyc"] for found in (files, machine.python_files())]
    assert sources[0] == sources[1]


def test_layer_has_no_duplicates_and_directories_first(shell: bytes) -> None:
    for layer in (shell, layers.python()):
        found = names(layer)
        assert len(found) == len(set(found))
        for index, name in enumerate(found):
            parent = os.path.dirname(name)
            assert parent in ("", *found[:index]) or layer is not shell


def test_modes_of_directories_below_stay() -> None:
    assert {"tmp", "etc", "root"}.isdisjoint(names(layers.python()))
    assert {"tmp", "etc"}.isdisjoint(names(layers.of_files({"/tmp/a": b"", "/etc/b": b""})))


def test_image_sources_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "busybox_program", lambda: Path("/opt/busybox"))
    assert made_of(Image("a")) == "/opt/busybox"
    assert made_of(Image("a", tools=True)) == "this machine's shell and tools"
    assert made_of(python()) == f"/opt/busybox and {machine.python_program()}"


def test_no_busybox_is_used_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.NO_BUSYBOX, "1")
    assert machine.busybox_program.__wrapped__() is None


def fake(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.mark.parametrize(
    ("ldd", "why"),
    [
        ("echo '\tlibgone.so.1 => not found'", "no library libgone.so.1"),
        ("", "cannot tell which libraries"),
    ],
)
def test_a_program_that_lacks_a_library_makes_no_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ldd: str, why: str
) -> None:
    if ldd:
        fake(tmp_path, "ldd", ldd)
    monkeypatch.setattr(machine, "_search_path", lambda: str(tmp_path))
    with pytest.raises(machine.CannotBuild, match=why):
        machine.libraries([Path("/bin/sh")])


def test_a_machine_without_a_shell_makes_no_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(tmp_path, "sleep", "")
    monkeypatch.setattr(machine, "_search_path", lambda: str(tmp_path))
    with pytest.raises(machine.CannotBuild, match=r"no sh$"):
        machine.tools()


def test_a_program_of_several_names_is_there_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(tmp_path, "many", "echo $0")
    for name in ("sh", "sleep"):
        (tmp_path / name).symlink_to("many")
    monkeypatch.setattr(machine, "_search_path", lambda: str(tmp_path))
    monkeypatch.setattr(machine, "libraries", lambda _: set())
    with tarfile.open(fileobj=io.BytesIO(layers.shell.__wrapped__(None))) as tar:
        assert tar.getmember("bin/sh").isreg()
        assert tar.getmember("bin/sleep").linkname == "sh"


def test_processes_are_listed_where_the_machine_has_no_ps(tmp_path: Path) -> None:
    (tmp_path / "ps").write_bytes(layers._PS)
    with subprocess.Popen(["sleep", "98.76"]) as sleeping:
        try:
            # A command line is any bytes: one of another process on this machine need not be UTF-8.
            shown = subprocess.check_output(["sh", str(tmp_path / "ps")]).decode(errors="replace")
            commands = subprocess.check_output(["sh", str(tmp_path / "ps"), "-o", "args"]).decode(errors="replace")
        finally:
            sleeping.kill()
    assert f"{sleeping.pid:5} sleep 98.76 \n" in shown
    assert "\nsleep 98.76 \n" in commands


def test_layers_that_images_share_are_in_an_archive_once(tmp_path: Path) -> None:
    images = [Image("a", tools=True), Image("b", tools=True, python=True)]
    write_archive(tmp_path / "images.tar", images)
    size = len(layers.shell(None)) + len(layers.python())
    assert size < (tmp_path / "images.tar").stat().st_size < size + 100_000
