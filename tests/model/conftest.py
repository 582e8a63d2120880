"""The fixture that makes worlds for examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.model.cri.runtime import Program
from tests.model.process import patched
from tests.model.world import World


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes worlds with a running pod_workers; init containers named `i` succeed."""
    with ExitStack() as stack:

        def make(*, static: bool = True) -> World:
            world = World(str(tmp_path), static=static)
            stack.enter_context(patched(world))
            world.programs["i"] = Program(exits=0, after_s=0.1)
            world.start()
            return world

        yield make
