"""Secrets in texts: what is hidden of URLs, and the time that a hostile text takes."""

from __future__ import annotations

import time

import pytest

from proto.common.secret_names import safe

MOST_S = 1.0
"""CPU time. The texts took minutes when each `://` was searched from to the end of the text."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://host/a?b=c", "https://host/a?H"),
        ("see https://h/a?b=c#d and http://i/?e", "see https://h/a?H#d and http://i/?H"),
        ("https://h/a?b#c://d?e f?g", "https://h/a?H#c://d?H f?g"),
        ("https://h/a b?c", "https://h/a b?c"),
        ("https://h/?#", "https://h/?#"),
        ("https://u:p@h/", "https://H@h/"),
    ],
)
def test_users_and_queries_of_urls_are_hidden(text: str, shown: str) -> None:
    assert safe(text, "H") == shown


@pytest.mark.parametrize("part", ["a://", "a://?", "a://u@", "a://b?c#"])
def test_time_grows_with_the_text_and_no_faster(part: str) -> None:
    began = time.process_time()
    safe(part * 250_000)
    assert time.process_time() - began < MOST_S
