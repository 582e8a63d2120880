"""gRPC, protobuf, hashlib and msgspec as the agent imports them: smaller, and whole in what it uses of them."""

import subprocess
import sys

SCRIPT = """
import sys
from actors._base.process import lean
import grpc, hashlib
from concurrent.futures import ThreadPoolExecutor
absent = [name for name in ("asyncio", "ssl", "grpc.aio") if name in sys.modules]
assert not absent, absent
server = grpc.server(ThreadPoolExecutor(1))
echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
fail = grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(grpc.StatusCode.NOT_FOUND, "gone"))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Echo": echo, "Fail": fail}),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
assert channel.unary_unary("/t.T/Echo").future(b"hello", timeout=10).result() == b"hello"
try:
    channel.unary_unary("/t.T/Fail").future(b"", timeout=10).result()
except grpc.RpcError as error:
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "gone")
else:
    raise AssertionError("no error")
try:
    grpc.insecure_channel("unix:/nowhere").unary_unary("/t.T/Echo").future(b"", timeout=5).result()
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNAVAILABLE
assert hashlib.md5(b"x").hexdigest() == "9dd4e461268c8034f5c8564e155c67a6"
assert hashlib.sha256(b"x").hexdigest().startswith("2d711642")
from proto.cri import api_pb2 as pb
sent = pb.ListContainersRequest(filter=pb.ContainerFilter(label_selector={"a": "b"}))
assert pb.ListContainersRequest.FromString(sent.SerializeToString()) == sent and 'value: "b"' in str(sent)
try:
    pb.ListContainersRequest(filter=7)
except TypeError:
    pass
absent = [name for name in ("google.protobuf.internal.python_message",) if name in sys.modules]
assert not absent, absent
server.stop(0).wait()
import asyncio, ssl
assert asyncio.run(asyncio.sleep(0, 7)) == 7 and ssl.create_default_context()
"""


def test_calls_errors_and_hashes_work_and_the_real_modules_can_still_be_had():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_agent_has_no_typing_extensions_and_types_are_checked_all_the_same():
    script = """
import supervisor.process.forkserver, sys
assert "typing_extensions" not in sys.modules
import msgspec
from typing import Annotated, NotRequired, TypedDict
Row = TypedDict("Row", {"name": str, "count": NotRequired[Annotated[int, msgspec.Meta(ge=0)]]})
assert msgspec.json.decode(b'{"name": "a"}', type=Row) == {"name": "a"}
try:
    msgspec.json.decode(b'{"name": "a", "count": -1}', type=Row)
except msgspec.ValidationError:
    import typing_extensions
else:
    raise AssertionError("a negative count")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
