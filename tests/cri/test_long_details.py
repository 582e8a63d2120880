"""Errors of a runtime that has the whole command of an exec in its text, as containerd does."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriDeadline
from tests.cri.fake import FakeRuntime


@pytest.mark.parametrize("kib", [12, 300])
def test_code_and_text_of_a_long_error_arrive(tmp_path: Path, kib: int) -> None:
    details = f"command {'x' * 1024 * kib} timed out"
    with ExitStack() as stack:
        fake = FakeRuntime(tmp_path / "fake.sock")
        stack.callback(fake.close)
        client = Cri(fake.endpoint)
        stack.callback(client.close)
        fake.fail_with = grpc.StatusCode.DEADLINE_EXCEEDED, details
        for _ in range(20):  # gRPC drops a random part of what is between its two limits
            with pytest.raises(CriDeadline) as failed:
                client.version().result(20)
            assert failed.value.details == details
