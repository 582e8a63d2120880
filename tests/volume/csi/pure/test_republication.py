"""When a mounted volume is published again (requiresRepublish)."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from actors.volume import policy
from actors.volume.reconcile import publisher
from actors.volume.reconcile.publisher import REPUBLISH_S, Publisher
from actors.volume.reconcile.volume_state import PodVolumes


@pytest.mark.parametrize(("wants", "due", "left"), [(True, True, True), (False, False, False), (None, False, True)])
def test_publication_waits_while_its_driver_is_not_there(
    wants: bool | None, due: bool, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its timer fires again at once, for ever."""
    monkeypatch.setattr(publisher, "_driver", lambda *_: "d")
    monkeypatch.setattr(publisher, "republishes", lambda *_: wants)
    pod, volume = PodVolumes(), SimpleNamespace(name="v")
    pod.actual["v"] = policy.done("digest", "/v")
    pod.republish_at["v"] = time.monotonic() - 1.0
    one: Any = Publisher.__new__(Publisher)
    assert one.is_due(pod, volume, None) is due
    assert ("v" in pod.republish_at) is left
    if wants is None:
        assert pod.republish_at["v"] > time.monotonic() + REPUBLISH_S - 10
        assert one.is_due(pod, volume, None) is False
