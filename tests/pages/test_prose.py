"""The count of sentences that are hard to read."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.pages import prose

LONG = "This " + "very " * 25 + "long sentence ends."


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("The queue holds new pods.", ""),
        (LONG, "29 words"),
        ("It waits for whoever comes first.", "vague (whoever)"),
        ("What becomes of volumes is here.", "opens with a noun clause"),
        ("The crew runs the workers.", "private word (crew)"),
        ("What is a pod sandbox?", ""),
        ("It runs `one that those who` here.", ""),
    ],
)
def test_hit_names_its_reason(text: str, start: str) -> None:
    found = list(prose.hits(text))
    assert len(found) == bool(start)
    assert all(hit.startswith(start) for hit in found)


def test_only_the_first_sentence_may_not_open_with_a_noun_clause() -> None:
    assert list(prose.hits("It stops at once. What it wrote stays there.")) == []


SOURCE = '''"""A module."""
ONE = 1
"""An attribute."""
def f():
    """A function."""  # a comment
    log.info("cannot do it now")
    raise ValueError("bad value here")
'''


def test_python_texts_are_docstrings_comments_and_messages() -> None:
    found = {text.words: text.line for text in prose.python_texts(SOURCE)}
    assert found == {
        "A module.": 1,
        "An attribute.": 3,
        "A function.": 5,
        "a comment": 5,
        "cannot do it now": 6,
        "bad value here": 7,
    }


def test_page_texts_are_without_code_tables_and_headings() -> None:
    page = "# Title\n\nA paragraph.\n\n```\ncode here too\n```\n\n| a | b |\n\n- first item\n- second item\n"
    found = [text.words.strip() for text in prose.page_texts(page)]
    assert [words for words in found if words] == ["A paragraph.", "first item", "second item"]


def test_ratchet_refuses_more_hits_and_allows_fewer() -> None:
    assert prose.problems(Counter(a=2, b=1), {"a": 2, "b": 5}) == []
    assert [line.split(":")[0] for line in prose.problems(Counter(a=3, new=1), {"a": 2})] == ["a", "new"]
