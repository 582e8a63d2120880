"""Pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proto.agent import registry
from supervisor.supervision.transitions import TRANSITIONS, State
from tests.pages import generated

ROOT = generated.ROOT


@pytest.mark.parametrize("name", generated.PARTS)
def test_generated_part_is_current(name: str) -> None:
    page, content = generated.PARTS[name]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert generated.with_part(text, name, content()) == text, "run: python -m tests.pages"


def test_part_that_a_page_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot find the part 'actors'"):
        generated.with_part("# A page\n", "actors", "x")


def test_diagram_has_each_state_and_transition() -> None:
    diagram = generated.states()
    assert all(state.value in diagram for state in State)
    assert diagram.count("-->") == 1 + sum(map(len, TRANSITIONS.values()))


def test_registry_lists_each_package_of_an_actor() -> None:
    packages = {path.parent.name for path in (ROOT / "actors").glob("[a-z]*/actor.py")}
    assert packages == registry.NAMES


def test_registry_orders_actors_by_their_dependencies() -> None:
    names = [entry.name for entry in registry.ACTORS]
    for entry in registry.ACTORS:
        assert all(names.index(other) < names.index(entry.name) for other in entry.after)


@pytest.mark.parametrize("entry", registry.ACTORS, ids=lambda entry: entry.name)
def test_actor_has_its_files(entry: registry.Entry) -> None:
    assert (ROOT / f"actors/{entry.name}/actor.py").exists()
    assert (ROOT / f"proto/{entry.room}/{entry.name}.py").exists()


def links(page: Path) -> set[str]:
    """Relative links of a page, without fragments."""
    found = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    return {link for link in found if "://" not in link}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert {link for link in links(page) if not (page.parent / link).exists()} == set()


def test_architecture_has_at_most_1500_words() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()) <= 1500


FULL = 12
TOPS = ("actors", "supervisor", "proto", "tests")


def test_no_folder_has_more_than_twelve_modules() -> None:
    folders = {path.parent for top in TOPS for path in (ROOT / top).rglob("*.py")}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: size for name, size in sizes.items() if size > FULL} == {}
