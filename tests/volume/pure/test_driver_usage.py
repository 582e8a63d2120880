"""The order in which a slow CSI driver is asked about its volumes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from actors.volume import metrics as module
from actors.volume.metrics import DRIVER_S, Metrics


class Pool:
    """Each volume takes some seconds of the clock. Those in `failing` fail."""

    def __init__(self, took_s: float) -> None:
        self.now, self.took_s = 1000.0, took_s
        self.asked: list[str] = []
        self.failing: set[str] = set()

    async def run(self, step: Any, *, niced: bool) -> tuple[Any, ...]:
        assert niced
        self.now += self.took_s
        self.asked.append(step.name)
        return (SimpleNamespace(error="it fails" if step.name in self.failing else "", usages=()),)


def made(pool: Pool, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Metrics, list[Any], list[str]]:
    monkeypatch.setattr(module.time, "monotonic", lambda: pool.now)
    volumes = [("u", f"v{number}", SimpleNamespace(driver="d")) for number in range(count)]
    pods: Any = {"u": SimpleNamespace(driver_calls={})}
    registry: Any = SimpleNamespace(endpoint=lambda _: "unix:///d.sock")
    subject = Metrics(None, pool, registry, pods, 60.0)  # type: ignore[arg-type]
    shown: list[str] = []
    return subject, volumes, shown


def measure(subject: Metrics, volumes: list[Any], shown: list[str]) -> None:
    with pytest.raises(StopIteration):
        subject._measure_driver(volumes, lambda _, name, __: shown.append(name)).send(None)


def test_every_volume_of_a_slow_driver_is_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(took_s=DRIVER_S / 3 + 0.1)
    subject, volumes, shown = made(pool, 9, monkeypatch)
    for _ in range(3):
        shown.clear()
        measure(subject, volumes, shown)
    assert sorted(pool.asked) == sorted(f"v{number}" for number in range(9))
    assert sorted(shown) == sorted(f"v{number}" for number in range(9)), "the others keep their last figures"


def test_volume_that_fails_hides_no_other_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(took_s=0.1)
    subject, volumes, shown = made(pool, 4, monkeypatch)
    pool.failing = {"v0"}
    for number in itertools.count():
        shown.clear()
        measure(subject, volumes, shown)
        if len(shown) == 3:
            break
        assert number < 3
    assert sorted(shown) == ["v1", "v2", "v3"]
