"""Reads the lists. A test checks them, so here a fault in them is a KeyError."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from proto.common.untrusted import load_yaml

_HERE = Path(__file__).parent
Kind = Literal["built", "refused", "warned", "elsewhere"]
MEANING: dict[Kind, str] = {
    "built": "built",
    "refused": "refused",
    "warned": "accepted with a warning",
    "elsewhere": "without meaning here",
}


class ApiField(NamedTuple):
    """A field of a type of the API, and the verdict on it."""

    type: str
    field: str
    kind: Kind
    why: str
    """The reason; empty for what is built."""
    test: str
    """The test of what is built, below tests/; empty for the rest."""


def api_types() -> dict[str, tuple[str, ...]]:
    """The API's fields by type."""
    lines = (_HERE / "api-1.36.txt").read_text(encoding="utf-8").splitlines()
    return {name: tuple(fields.split()) for name, _, fields in (line.partition(":") for line in lines)}


@lru_cache(maxsize=1)
def api_fields() -> tuple[ApiField, ...]:
    """A row for each verdict of api.yaml, in its order."""
    types, rows = api_types(), []
    for name, verdicts in _load("api.yaml").items():
        for kind, groups in verdicts.items():
            for about, fields in groups.items():
                why, test = ("", about) if kind == "built" else (about, "")
                wanted = types[name] if fields == "*" else fields.split()
                rows += [ApiField(name, field, cast(Kind, kind), why, test) for field in wanted]
    return tuple(rows)


def field_tests() -> dict[str, str]:
    """The test of each effective field of KubeletConfiguration."""
    return _by_name("fields")


def flag_tests() -> dict[str, str]:
    """The test of each flag without a field that is built."""
    return _by_name("flags")


def _by_name(part: str) -> dict[str, str]:
    return {name: test for test, names in _load("tests.yaml")[part].items() for name in names.split()}


def _load(name: str) -> Any:
    return load_yaml((_HERE / name).read_bytes())
