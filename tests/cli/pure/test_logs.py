"""The log file of a container's run, and following it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from actors._logs import files, reading
from actors._logs.entries import Formatter
from actors._logs.files import NoSuchContainer
from actors._logs.reading import LogReader
from proto.v1 import Pod, from_dict
from supervisor.cli.pods import container_logs

# Which file


def pod(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> Pod:
    status = {"name": "c", "state": state, "lastState": last or {}, "restartCount": restarts}
    return from_dict(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]},
            "status": {"containerStatuses": [status]},
        },
    )


RUNNING: dict[str, Any] = {"running": {}}
ENDED = {"terminated": {"exitCode": 1}}
BACKOFF = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("given", "previous", "file"),
    [
        (pod(RUNNING), False, "0.log"),
        (pod(RUNNING, ENDED, 2), False, "2.log"),
        (pod(RUNNING, ENDED, 2), True, "1.log"),
        (pod(ENDED, None, 0), False, "0.log"),
        (pod(ENDED, ENDED, 3), True, "2.log"),
        (pod(BACKOFF, ENDED, 3), False, "3.log"),
        (pod(BACKOFF, ENDED, 3), True, "3.log"),
    ],
)
def test_log_file_is_that_of_the_run(given: Pod, previous: bool, file: str) -> None:
    assert files.log_file("/logs", given, "c", previous=previous) == Path("/logs/n_p_u/c") / file


@pytest.mark.parametrize(
    ("given", "container", "previous", "message"),
    [
        (pod(RUNNING), "x", False, "cannot find container 'x' in pod n/p; it has c, d, i"),
        (pod(RUNNING), "c", True, 'previous terminated container "c" in pod "p" not found'),
        (pod({"waiting": {"reason": "ErrImagePull"}}), "c", False, "waiting to start: image can't be pulled"),
        (pod({"waiting": {"reason": "CrashLoopBackOff"}}), "c", False, "waiting to start: CrashLoopBackOff"),
        (pod(RUNNING), "d", False, 'container "d" in pod "p" is waiting to start: ContainerCreating'),
    ],
)
def test_unknown_run_is_an_error(given: Pod, container: str, previous: bool, message: str) -> None:
    with pytest.raises(NoSuchContainer) as caught:
        files.log_file("/logs", given, container, previous=previous)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "over"),
    [
        (None, True),
        (pod(RUNNING, None, 1), False),
        (pod(ENDED, None, 1), True),
        (pod(BACKOFF, ENDED, 1), True),
        (pod(RUNNING, ENDED, 2), True),
    ],
    ids=["pod gone", "runs", "ended", "back-off", "next run"],
)
def test_followed_run_ends_with_its_container(given: Pod | None, over: bool) -> None:
    assert files.has_ended(given, "c", 1) is over


# Following


class Ends:
    """The container's end, by what has happened to its log until it is asked."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)

    def __call__(self) -> bool:
        if self.steps:
            self.steps.pop(0)()
        return not self.steps


def written(capfdbinary: pytest.CaptureFixture[bytes]) -> bytes:
    return capfdbinary.readouterr().out


def follow(path: Path, ends: Ends, **options: Any) -> None:
    container_logs._write(LogReader(path, **options), Formatter(), ends, sleep=lambda _: None)


def add(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_following_prints_new_lines_and_ends_with_the_run(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\ntwo\n")
    follow(path, Ends(lambda: add(path, b"thr"), lambda: add(path, b"ee\nfour\n")), tail=1)
    assert written(capfdbinary) == b"two\nthree\nfour\n"


def test_following_continues_in_the_rotated_file(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SETTLE_S", 0.0)
    path = tmp_path / "0.log"
    path.write_bytes(b"one\n")

    def rotate() -> None:
        add(path, b"last of the old\n")
        path.rename(tmp_path / "0.log.20261120-133433")
        path.write_bytes(b"first of the new\n")

    follow(path, Ends(rotate, lambda: os.unlink(path)))
    assert written(capfdbinary) == b"one\nlast of the old\nfirst of the new\n"


def test_lines_before_the_observed_end_are_printed(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\n")
    follow(path, Ends(lambda: add(path, b"final\nand a rest")))
    assert written(capfdbinary) == b"one\nfinal\nand a rest\n"


def test_unfollowed_log_ends_at_its_end(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\ntwo\n")
    finished = threading.Event()
    container_logs._write(LogReader(path, 1), Formatter(), container_logs._now, sleep=lambda _: finished.set())
    assert written(capfdbinary) == b"two\n"
    assert not finished.is_set()
