"""Compares the tables of settings' readers with the actors' sources."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from proto.agent import registry
from proto.agent.settings import Settings
from supervisor.config.kubeletconfig.mapping import EFFECTIVE
from supervisor.config.reload.readers import _READ_BY, EVERYWHERE, FIXED, READERS, TOLD, changed, concerned
from supervisor.supervision.specs import builtin

ACTORS = Path(__file__).resolve().parents[3] / "actors"
FIELDS = set(Settings.__struct_fields__)


def is_settings(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "settings") or (
        isinstance(node, ast.Attribute) and node.attr in {"settings", "_settings"}
    )


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def helpers() -> dict[str, list[ast.FunctionDef]]:
    """Functions of the shared packages, by name."""
    found = defaultdict(list)
    for path in ACTORS.glob("_*/**/*.py"):
        if path.relative_to(ACTORS).parts[0] != "_base":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    found[node.name].append(node)
    return found


def fields_read(tree: ast.AST, shared: dict[str, list[ast.FunctionDef]], seen: set[str]) -> set[str]:
    """`settings.FIELD`, here and in every shared function that the settings are handed to."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_settings(node.value):
            found.add(node.attr)
        if isinstance(node, ast.Call) and any(map(is_settings, [*node.args, *(word.value for word in node.keywords)])):
            for name in {name_of(node.func), *map(name_of, node.args)} & shared.keys() - seen:
                seen.add(name)
                for function in shared[name]:
                    found |= fields_read(function, shared, seen)
    return found & FIELDS


def actual() -> dict[str, set[str]]:
    shared, table = helpers(), defaultdict(set)
    for actor in (path.parent for path in ACTORS.glob("[a-z]*/actor.py")):
        seen: set[str] = set()
        for path in sorted(actor.rglob("*.py")):
            for field in fields_read(ast.parse(path.read_text()), shared, seen):
                table[field].add(actor.name)
    return table


def test_table_of_readers_matches_the_sources() -> None:
    found = actual()
    assert {field: set(READERS[field]) for field in READERS} == {field: found.get(field, set()) for field in READERS}


def test_every_setting_is_in_the_table() -> None:
    assert list(READERS) == list(Settings.__struct_fields__)
    assert set(" ".join(_READ_BY.values()).split()) <= FIELDS


def test_settings_without_reader_are_in_another_table() -> None:
    assert {field for field, names in READERS.items() if not names} <= FIXED.keys() | EVERYWHERE | TOLD


def test_what_every_process_reads_is_accounted_for() -> None:
    found: set[str] = set()
    for path in (ACTORS / "_base").glob("*.py"):
        found |= fields_read(ast.parse(path.read_text()), {}, set())
    assert found <= FIXED.keys() | EVERYWHERE | TOLD


def test_field_table_names_the_same_actors() -> None:
    known = {spec.name for spec in builtin(parts={entry.needs for entry in registry.ACTORS})}
    for field, effect in EFFECTIVE.items():
        named = {word.strip(",;:") for word in effect.used_by.split()} & known
        if "every process" not in effect.used_by:
            assert named == READERS[effect.attribute], field


def test_concerned_keeps_order_and_drops_absent_actors() -> None:
    assert concerned(["eviction_hard", "max_pods"], ["eviction", "pod_workers"]) == ("eviction", "pod_workers")
    assert concerned([], ["eviction"]) == ()
    assert concerned(["verbosity"], ["eviction"]) == ()
    assert concerned(["log_format"], ["config", "eviction"]) == ("config", "eviction")


def test_changed_url_of_pods_restarts_config_only() -> None:
    fields = ("static_pod_url", "static_pod_url_header", "http_check_frequency_s")
    assert concerned(fields, ("pod_workers", "config", "server")) == ("config",)


def test_changed_names_the_differences() -> None:
    assert changed(Settings(), Settings()) == ()
    assert changed(Settings(), Settings(max_pods=1, eviction_hard={})) == ("max_pods", "eviction_hard")
