"""The flags against the kubelet's (kubelet-flags-1.36.tsv: name, type, default, deprecated, hidden, letter)."""

from __future__ import annotations

from pathlib import Path

import pytest

from proto.agent.settings import Settings
from supervisor.config.flags import removed, table
from supervisor.config.kubeletconfig.typed import schema

KUBELET = [line.split("\t") for line in Path(__file__).with_name("kubelet-flags-1.36.tsv").read_text().splitlines()]
SPLITTING = {"langleMap": "mapStringString", "mapStringStringNoSplit": "mapStringString", "labels": "mapStringString"}
"""Types that the kubelet's help calls the same."""


def test_table_has_exactly_the_kubelets_flags() -> None:
    assert {name for name, flag in table.flags().items() if not flag.own} == {row[0] for row in KUBELET}


@pytest.mark.parametrize("row", KUBELET, ids=lambda row: row[0])
def test_flag_has_the_kubelets_type_and_default(row: list[str]) -> None:
    name, kind, default, deprecated, hidden, shorthand = row
    flag = table.flags()[name]
    assert SPLITTING.get(flag.kind.name, flag.kind.name) == kind
    assert (flag.default, flag.deprecated, flag.shorthand) == (default, deprecated == "deprecated", shorthand)
    assert not hidden


def test_every_flag_goes_to_one_place_that_exists() -> None:
    leaves = schema.leaves()
    for flag in table.flags().values():
        assert [flag.field, flag.setting, flag.ignored].count("") >= 2, flag
        assert not flag.field or flag.field in leaves, flag
        assert not flag.setting or flag.setting in Settings.__struct_fields__, flag
    fields = [flag.field for flag in table.flags().values() if flag.field]
    assert len(set(fields)) == len(fields)


def test_flags_that_start_handles_itself() -> None:
    unmapped = {f.name for f in table.flags().values() if not (f.field or f.setting or f.ignored)}
    assert unmapped == {
        "config", "config-dir", "lock-file", "exit-on-lock-contention", "version", "run-dir", "supervisor-config",
        "tune-kernel", "run-once", "run-once-timeout",
    }  # fmt: skip


def test_every_flag_has_a_help_unless_it_has_no_meaning() -> None:
    assert all(flag.help for flag in table.flags().values() if flag.group != table.CADVISOR)


def test_removed_flags_are_not_flags() -> None:
    assert not [name for name in table.flags() if removed.explain(name, None)]
