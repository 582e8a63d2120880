"""Three lists against the code: fields and flags, feature gates, and the fields of Pod, Node and CSI objects.

Each entry has one verdict, and each verdict that something is built names a test that exists.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest

from actors.volume.plugins.claim import PERSISTENT
from actors.volume.policy import PLUGINS
from proto.v1.scalars.base import Record
from supervisor.config import pages
from supervisor.config.flags import table
from supervisor.config.kubeletconfig.gates.verdicts import verdicts as gate_verdicts
from supervisor.config.kubeletconfig.mapping import EFFECTIVE
from supervisor.config.kubeletconfig.verdicts import verdicts as field_verdicts
from supervisor.config.lists import reading
from supervisor.config.lists.reading import MEANING, api_fields, api_types, field_tests, flag_tests

TESTS = Path(__file__).parents[1]
BUILT = [row for row in api_fields() if row.kind == "built"]


@cache
def text_of(test: str) -> str:
    """The source of a test file, with the golden files that it may compare with."""
    path = TESTS / test
    folder = path.parent.parent if path.parent.name == "pure" else path.parent
    golden = [one.read_text() for one in (*folder.glob("*.json"), *folder.glob("golden/*.json"))]
    return "\n".join([path.read_text(), *golden])


def exists(test: str) -> bool:
    file, _, function = test.partition("::")
    return (TESTS / file).is_file() and (not function or f"def {function}(" in (TESTS / file).read_text())


def test_each_field_of_an_object_has_one_verdict() -> None:
    rows = Counter((row.type, row.field) for row in api_fields())
    assert set(rows) == {(name, field) for name, fields in api_types().items() for field in fields}
    assert [row for row, number in rows.items() if number > 1] == []
    assert {row.kind for row in api_fields()} <= set(MEANING)
    assert all(row.test or row.why for row in api_fields())


def test_each_effective_field_and_each_built_flag_has_a_test() -> None:
    assert set(field_tests()) == {path for path, verdict in field_verdicts().items() if verdict.kind == "effective"}
    assert set(flag_tests()) == {
        name for name, flag in table.flags().items() if not (flag.field or flag.ignored or flag.own)
    }
    for part in ("fields", "flags"):
        names = [name for group in reading._load("tests.yaml")[part].values() for name in group.split()]
        assert len(names) == len(set(names))


def test_each_named_test_exists() -> None:
    gates = {verdict.test.removeprefix("tests/") for verdict in gate_verdicts().values() if verdict.test}
    named = {*field_tests().values(), *flag_tests().values(), *gates, *(row.test for row in BUILT)}
    assert [test for test in sorted(named) if not exists(test)] == []


def test_named_file_has_each_setting_that_is_said_to_be_effective() -> None:
    fields, flags, silent = table.by_field(), table.flags(), []
    for name, test in {**field_tests(), **flag_tests()}.items():
        names = {name, name.rpartition(".")[2]}
        names |= {EFFECTIVE[name].attribute} if name in EFFECTIVE else {flags[name].setting} if name in flags else set()
        names |= {fields[name].name} if name in fields else set()
        if "::" not in test and not re.search(rf"\b({'|'.join(names - {''})})\b", text_of(test)):
            silent.append((name, test))
    assert silent == []


@pytest.mark.parametrize("test", sorted({row.test for row in BUILT}))
def test_named_test_has_each_field_that_is_said_to_be_built(test: str) -> None:
    text = text_of(test)
    snake = {row.field: re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", row.field).lower() for row in BUILT}
    fields = [row for row in BUILT if row.test == test]
    silent = [row for row in fields if not re.search(rf"\b({row.field}|{snake[row.field]})\b", text)]
    assert silent == []


def records(base: type[Record] = Record) -> dict[str, dict[str, str]]:
    """Fields of all records of the API, by record and name in JSON: their attribute."""
    found = {}
    for record in base.__subclasses__():
        if record.__module__.startswith("proto.v1"):
            found[record.__name__] = {field.encode_name: field.name for field in msgspec.structs.fields(record)}
        found |= records(record)
    return found


RECORDS = records()


def test_built_field_is_in_the_record_of_its_type() -> None:
    assert [row for row in BUILT if row.type in RECORDS and row.field not in RECORDS[row.type]] == []
    plain = {row.type for row in BUILT if row.type not in RECORDS}
    assert plain == {name for name in plain if name.startswith(("Node", "CSINode"))} | {
        # of objects in plain JSON
        *("AttachedVolume", "ContainerImage", "DaemonEndpoint", "Taint", "VolumeNodeResources")
    }


@pytest.mark.parametrize(("name", "plugins"), [("Volume", PLUGINS), ("PersistentVolumeSpec", PERSISTENT)])
def test_volume_sources_that_are_refused_have_no_plugin(name: str, plugins: dict[str, object]) -> None:
    attributes = RECORDS[name]
    rows = [row for row in api_fields() if row.type == name]
    served = {row.field for row in rows if attributes.get(row.field) in plugins}
    assert served <= {row.field for row in rows if row.kind == "built"}
    assert len(served) == len(plugins)
    assert not served & {row.field for row in rows if row.kind == "refused"}


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_page_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages.PAGES[path](), "run python -m supervisor.config.pages"
