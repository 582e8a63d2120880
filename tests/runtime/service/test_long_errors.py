"""Errors of the runtime whose text is longer than gRPC's metadata may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from actors.runtime.model.errors import AtEnd, RpcError
from actors.runtime.service.server import MOST_ERROR_BYTES, Server, shortened
from proto.cri import api_pb2 as pb


class Failing:
    """Each call fails with a long text: of the rpc's own error, of an unexpected one, and of a stream."""

    def __init__(self, script: str) -> None:
        self.script = script

    def ExecSync(self, _: pb.ExecSyncRequest, __: AtEnd) -> pb.ExecSyncResponse:  # noqa: N802
        raise RpcError("DEADLINE_EXCEEDED", f"command {self.script!r} timed out after 1 s")

    def Version(self, _: pb.VersionRequest) -> pb.VersionResponse:  # noqa: N802
        raise ValueError(f"command {self.script!r} timed out after 1 s")

    def StreamContainers(  # noqa: N802
        self, _: pb.StreamContainersRequest, __: AtEnd
    ) -> Iterator[pb.StreamContainersResponse]:
        raise RpcError("DEADLINE_EXCEEDED", f"command {self.script!r} timed out after 1 s")
        yield


@pytest.mark.parametrize("script", ["echo x; " * 4000, "é" * 16000, "\n" * 30000])
@pytest.mark.parametrize(
    ("rpc", "code"),
    [
        ("ExecSync", grpc.StatusCode.DEADLINE_EXCEEDED),
        ("Version", grpc.StatusCode.INTERNAL),
        ("StreamContainers", grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)
def test_a_long_error_reaches_clients_with_grpcs_own_limits(
    tmp_path: Path, rpc: str, code: grpc.StatusCode, script: str
) -> None:
    with ExitStack() as stack:
        server = Server(str(tmp_path / "cri.sock"), {"RuntimeService": Failing(script)})
        stack.callback(server.stop)
        server.start()
        channel = stack.enter_context(grpc.insecure_channel(f"unix://{tmp_path}/cri.sock"))
        path = f"/runtime.v1.RuntimeService/{rpc}"
        with pytest.raises(grpc.RpcError) as failed:
            list(channel.unary_stream(path)(b"", timeout=30))
    assert failed.value.code() is code
    assert "command '" in failed.value.details()[:30]
    assert failed.value.details().endswith("' timed out after 1 s")


@pytest.mark.parametrize("text", ["a" * 5000, "é" * 5000, "a" + "é" * 5000, "\U0001f600" * 900])
def test_cut_text_fits_and_is_marked(text: str) -> None:
    cut = shortened(text)
    assert MOST_ERROR_BYTES - 10 <= len(cut.encode()) <= MOST_ERROR_BYTES
    assert cut.startswith(text[:200])
    assert cut.endswith(text[-200:])
    assert cut.count(" [...] ") == 1


def test_short_text_is_whole_and_is_utf8() -> None:
    assert shortened("a" * MOST_ERROR_BYTES) == "a" * MOST_ERROR_BYTES
    assert shortened("no file x\udcff") == "no file x?"
