"""Start deadlines of the built-in actors."""

from __future__ import annotations

from actors.runtime.actor import BUILD_S
from supervisor.supervision import specs


def test_runtimes_start_deadline_is_above_its_own() -> None:
    found = {spec.name: spec.start_deadline_s for spec in specs.builtin(parts=("objects", "runtime"))}
    assert found.pop("runtime") > BUILD_S
    assert set(found.values()) == {30.0}
