"""Environment files of volumes: the format."""

from __future__ import annotations

import pytest

from actors.pod_workers.environment.env_file import EnvFileError, parse


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
    assert parse(text, "KEY") == value


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
        parse(text, "KEY")
