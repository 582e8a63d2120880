"""`make run`: valid manifests, images without a registry, and a free container runtime."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from actors._cri.client import Cri
from actors._cri.discover import Runtime
from actors._cri.errors import CriError
from actors.config.pods.static_pods import Allowed, load
from actors.objects.parsing.load import load as load_objects
from actors.pod_workers.environment.references import pod_references
from proto.cri import api_pb2 as pb
from tests.containerd import BUSYBOX, PAUSE, ContainerdInstance
from tests.containerd.images import PYTHON
from tests.containerd.pods import sandbox_config
from tests.containerd.run import session
from tests.containerd.run.sample_port import PORT, reserved, with_port
from tests.containerd.run.samples import PULL_S, provide, provided, sample_images, sandbox_image_of
from tests.ports import free_ports

DIRECTORY = Path(__file__).parents[3] / "etc" / "samples"
SAMPLES = sorted(path for path in DIRECTORY.iterdir() if path.is_file())
OBJECTS = sorted((DIRECTORY / "objects").iterdir())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_has_no_warnings_and_needs_no_registry(path: Path) -> None:
    found = load(str(path), path.read_bytes(), "node", Allowed(objects_dir=True))
    assert found.warnings == ()
    containers = (*found.pod.spec.init_containers, *found.pod.spec.containers)
    assert {(c.image, c.image_pull_policy) for c in containers} <= {(i.name, "IfNotPresent") for i in sample_images()}


def test_objects_of_samples_exist() -> None:
    files = [load_objects(str(path), path.read_bytes()) for path in OBJECTS]
    assert [file.warnings for file in files] == [()] * len(files)
    pods = [load(str(path), path.read_bytes(), "node", Allowed(objects_dir=True)).pod for path in SAMPLES]
    wanted = {ref for pod in pods for ref in pod_references(pod)}
    assert {one.object.ref for file in files for one in file.objects} == wanted


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"config": json.dumps({"sandboxImage": "pause:1"})}, "pause:1"),
        ({"config": json.dumps({"other": 1})}, ""),
        ({"config": "not JSON"}, ""),
        ({}, ""),
    ],
)
def test_sandbox_image_is_the_runtimes(info: dict[str, str], expected: str) -> None:
    assert sandbox_image_of(info) == expected


def test_images_are_made_without_a_registry_and_removed_at_end(containerd: ContainerdInstance, cri: Cri) -> None:
    said: list[str] = []
    with mute_registry(containerd.registries, "docker.io") as asked:
        began = time.monotonic()
        with provided(cri, said.append):
            assert time.monotonic() - began < PULL_S + 20
            assert cri.image_status(PYTHON).result() is not None
            provide(cri, said.append)
        assert asked() == 0
    assert said[0].startswith(f"Images: made here, without a registry: {PYTHON} from ")
    assert said[1] == f"Images: {BUSYBOX} and {PYTHON} and {PAUSE} are there."
    assert cri.image_status(PYTHON).result() is None
    assert cri.image_status(BUSYBOX).result() is not None


@contextlib.contextmanager
def mute_registry(registries: Path, name: str) -> Iterator[Callable[[], int]]:
    """A registry that takes connections and never answers; how many it has taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        directory = registries / name
        directory.mkdir()
        host = f"http://127.0.0.1:{server.getsockname()[1]}"
        (directory / "hosts.toml").write_text(f'server = "{host}"\n[host."{host}"]\n')
        taken: list[socket.socket] = []

        def count() -> int:
            with contextlib.suppress(BlockingIOError):
                while True:
                    taken.append(server.accept()[0])
            return len(taken)

        yield count
        for one in taken:
            one.close()
        (directory / "hosts.toml").unlink()
        directory.rmdir()


