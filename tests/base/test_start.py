"""Every type of message reaches every actor while it starts, in its real process.

The start is slowed down before Pykka's hook, before `rebuild` and after it. No message may run on unfinished state, be
lost, or stay unanswered.
"""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect as types

from actors._base.actor import MAX_WAITING
from proto.agent.actor import Describe, Dump, GetMemory, GetMetrics, Ping, Profile, SetVerbosity, Stacks, Stop
from proto.agent.supervisor import Exited, Started
from proto.wire.errors import ActorError, ProtocolError
from proto.wire.message import Message, Request, types_for
from tests.base.pure.test_layers import managers
from tests.harness import ActorProcess, wait_for
from tests.ports import free_port

SLOW_S = 1.5
SLOWLY = f"""
import os
import time
import actors._base.actor as base
begin, start = base.Actor._begin, base.Actor.on_start
async def _begin(self):
    rebuild = self.rebuild
    async def slowly():
        await self.sleep({SLOW_S})
        while os.path.exists("HOLD"):
            await self.sleep(0.05)
        await rebuild()
        await self.sleep(0.3)
    self.rebuild = slowly
    await begin(self)
def on_start(self):
    time.sleep(0.2)
    start(self)
base.Actor._begin, base.Actor.on_start = _begin, on_start
"""
ALL = sorted(managers())
NEEDS_CLUSTER = {"node", "certificates"}
AT_ONCE: tuple[Request[Any], ...] = (
    Ping(), GetMetrics(), SetVerbosity(v=2), Stacks(), Dump(), GetMemory(), Profile(seconds=0.05)
)  # fmt: skip


EMPTY = {types.StrType: "x", types.IntType: 1, types.FloatType: 1, types.BoolType: False, types.BytesType: b""}


def minimal(kind: Any) -> Any:
    """A value with nothing in it but what its type requires."""
    match types.type_info(kind) if not isinstance(kind, types.Type) else kind:
        case types.StructType() as struct:
            return struct.cls(**{field.name: minimal(field.type) for field in struct.fields if field.required})
        case types.LiteralType() as literal:
            return literal.values[0]
        case types.UnionType() as union:
            return None if any(isinstance(one, types.NoneType) for one in union.types) else minimal(union.types[0])
        case types.DictType():
            return {}
        case other:
            return EMPTY.get(type(other), ())


def own_messages(name: str) -> list[Message]:
    """One of each type that is this actor's own and that it handles."""
    handled = managers()[name]._handlers
    own = [kind for kind in types_for(name).values() if kind.__module__.endswith(f".{name}") and kind in handled]
    return [minimal(kind) for kind in own]


@contextmanager
def slow(name: str, directory: Path, *, peers: tuple[str, ...] = ()) -> Iterator[ActorProcess]:
    """Start the actor without runtime and peers. It is not ready as long as there is the file `hold`."""
    port = free_port()
    kubeconfig = directory / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    kubeconfig.write_text(
        json.dumps(
            {"kind": "Config", "current-context": "c", "clusters": [cluster], "contexts": [context], "users": [user]}
        )
    )
    for part in ("manifests", "objects", "net.d", "pods", "containers"):
        (directory / part).mkdir()
    network = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}
    (directory / "net.d/10-none.conflist").write_text(json.dumps(network))
    process = ActorProcess(
        name,
        None,
        peers,
        prelude=SLOWLY.replace("HOLD", str(directory / "hold")),
        container_runtime_endpoint="embedded" if name == "runtime" else f"unix://{directory}/none.sock",
        kubeconfig=str(kubeconfig) if name in NEEDS_CLUSTER else "",
        cert_dir=str(directory / "pki"),
        node_ip="127.0.0.1",
        pod_manifest_path=str(directory / "manifests"),
        objects_dir=str(directory / "objects"),
        pod_logs_dir=str(directory / "pods"),
        container_logs_dir=str(directory / "containers"),
        cgroups_per_qos=False,
        cgroup_root="/nvtest-none",
        server_address="127.0.0.1",
        server_port=free_port(),
        console_address=f"127.0.0.1:{free_port()}",
        extra={"cni_conf_dir": str(directory / "net.d"), "cni_bin_dirs": [str(directory)]},
    )
    begin = process.start
    process.start = lambda: begin(wait_ready_s=0)  # type: ignore[method-assign]
    with process:
        process.start = begin  # type: ignore[method-assign]
        yield process


def no_death(process: ActorProcess) -> None:
    records = [path for path in Path(process.dir, "deaths").glob("*") if path.suffix != ".stacks"]
    assert not records, "\n".join(path.read_text() for path in records)


@pytest.mark.parametrize("name", ALL)
def test_messages_during_a_slow_start_are_answered(name: str, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with slow(name, tmp_path) as process, ThreadPoolExecutor(16) as askers:
        description = askers.submit(process.ask, Describe(), 30)
        at_once = [askers.submit(process.ask, request, 30) for request in AT_ONCE]
        messages = own_messages(name)
        for message in messages:
            process.tell(message)
        asked = [askers.submit(process.ask, one, 5) for one in messages if isinstance(one, Request)]
        wait_for(lambda: process._listens.is_set() or no_death(process), 20, "it hears of others")
        for event in (Started(name="status", incarnation=1), Exited(name="status", incarnation=1, reason="")):
            process.publish(event)
        for answer in at_once:
            answer.result(30)
        assert not process.ready.is_set(), "heartbeats waited for the start"
        hold.unlink()
        assert description.result(30).name == name
        assert process.ready.wait(30)
        for answer in asked:
            with contextlib.suppress(
                ActorError, ProtocolError, AssertionError
            ):  # no pod, runtime or peer: it may refuse
                answer.result(30)
        assert process.ask(Ping(), 20)
        assert process.ask(Describe(), 20).incarnation == 1
        no_death(process)


@pytest.mark.parametrize("name", ALL)
def test_actor_stopped_during_its_start_ends_with_0(name: str, tmp_path: Path) -> None:
    with slow(name, tmp_path) as process:
        wait_for(lambda: process._listens.is_set() or no_death(process), 20, "it hears of others")
        process.tell(Stop())
        assert process.wait_exit() == 0
        no_death(process)


def test_messages_that_wait_for_a_start_are_bounded(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with slow("stats", tmp_path) as process:
        wait_for(process._listens.is_set, 20)
        for _ in range(MAX_WAITING + 10):
            process.tell(Describe())
        with pytest.raises(ActorError, match=f"stats is starting, and {MAX_WAITING} messages wait"):
            process.ask(Describe())
        hold.unlink()
        assert process.ready.wait(30)
        assert process.ask(Describe()).dropped["too_early"] >= 11
