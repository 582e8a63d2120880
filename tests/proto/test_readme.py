"""proto/README.md against the messages in the code."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto import v1
from proto.wire.message import ROOMS, Message, Request, reply_type

README = Path(v1.__file__).parents[1].joinpath("README.md").read_text()


def modules() -> Iterator[str]:
    for room in ROOMS:
        package = importlib.import_module(room)
        yield from (f"{room}.{module.name}" for module in pkgutil.iter_modules(package.__path__))


def messages(module: str) -> list[type[Message]]:
    found = vars(importlib.import_module(module)).values()
    return [
        kind for kind in found if isinstance(kind, type) and issubclass(kind, Message) and kind.__module__ == module
    ]


MODULES = [module for module in modules() if messages(module)]


REQUESTS = [kind for module in MODULES for kind in messages(module) if issubclass(kind, Request)]
ANSWERS = {reply_type(request).__name__ for request in REQUESTS}
"""Answers are found by their requests, so the table leaves them out."""


@pytest.mark.parametrize("module", MODULES)
def test_every_message_is_listed_beside_its_module(module: str) -> None:
    path = "/".join(module.split(".")[1:]) + ".py"
    rows = "\n".join(line for line in README.splitlines() if f"`{path}`" in line)
    assert {kind.__name__ for kind in messages(module)} - ANSWERS <= set(re.findall(r"\w+", rows))


def test_no_listed_message_is_missing_in_the_code() -> None:
    names = {kind.__name__ for module in MODULES for kind in messages(module)}
    rows = [line.split("|")[3] for line in README.splitlines() if re.search(r"\| `(agent|node|pods|resources)/", line)]
    listed = {word for row in rows for word in re.findall(r"\b[A-Z]\w+", row)}
    assert listed <= names


def test_every_message_has_a_docstring() -> None:
    assert [kind.__name__ for module in MODULES for kind in messages(module) if not kind.__doc__] == []
