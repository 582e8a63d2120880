"""`supervisor images` against the embedded runtime, and against a runtime that only lists images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.runtime import PullUnderWay
from proto.wire.errors import Refused
from supervisor.cli import group
from supervisor.cli.common import no_runtime
from supervisor.cli.errors import CommandError
from supervisor.cli.pods import images
from supervisor.cli.streams.remote import call_runtime
from supervisor.host import settings_file
from supervisor.sockets.client import Client
from tests.cli.fake_agent import FakeAgent
from tests.containerd.images import BUSYBOX
from tests.runtime.images.build import Made, entry, tar
from tests.runtime.instance import EmbeddedInstance


@pytest.fixture
def run(embedded: EmbeddedInstance, runner: CliRunner, run_dir: Path) -> Any:
    settings_file.write(Settings(run_dir=str(run_dir), container_runtime_endpoint=embedded.endpoint))

    def invoke(*words: str) -> Any:
        return runner.invoke(group, ["images", *words[:1], "--run-dir", str(run_dir), *words[1:]])

    return invoke


def test_images_are_listed_imported_and_removed(run: Any, tmp_path: Path) -> None:
    def made(name: str) -> Made:
        return Made(tar(entry("file", name.encode())), name=name)

    archive = made("registry.test/one:1").write_archive(tmp_path / "one.tar")
    layout = made("registry.test:5000/two:2").write(tmp_path / "two")
    done = run("import", str(archive), str(layout))
    assert done.exit_code == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["registry.test/one:1", "registry.test:5000/two:2"]
    two = done.stdout.splitlines()[1].split()[1]

    lines = [line.split() for line in run("list").stdout.splitlines()]
    assert lines[0] == ["IMAGE", "TAG", "IMAGE", "ID", "SIZE"]
    assert BUSYBOX.rpartition(":")[0] in [line[0] for line in lines]
    assert ["registry.test:5000/two", "2", two.removeprefix("sha256:")[:13]] in [line[:3] for line in lines]
    told = json.loads(run("list", "-o", "json").stdout)["images"]
    assert {"registry.test/one:1"} in [set(one["repoTags"]) for one in told]

    gone = run("remove", "registry.test/one:1", "registry.test/none:1", two[7:20])
    assert gone.exit_code == 1
    assert gone.stdout.split() == ["registry.test/one:1", two[7:20]]
    assert "registry.test/none:1: no such image" in gone.stderr
    left = {line.split()[0] for line in run("list").stdout.splitlines()}
    assert not left & {"registry.test/one", "registry.test:5000/two"}


def test_errors_are_one_line(run: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"no archive")
    for words, why in (
        (("pull", "127.0.0.1:1/none:1"), "failed to pull image '127.0.0.1:1/none:1'"),
        (("import", str(bad)), "cannot import"),
        (("remove", "Bad Name"), "Bad Name"),
    ):
        done = run(*words)
        assert done.exit_code == 1
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_images_without_an_agent_is_an_error(runner: CliRunner, run_dir: Path) -> None:
    done = runner.invoke(group, ["images", "--run-dir", str(run_dir)])
    assert done.exit_code == 1
    assert "no agent has used" in done.stderr


@pytest.mark.parametrize(
    ("pull", "line"),
    [
        (None, "app: pulling, 3s"),
        (PullUnderWay(name="app", began=1.0), "app: pulling, 3s"),
        (
            PullUnderWay(name="app", began=1.0, done_bytes=1_000_000, total_bytes=4_000_000, layers_done=1, layers=3),
            "app [######------------------] 1MB of 4MB, 1 of 3 layers, 3s",
        ),
        (
            PullUnderWay(name="app", began=1.0, done_bytes=7, total_bytes=7, layers_done=3, layers=3),
            "app [########################] unpacking 7B, 3s",
        ),
    ],
)
def test_progress_is_a_bar(pull: PullUnderWay | None, line: str) -> None:
    assert images.progress_line("app", pull, 3.2) == line


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (999, "999B"), (1000, "1kB"), (1_234_567, "1.23MB"), (45_600_000_000, "45.6GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert images.human_bytes(size) == text


def test_an_image_is_named_by_the_start_of_its_id() -> None:
    found = [pb.Image(id=f"sha256:{begin * 8}") for begin in ("abcdef01", "abcdef02", "12345678")]
    assert images.chosen("123456", found) == found[2].id
    assert images.chosen("busybox", found) == "busybox"
    assert images.chosen("fedcba9", found) == "fedcba9"
    with pytest.raises(CommandError, match="cannot choose image"):
        images.chosen("abcdef0", found)


def test_an_image_without_a_tag_is_shown_by_its_repository() -> None:
    image = pb.Image(id="sha256:" + "a" * 64, repo_digests=["registry.test/app@sha256:1"], size=5)
    assert images.cells(image) == [("registry.test/app", "<none>", "a" * 13, "5B")]


@pytest.mark.parametrize(
    ("code", "rpc", "said"),
    [
        ("Unavailable", "ListImages", "cannot call ListImages: the container runtime does not answer; see `supervisor"),
        (
            "DeadlineExceeded",
            "Exec",
            "cannot call Exec: the container runtime does not answer; see `supervisor why node`",
        ),
        ("Unavailable", "PullImage", ""),
        ("NotFound", "Exec", ""),
    ],
)
def test_runtime_that_does_not_answer_names_why(code: str, rpc: str, said: str) -> None:
    found = no_runtime(code, rpc)
    assert (found is not None) == bool(said)
    assert found is None or found.message.startswith(said)


def test_exec_without_a_runtime_names_why(run_dir: Path) -> None:
    refusal = Refused("Unavailable", "failed to connect to all addresses")
    with (
        FakeAgent(run_dir, {"pleg": lambda _: refusal}),
        Client(run_dir) as client,
        pytest.raises(CommandError, match="cannot call Version: the container runtime does not answer"),
    ):
        call_runtime(client, "Version", pb.VersionRequest(), pb.VersionResponse())
