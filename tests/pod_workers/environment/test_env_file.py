"""Environment files of volumes: the format."""

from __future__ import annotations

import time
import tracemalloc
from threading import Thread

import pytest

from actors.pod_workers.environment.env_file import MAX_BYTES, EnvFile, EnvFileError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("KEY='value'\n", "value"),
        ("A='1'\nKEY='2'\nKEY='3'", "2"),
        ("  KEY='v'  # why\n", "v"),
        ("# c\n\n \t\nKEY='v'", "v"),
        ("KEY='a\nb\n\n # c'\nB='x'", "a\nb\n\n # c"),
        ("KEY='a=b\"$(C)\\n'", 'a=b"$(C)\\n'),
        ("KEY= 'v'", ""),
        ("KEY=''", ""),
        ("OTHER='v'", ""),
        ("", ""),
        ("KEY='v'\r\n", "v"),
        ("KEY='v'\nbroken", "v"),
    ],
)
def test_a_value(text: str, value: str) -> None:
    assert EnvFile(text, {"KEY"}).value("KEY") == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("KEY=v", "line 1: the value must be in single quotes"),
        ("A=\"x\"\nKEY='v'", "line 1: the value must be in single quotes"),
        ("KEY=", "line 1: the value must be in single quotes"),
        ("A='1'\nKEY", "line 2: missing '='"),
        ("KEY ='v'", "line 1: a name without blanks"),
        ("='v'", "line 1: a name without blanks"),
        ("A='1'\nKEY='v", "line 2: the quote is not closed"),
        ("KEY='v'w", "line 1: unexpected text after the closing quote"),
        ("KEY='" + "x" * 70_000 + "'", "line 1: longer than 65536 bytes"),
    ],
)
def test_what_is_wrong_with_a_file(text: str, problem: str) -> None:
    with pytest.raises(EnvFileError, match=f"^{problem}"):
        EnvFile(text, {"KEY"}).value("KEY")


def test_a_value_of_many_lines_takes_no_quadratic_time() -> None:
    """In a thread as in the agent. There malloc(3) copies a text that grows, again and again."""
    lines = "\n" * (MAX_BYTES - 10)
    took: list[float] = []

    def read() -> None:
        began = time.thread_time()
        assert EnvFile(f"KEY='{lines}'", {"KEY"}).value("KEY") == lines
        took.append(time.thread_time() - began)

    thread = Thread(target=read)
    thread.start()
    thread.join()
    assert took
    assert took[0] < 5


def test_many_keys_of_a_file_take_no_quadratic_time() -> None:
    count = 20_000
    text = "\n".join(f"K{number}='{number}'" for number in range(count))
    keys = [f"K{number}" for number in reversed(range(count))]
    began = time.process_time()
    file = EnvFile(text, {*keys, "NONE"})
    assert [file.value(key) for key in keys] == [str(number) for number in reversed(range(count))]
    assert file.value("NONE") == ""
    assert time.process_time() - began < 10


@pytest.mark.parametrize("rest", ["#x\n", "X=''\n"], ids=["comments", "keys"])
def test_a_parsed_file_keeps_only_the_values_asked_for(rest: str) -> None:
    """A container writes the file, and a pod may have sixteen."""
    text = f"KEY='{'v' * 1000}'\n{rest * ((MAX_BYTES - 2000) // len(rest))}END='w'"
    tracemalloc.start()
    try:
        file = EnvFile(text, {"KEY", "NONE"})
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(file.value("KEY")), file.value("NONE")) == (1000, "")
    assert kept < 100_000
    assert peak < 64 << 20


def test_keys_before_a_bad_line_have_their_values() -> None:
    file = EnvFile("A='1'\nB='2'\nA='3'\nbad\nC='4'", {"A", "B", "C"})
    for _ in range(2):
        with pytest.raises(EnvFileError, match=r"^line 4: missing '='$"):
            file.value("C")
        assert (file.value("A"), file.value("B")) == ("1", "2")
