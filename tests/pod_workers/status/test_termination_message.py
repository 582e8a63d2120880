"""Termination messages of containers."""

import os

import pytest

from actors.pod_workers.model.view import ContainerView
from actors.pod_workers.status.termination_message import read_termination_message


@pytest.fixture
def ended(tmp_path):
    """A failed container with FallbackToLogsOnError; the test writes its files."""

    def make(words: bytes | None = None, log: bytes | None = None, **more) -> str:
        for name, content in (("words", words), ("log", log)):
            if content is not None:
                (tmp_path / name).write_bytes(content)
        fields = {"exit_code": 1, "termination_message_policy": "FallbackToLogsOnError"} | more
        container = ContainerView(
            id="1",
            name="c",
            state="exited",
            termination_message_host_path=f"{tmp_path}/words",
            log_path=f"{tmp_path}/log",
            **fields,
        )
        return read_termination_message(container)

    return make


def line(text: str, tag: str = "F") -> bytes:
    return f"2026-01-01T00:00:00.000000000Z stdout {tag} {text}\n".encode()


def test_the_file_goes_before_the_log(ended):
    assert ended(b"bye\n", line("log")) == "bye\n"


def test_a_failed_container_without_words_falls_back_to_its_log(ended):
    assert ended(b"", line("from the log")) == "from the log\n"
    assert ended(None, line("from the log")) == "from the log\n"


@pytest.mark.parametrize("more", [{"exit_code": 0}, {"termination_message_policy": "File"}])
def test_no_other_falls_back(ended, more):
    assert ended(b"", line("from the log"), **more) == ""


def test_the_runtimes_message_goes_before(ended):
    assert ended(b"bye", message="failed to start") == "failed to start: bye"
    assert ended(b"", message="failed to start") == "failed to start"


def test_a_file_is_cut_to_its_last_4_kib(ended):
    assert ended(b"a" * 10 + b"b" * 4096) == "b" * 4096


def test_a_log_is_cut_to_80_lines_and_2_kib(ended):
    assert ended(b"", b"".join(line(str(n)) for n in range(200))) == "".join(f"{n}\n" for n in range(120, 200))
    assert ended(b"", line("x" * 5000)) == "x" * 2047 + "\n"


def test_parts_of_a_long_line_are_one_line(ended):
    parts = line("a", "P") + line("b", "P") + line("c") + line("d")
    assert ended(b"", parts) == "abc\nd\n"


def test_what_is_no_log_line_is_skipped(ended):
    assert ended(b"", b"garbage\n\n" + line("ok") + b"2026 stdout") == "ok\n"


def test_nothing_at_all_is_nothing(ended):
    assert ended() == ""


def test_link_or_pipe_as_file_is_not_followed(ended, tmp_path):
    (tmp_path / "words").symlink_to("/etc/hostname")
    assert "Error on reading termination log" in ended()
    os.unlink(tmp_path / "words")
    os.mkfifo(tmp_path / "words")
    assert "Error on reading termination log" in ended()
