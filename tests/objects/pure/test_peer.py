"""An agent without an objects actor: the answer is empty and immediate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors._objects.peer import has_objects, objects_of
from proto.agent.settings import Settings
from proto.pods.objects import GetObjects, ObjectRef, SetPodObjects


@pytest.mark.parametrize(
    ("settings", "there"),
    [(Settings(), False), (Settings(objects_dir="/o"), True), (Settings(kubeconfig="/k"), True)],
)
def test_objects_actor_needs_a_directory_or_an_api_server(settings: Settings, there: bool) -> None:
    assert has_objects(settings) is there
    actor: Any = SimpleNamespace(settings=settings, peer=lambda name: name)
    assert (objects_of(actor) == "objects") is there


def test_without_any_nothing_is_found_at_once() -> None:
    actor: Any = SimpleNamespace(settings=Settings(), peer=lambda name: pytest.fail(f"asked {name}"))
    objects = objects_of(actor)
    objects.tell(SetPodObjects(pods=()))
    answer = objects.ask(GetObjects(refs=(ObjectRef(kind="Secret", namespace="a", name="b"),)))
    assert answer.result(0).found == ()
