"""The pod resources API at the resources process."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from actors.resources.pod_resources import service
from proto.agent.actor import Describe, GetMetrics
from proto.resources.resources import AdmitPod, ListedPod, SetListedPods, SetPods
from tests.harness import ActorProcess, wait_for
from tests.resources.devices.device_plugin import Plugin
from tests.resources.devices.pods import GPU, container, pod
from tests.resources.plugin_server import Fault
from tests.resources.pod_resources.client import ask, call, socket_of

WEB = ListedPod(uid="u", namespace="default", name="web", containers=("c",), active=True)
OVER = ListedPod(uid="o", namespace="default", name="over", containers=("c",))
ALL = SetListedPods(pods=(WEB, OVER), full=True)


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with ActorProcess("resources", None, ("pod_workers", "node", "status")) as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


def path(actor: ActorProcess) -> Path:
    return socket_of(actor.settings.root_dir)


def error(actor: ActorProcess, rpc: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(path(actor), rpc, **fields)
    return caught.value.code(), caught.value.details()


def wait_until_served(actor: ActorProcess) -> None:
    def is_served() -> bool:
        try:
            return call(path(actor), "GetAllocatableResources") is not None
        except grpc.RpcError:
            return False

    wait_for(is_served, 20, "the API is served")


def state(actor: ActorProcess) -> dict[str, Any]:
    """Of the API, as `supervisor describe resources` has it."""
    return actor.ask(Describe()).state["pod_resources_api"]


def wait_until_complete(actor: ActorProcess) -> None:
    actor.tell(ALL)
    wait_for(lambda: state(actor)["pods_complete"], 10, "the pods are known")


def wait_for_log(capfd: pytest.CaptureFixture[str], words: str) -> None:
    seen: list[str] = []

    def is_said() -> bool:
        seen.append(capfd.readouterr().err)
        return words in "".join(seen)

    wait_for(is_said, 20, f"the log has: {words}")


def names(answer: dict[str, Any]) -> list[str]:
    return [one["name"] for one in answer.get("pod_resources", ())]


def test_pods_are_named_once_all_are_known(actor: ActorProcess) -> None:
    wait_until_served(actor)
    code, words = error(actor, "List")
    assert (code, words) == (grpc.StatusCode.UNAVAILABLE, "not all pods of the node are known yet; try again")
    wait_until_complete(actor)
    assert call(path(actor), "List") == {
        "pod_resources": [{"name": "web", "namespace": "default", "containers": [{"name": "c"}]}]
    }
    found = call(path(actor), "Get", pod_namespace="default", pod_name="over")
    assert found["pod_resources"]["name"] == "over"
    assert error(actor, "Get", pod_namespace="default", pod_name="none") == (
        grpc.StatusCode.UNKNOWN,
        "pod none in namespace default not found",
    )
    actor.restart()
    wait_until_served(actor)
    assert error(actor, "List")[0] is grpc.StatusCode.UNAVAILABLE


def test_ended_pods_are_listed_without_the_gate() -> None:
    """KubeletPodResourcesListUseActivePods."""
    with ActorProcess("resources", None, ("pod_workers", "node"), pod_resources_active_pods=False) as process:
        wait_until_served(process)
        wait_until_complete(process)
        assert names(call(path(process), "List")) == ["over", "web"]


def test_devices_of_containers_and_of_the_node(actor: ActorProcess) -> None:
    wait_until_served(actor)
    plugin = Plugin(Path(actor.settings.root_dir) / "device-plugins", GPU, nodes={"d0": 0}).start()
    try:
        wait_for(lambda: len(call(path(actor), "GetAllocatableResources").get("devices", ())) == 2, 20, "two devices")
        wait_until_complete(actor)
        actor.ask(AdmitPod(pod=pod("u", container("c", 2))), 20)
        (web,) = call(path(actor), "List")["pod_resources"]
        assert web["containers"][0]["devices"] == [
            {"resource_name": GPU, "device_ids": ["d0"], "topology": {"nodes": [{}]}},
            {"resource_name": GPU, "device_ids": ["d1"]},
        ]
        over, alpha = call(path(actor), "List", "v1alpha1")["pod_resources"]
        assert over == {"name": "over", "namespace": "default", "containers": [{"name": "c"}]}
        assert alpha["containers"][0]["devices"] == [
            {"resource_name": GPU, "device_ids": ["d0"]},
            {"resource_name": GPU, "device_ids": ["d1"]},
        ]
        plugin.relist(d0="Unhealthy", d1="Healthy")
        wait_for(lambda: len(call(path(actor), "GetAllocatableResources").get("devices", ())) == 1, 20, "one device")
    finally:
        plugin.close()


def test_an_answer_that_is_too_large_is_refused() -> None:
    prelude = "from actors.resources.pod_resources import service; service.MOST_BYTES = 100\n"
    with ActorProcess("resources", None, ("pod_workers", "node", "status"), prelude=prelude) as actor:
        wait_until_complete(actor)
        wait_for((Path(actor.settings.root_dir) / "device-plugins" / "kubelet.sock").exists, 20)
        devices = {f"d{number}": "Healthy" for number in range(20)}
        plugin = Plugin(Path(actor.settings.root_dir) / "device-plugins", GPU, devices).start()
        try:
            wait_for(lambda: refused(actor, "GetAllocatableResources"), 20, "20 devices are too many")
            actor.ask(AdmitPod(pod=pod("u", container("c", 20))), 20)
            assert refused(actor, "Get", pod_namespace="default", pod_name="web")
            assert refused(actor, "List")
        finally:
            plugin.close()


def refused(actor: ActorProcess, rpc: str, **fields: Any) -> bool:
    """True if the answer is refused for its size."""
    try:
        call(path(actor), rpc, **fields)
    except grpc.RpcError as failed:
        return failed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "more than 100" in failed.details()
    return False


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_devices_are_listed_once_the_plugin_has_allocated_them(actor: ActorProcess, version: str) -> None:
    def devices() -> list[str]:
        pods = {one["name"]: one for one in call(path(actor), "List", version)["pod_resources"]}
        return [one["device_ids"][0] for one in pods["web"]["containers"][0].get("devices", ())]

    wait_until_served(actor)
    wait_until_complete(actor)
    hangs = {"Allocate": Fault(hang=True)}
    plugin = Plugin(Path(actor.settings.root_dir) / "device-plugins", GPU, faults=hangs).start()
    try:
        wait_for(lambda: len(call(path(actor), "GetAllocatableResources").get("devices", ())) == 2, 20, "two devices")
        with ThreadPoolExecutor(1) as pool:
            admission = pool.submit(actor.ask, AdmitPod(pod=pod("u", container("c", 2))), 20)
            wait_for(lambda: plugin.of("Allocate"), 20, "the plugin is asked")
            assert devices() == []
            plugin.release.set()
            admission.result(20)
        assert sorted(devices()) == ["d0", "d1"]
    finally:
        plugin.close()


@pytest.fixture
def strict() -> Iterator[ActorProcess]:
    """Takes one call a second, since a busy machine may bring less than the real rate."""
    prelude = "from actors.resources.pod_resources import service; service.QPS = 1\n"
    with ActorProcess("resources", None, ("pod_workers", "node", "status"), prelude=prelude) as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


def test_calls_beyond_the_rate_are_refused_and_calls_are_counted(strict: ActorProcess) -> None:
    assert (service.QPS, service.BURST) == (100, 10), "the kubelet's"
    actor = strict
    wait_until_served(actor)
    wait_until_complete(actor)

    def listed(channel: grpc.Channel) -> str:
        try:
            return ",".join(names(ask(channel, "List")))
        except grpc.RpcError as failed:
            return f"{failed.code().name}: {failed.details()}"

    with grpc.insecure_channel(f"unix:{path(actor)}") as channel, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(listed, [channel] * 400))
    assert set(found) == {"web", "RESOURCE_EXHAUSTED: rejected by rate limit"}
    samples = actor.ask(GetMetrics()).samples["kubelet_pod_resources_endpoint_requests_list"]
    assert dict(samples) == {("v1",): (float(found.count("web")),)}


def test_the_socket_is_closed_to_others(actor: ActorProcess) -> None:
    wait_until_served(actor)
    assert stat.S_IMODE(path(actor).stat().st_mode) == 0o600
    assert stat.S_IMODE(path(actor).parent.stat().st_mode) == 0o750


def test_the_socket_of_another_agent_is_left(actor: ActorProcess, capfd: pytest.CaptureFixture[str]) -> None:
    wait_until_served(actor)
    actor.kill()
    path(actor).unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path(actor)))
        other.listen()
        inode = path(actor).stat().st_ino
        actor.start()
        wait_for_log(capfd, "another process may listen there")
        assert path(actor).stat().st_ino == inode
        assert not state(actor)["served"]


def test_a_link_in_place_of_the_socket_is_left(
    actor: ActorProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wait_until_served(actor)
    actor.kill()
    path(actor).unlink()
    path(actor).symlink_to(tmp_path / "victim")
    actor.start()
    wait_for_log(capfd, "cannot serve the pod resources API")
    assert not (tmp_path / "victim").exists()
    assert path(actor).is_symlink()


def test_requests_that_cannot_be_read_are_refused_and_not_logged(
    actor: ActorProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    wait_until_served(actor)
    wait_until_complete(actor)
    with grpc.insecure_channel(f"unix:{path(actor)}") as channel:
        get = channel.unary_unary("/v1.PodResourcesLister/Get")
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as caught:
                get(b"\xff\xff", timeout=20)
            assert caught.value.code() is grpc.StatusCode.INTERNAL
            assert caught.value.details().startswith("cannot read the request: ")
        assert names(ask(channel, "List")) == ["web"]
    assert "Traceback" not in capfd.readouterr().err


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _request(rpc_path: bytes) -> bytes:
    """An HTTP/2 connection with one request, by hand: no client sends such a path."""
    headers = b"\x83\x86"  # HPACK: POST, http
    for name, value in (
        (b"\x04", rpc_path),
        (b"\x01", b"localhost"),
        (b"\x0f\x10", b"application/grpc"),
        (b"\x00\x02te", b"trailers"),
    ):
        headers += name + bytes([len(value)]) + value
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(1, 5, 1, headers)


def _read_until_its_end(raw: socket.socket) -> None:
    """Until the frame that ends the request's stream, or the connection's end."""
    with raw.makefile("rb") as frames:
        while header := frames.read(9):
            frames.read(int.from_bytes(header[:3], "big"))
            if header[3] in (1, 3, 7):  # HEADERS, RST_STREAM, GOAWAY
                return


@pytest.mark.parametrize("rpc_path", [b"/\xff/x", b"", b"/", b"/v1.PodResourcesLister/\x00", b"*"])
def test_path_of_a_request_ends_no_server(actor: ActorProcess, rpc_path: bytes) -> None:
    wait_until_served(actor)
    wait_until_complete(actor)
    with grpc.insecure_channel(f"unix:{path(actor)}") as channel, socket.socket(socket.AF_UNIX) as raw:
        assert names(ask(channel, "List")) == ["web"]
        raw.settimeout(10)
        raw.connect(str(path(actor)))
        raw.sendall(_request(rpc_path))
        _read_until_its_end(raw)
        assert names(ask(channel, "List")) == ["web"]
    assert names(call(path(actor), "List")) == ["web"]
