"""Child specs: refusals before any start, with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.supervision import specfile, specs
from supervisor.supervision.specs import ChildSpec, SpecError, load, select, validate

SAMPLE = Path(__file__).parents[4] / "etc" / "supervisor.yaml"


def test_built_in_actors_start_after_what_they_depend_on() -> None:
    order = [spec.name for spec in validate(specs.builtin())]
    assert order[-1] == "config"
    assert {"status", "volume", "image_pull", "probe", "pleg", "resources"} <= set(order[: order.index("pod_workers")])
    assert len(order) == 15


def test_order_puts_dependencies_first() -> None:
    given = [ChildSpec(name="a", depends_on=("c",)), ChildSpec(name="b"), ChildSpec(name="c")]
    assert [spec.name for spec in validate(given)] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no actor at all"),
        ([ChildSpec(name="a"), ChildSpec(name="a")], "actor a: name: is declared twice"),
        ([ChildSpec(name="a", depends_on=("b",))], "actor a: depends_on: no actor 'b'"),
        ([ChildSpec(name="a", depends_on=("a",))], "goes in a circle: a -> a"),
        (
            [ChildSpec(name="a", depends_on=("b",)), ChildSpec(name="b", depends_on=("a",))],
            "goes in a circle: a -> b -> a",
        ),
        ([ChildSpec(name="a", shutdown_s=-1)], "actor a: shutdown_s: must be from 0"),
        ([ChildSpec(name="a", period_s=float("nan"))], "actor a: period_s: must be from 0"),
        ([ChildSpec(name="a", max_restarts=-1)], "actor a: max_restarts: must be from 0"),
        ([ChildSpec(name="a", start_deadline_s=0)], "actor a: start_deadline_s: must be at least 0.001"),
        ([ChildSpec(name="a", backoff_factor=0.5)], "actor a: backoff_factor: must be at least 1"),
        ([ChildSpec(name="a", backoff_initial_s=11)], "actor a: backoff_initial_s: is more than backoff_cap_s"),
        ([ChildSpec(name="../a")], "name: must be"),
        ([ChildSpec(name="control")], "no reserved name"),
    ],
)
def test_invalid_specs_are_refused(given: list[ChildSpec], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        validate(given)
    assert said in str(caught.value)


def test_selecting_drops_dependencies_on_what_is_left_out() -> None:
    chosen = select(specs.builtin(), ["config", "status"])
    assert {spec.name: spec.depends_on for spec in chosen} == {"status": (), "config": ()}


def test_sample_shows_the_built_in_values() -> None:
    assert load(str(SAMPLE)) == load(None)


def test_sample_shows_every_key() -> None:
    text = SAMPLE.read_text()
    assert [name for name in ChildSpec.__struct_fields__ if name != "name" and f"{name}:" not in text] == []


def test_file_changes_one_actor_over_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "actors: [probe, stats]\ndefaults: {shutdown_s: 1}\nspecs: {probe: {shutdown_s: 2, restart: transient}}"
    )
    found = {spec.name: spec for spec in load(str(path))}
    assert {name: spec.shutdown_s for name, spec in found.items()} == {"stats": 1, "probe": 2}
    assert found["probe"].restart is specs.Restart.TRANSIENT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("specs:\n  probe:\n    perid_s: 1\n", ":3: specs.probe.perid_s: unknown key"),
        ("actor: [a]\n", ":1: actor: unknown key"),
        ("\nactors: [nosuch]\n", ":2: actors: no actor 'nosuch'"),
        ("actors: probe\n", ":1: actors: must be a list"),
        ("specs:\n  prob: {}\n", ":2: specs.prob: no such actor"),
        ("specs:\n  probe:\n    period_s: -1\n", ":3: actor probe: period_s: must be from 0"),
        ("defaults:\n  max_restarts: 1.5\n", ":2: defaults.max_restarts: Expected `int`"),
        ("defaults:\n  restart: often\n", ":2: defaults.restart: Invalid enum value"),
        ("specs:\n  probe:\n    depends_on: [config]\n", ":3: actor probe: depends_on: goes in a circle"),
        ("specs:\n  probe: {}\n  probe: {}\n", ":3: specs.probe: is there twice"),
        ("specs: [\n", ":2: is not YAML"),
        ("- probe\n", ":1: the file: must be a mapping"),
    ],
)
def test_bad_file_is_refused_with_file_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load(str(path))
    assert f"{path}{said}" in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read .*nowhere.yaml: No such file"):
        load(str(tmp_path / "nowhere.yaml"))


def test_file_may_name_an_actor_that_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.yaml"
    path.write_text("actors: [status, objects]\nspecs:\n  objects: {max_restarts: 3}\n")
    assert [spec.name for spec in specfile.load(str(path), specs.builtin(parts=()))] == ["status"]
    assert [spec.name for spec in specfile.load(str(path), specs.builtin())] == ["objects", "status"]
