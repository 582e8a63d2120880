"""The rule of two sockets that register one CSI driver, while helpers answer or the first driver was killed."""

from __future__ import annotations

import socket
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._plugins.watcher import NotRegisteredError
from actors.volume.drivers.registry import Registry
from actors.volume.steps.csi import DriverInfo

VERSION = "1.0.0"


class Here:
    """Actor and pool: a registration succeeds, and `meanwhile` is called during it."""

    def __init__(self, root: Path) -> None:
        self.settings = SimpleNamespace(root_dir=str(root))
        self.plugins: dict[str, DriverInfo] = {}
        self.highest: dict[str, str] = {}
        self.meanwhile: dict[str, DriverInfo] = {}
        self.subject = Registry(self, self, lambda _: None, lambda: None)  # type: ignore[arg-type]
        self.subject._watcher = SimpleNamespace(plugins=lambda: self.plugins)  # type: ignore[assignment]

    async def blocking(self, _: float, work: Any, *args: Any) -> Any:
        return work(*args)

    async def run(self, step: Any, *, dedicated: bool) -> tuple[Any, ...]:
        assert dedicated
        self.highest = step.highest
        self.plugins |= self.meanwhile
        return (SimpleNamespace(driver=DriverInfo("d", step.socket, VERSION, "n"), error=""),)


def result(work: Coroutine[Any, Any, DriverInfo]) -> DriverInfo:
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    found: DriverInfo = ended.value.value
    return found


def test_quicker_socket_of_a_driver_wins(tmp_path: Path) -> None:
    here, first, second = Here(tmp_path), str(tmp_path / "first"), str(tmp_path / "second")
    assert result(here.subject.register(second)).endpoint == second
    here.meanwhile = {first: DriverInfo("d", first, VERSION, "n")}
    with pytest.raises(NotRegisteredError, match="already registered with a higher supported version"):
        here.subject.register(second).send(None)


def test_killed_driver_keeps_out_no_other_one(tmp_path: Path) -> None:
    """Its socket stays, and its plugin counts as registered."""
    here, first, second = Here(tmp_path), str(tmp_path / "first"), str(tmp_path / "second")
    here.plugins[first] = DriverInfo("d", first, VERSION, "n")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(first)
        one.listen()
        with pytest.raises(NotRegisteredError, match="already registered"):
            here.subject.register(second).send(None)
        assert here.highest == {"d": VERSION}
    assert result(here.subject.register(second)).endpoint == second
    assert here.highest == {}
