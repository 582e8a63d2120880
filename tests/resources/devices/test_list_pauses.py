"""Lists of devices that come without rest leave the mailbox thread time for others, also when they change nothing."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from actors.resources.devices import manager
from actors.resources.devices.manager import DeviceManager
from actors.resources.devices.plugin import Connection
from proto.plugins import deviceplugin_pb2 as pb
from tests.resources.devices.pods import GPU


def test_a_list_that_changes_nothing_is_followed_by_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[tuple[int, float]] = []

    def rest_s(spent_s: float, plugins: int, least_s: float) -> float:
        assert spent_s >= 0
        spent.append((plugins, least_s))
        return 1000.0

    monkeypatch.setattr(manager, "rest_s", rest_s)
    actor: Any = SimpleNamespace(spawn=lambda coroutine, _: coroutine.close())
    directory: Any = None
    subject = DeviceManager(actor, directory, (), lambda: None)
    connection = Connection(GPU, "/nowhere", lambda _: None, lambda *_: None)
    monkeypatch.setattr(connection, "take_list", lambda: pb.ListAndWatchResponse(devices=[pb.Device(ID="a")]))
    subject._connections[GPU] = connection
    subject.inventory.connect(GPU)
    for _ in range(2):
        connection.next_list = 0.0
        subject._take_list(connection)
        assert connection.next_list > time.monotonic() + 500
    assert spent == [(1, manager.LIST_PAUSE_S)] * 2
    connection.close()
