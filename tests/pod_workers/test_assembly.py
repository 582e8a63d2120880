"""Checks of the container runtime when pod_workers sees it."""

import logging

import pytest

from actors._cri.errors import CriError, Unimplemented
from actors.pod_workers.assembly import compare_driver


class Runtime:
    def __init__(self, driver: str | CriError) -> None:
        self.driver = driver

    async def cgroup_driver(self) -> str:
        if isinstance(self.driver, CriError):
            raise self.driver
        return self.driver


@pytest.mark.parametrize(
    ("theirs", "reported"),
    [("systemd", True), ("cgroupfs", False), ("", False), (Unimplemented("Unimplemented", "no such rpc"), False)],
)
def test_runtime_with_another_cgroup_driver_is_reported(
    caplog: pytest.LogCaptureFixture, theirs: str | CriError, reported: bool
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(StopIteration):
        compare_driver(Runtime(theirs), "cgroupfs").send(None)  # type: ignore[arg-type]
    assert ("uses cgroup driver systemd, the agent cgroupfs; restart the agent" in caplog.text) is reported
