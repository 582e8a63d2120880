"""Ignored names of files, and files that are still being written."""

# ruff: noqa: E501 - tables keep one case to a line

import pytest

from actors._files.names import QUIET_S, Writing, is_being_written, is_meant, is_skipped_here_only


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("a.yaml", True), ("a.json", True), ("pod", True), ("a.manifest", True), ("A b.yml", True), ("4914", True),
        (".a.yaml", False), (".a.yaml.swp", False), ("a.yaml~", False), ("#a.yaml#", False), ("4913", False), ("a.swp", False),
        ("a.yaml.bak", False), ("a.yaml.tmp", False), ("a.yaml.dpkg-new", False),
    ],
)  # fmt: skip
def test_editor_and_hidden_files_are_ignored(name: str, counts: bool) -> None:
    assert is_meant(name) is counts


@pytest.mark.parametrize(
    ("name", "only_here"),
    [("a.yaml", False), (".a.yaml", False), (".a.bak", False), ("a.yaml~", True), ("#a#", True), ("a.tmp", True), ("4913", True)],
)  # fmt: skip
def test_names_that_the_kubelet_would_read_are_told_apart(name: str, only_here: bool) -> None:
    assert is_skipped_here_only(name) is only_here


@pytest.mark.parametrize(
    ("writing", "other_name", "held_back"),
    [
        (None, False, False),
        (Writing(only_created=True, age_s=0), False, True),
        (Writing(only_created=True, age_s=0), True, False),
        (Writing(only_created=False, age_s=0), True, True),
        (Writing(only_created=False, age_s=QUIET_S), False, False),
    ],
)
def test_file_being_written_is_not_read(writing: Writing | None, other_name: bool, held_back: bool) -> None:
    assert is_being_written(writing, other_name) is held_back