class NotContainerd:
    """A runtime that has no images and takes none but from registries, which do not answer."""

    endpoint = "unix:///run/crio/crio.sock"

    def status(self, **_: bool) -> Any:
        return done(pb.StatusResponse())

    def version(self) -> Any:
        return done(pb.VersionResponse(runtime_name="cri-o"))

    def image_status(self, _: str) -> Any:
        return done(None)

    def pull_image(self, _: str, timeout: float) -> Any:
        assert timeout == PULL_S
        call: Future[str] = Future()
        call.set_exception(CriError.of("DeadlineExceeded", "no answer", "PullImage"))
        return call

    def close(self) -> None:
        pass


def done(value: object) -> Future[object]:
    call: Future[object] = Future()
    call.set_result(value)
    return call


def test_runtime_without_images_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Runtime(NotContainerd.endpoint, "cri-o", "1.36", "v1")
    monkeypatch.setattr(session, "discover", lambda: found)
    monkeypatch.setattr(session, "_used_by_others", lambda _: "")
    monkeypatch.setattr(session, "Cri", lambda _: NotContainerd())
    with contextlib.ExitStack() as stack:
        assert session._existing(stack) is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"Images: pulling {BUSYBOX} and {PYTHON}, for at most 5 s ..."
    assert lines[2].startswith(f"Runtime: not cri-o after all: it cannot pull {BUSYBOX} within 5 s (")


def test_failed_private_containerd_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("cannot start containerd; the end of its log:\nno overlay")

    directory = tempfile.mkdtemp(prefix="nv-", dir="/tmp")  # short, for the sockets below it
    monkeypatch.setattr(tempfile, "tempdir", directory)
    monkeypatch.setattr(session, "missing_for_samples", lambda: "")
    monkeypatch.setattr(ContainerdInstance, "__enter__", fail)
    with contextlib.ExitStack() as stack:
        assert session._private(stack) is None
    assert "Runtime: not containerd after all: no overlay." in capsys.readouterr().out
    os.rmdir(directory)  # it is empty


def test_full_disk_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(session, "_existing", lambda _: None)
    monkeypatch.setattr(session, "_private", lambda _: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 30, 1 << 30, 7 << 20))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        assert session.main(["false"]) == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert capsys.readouterr().err == (
        f"cannot run: 7 MB are free in {tmp_path}, 450 MB are needed; make room below {tmp_path}, "
        "or name another directory: TMPDIR=DIR make run\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_busy_or_foreign_port_is_skipped_until_it_is_free() -> None:
    taken, *free = free_ports(3)  # which the kernel gives to no connection meanwhile
    with socket.create_server(("", taken)):
        with reserved((taken, *free)) as first, reserved((taken, *free)) as second:
            assert (first, second) == tuple(free)
        with reserved((taken, *free)) as again:
            assert again == free[0]
        with pytest.raises(OSError, match="are all taken"), reserved((taken,)):
            pass


def test_samples_get_another_port_only_in_a_copy(tmp_path: Path) -> None:
    assert with_port(DIRECTORY, tmp_path / "copy", PORT) == DIRECTORY
    copy = with_port(DIRECTORY, tmp_path / "copy", 18080)
    assert [path.name for path in sorted(copy.iterdir()) if path.is_file()] == [path.name for path in SAMPLES]
    found = load("web.yaml", (copy / "web.yaml").read_bytes(), "node", Allowed(objects_dir=True))
    (container,) = found.pod.spec.containers
    assert container.ports[0].container_port == 18080
    assert "http.server --bind 0.0.0.0 18080" in container.command[-1]
    assert str(PORT) not in (copy / "web.yaml").read_text().replace("18080", "")


def test_a_runtime_with_pods_of_another_node_agent_is_not_free(containerd: ContainerdInstance, cri: Cri) -> None:
    assert session._used_by_others(containerd.endpoint) == ""
    cri.run_pod_sandbox(sandbox_config("theirs", labels={"io.kubernetes.pod.uid": str(uuid.uuid4())})).result()
    assert "runs 1 pod(s) of another node agent" in session._used_by_others(containerd.endpoint)
