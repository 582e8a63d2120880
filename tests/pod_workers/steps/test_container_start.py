"""The inputs of a container's start that come from its sandbox and the node."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future
from actors.pod_workers.cri_config.container_config import build_container_config
from actors.pod_workers.cri_config.host_files import HostFiles
from actors.pod_workers.cri_config.mounts import MountInputs
from actors.pod_workers.cri_config.namespaces import OF_THE_NODE
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model.view import ContainerView, SandboxView
from actors.pod_workers.steps import supplies
from actors.pod_workers.steps.container_start import ContainerStart
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.image_pull import ImageEnsured
from proto.pods import objects
from proto.pods.objects import ApiObject, FailedObject, ObjectRef
from proto.pods.volume import ReadVolumeFile, VolumeFile
from proto.v1 import Pod
from proto.v1.codec import from_dict


def start(spec: dict[str, Any], ips: tuple[str, ...] = (), **context: Any) -> ContainerStart:
    """The start of the only container of a pod with these fields, in a sandbox with these addresses."""
    whole = {"containers": [{"name": "c", "image": "i"}], **spec}
    pod = from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": whole})
    shared: Any = SimpleNamespace(**{"settings": Settings(), "host_ips": (), "allocatable": {"cpu": 1000}} | context)
    sandbox = SandboxView(id="s", ips=ips)
    return ContainerStart(shared, pod, pod.spec.containers[0], sandbox, 0, MountInputs(), pb.PodSandboxConfig())


V4, V6 = "10.0.0.1", "fd00::1"


@pytest.mark.parametrize(
    ("node_ip", "of_sandbox", "in_variables"),
    [
        ("192.0.2.2", (V6, V4), (V4, V6)),
        ("2001:db8::2,192.0.2.2", (V4, V6), (V6, V4)),
        ("2001:db8::2", (V4,), (V4,)),
        ("192.0.2.2", (V4, "10.0.0.2", V6, "fd00::2"), (V4, V6)),
        ("", (V6, V4), (V4, V6)),
    ],
)
def test_variables_have_the_pods_addresses_as_its_status_does(
    node_ip: str, of_sandbox: tuple[str, ...], in_variables: tuple[str, ...]
) -> None:
    node = ("2001:db8::9", "192.0.2.9")  # the Node's addresses, whose order does not count
    asked = start({}, of_sandbox, host_ips=node, settings=Settings(node_ip=node_ip))
    assert asked._sources().pod_ips == in_variables


@pytest.mark.parametrize(("node_ip", "first"), [("2001:db8::2", 6), ("::", 6), ("", 4)])
def test_a_host_network_pods_variables_have_the_nodes_addresses(node_ip: str, first: int) -> None:
    node = ("2001:db8::2", "192.0.2.2")
    found = start({"hostNetwork": True}, (), host_ips=node, settings=Settings(node_ip=node_ip))._sources().pod_ips
    assert found == (node if first == 6 else node[::-1])


def test_an_ephemeral_container_makes_its_call_privileged() -> None:
    debugger = {"name": "d", "image": "i", "securityContext": {"privileged": True}}
    assert start({"ephemeralContainers": [debugger]}).sandbox_config.linux.security_context.privileged
    assert start({}).sandbox_config == pb.PodSandboxConfig()


@pytest.mark.parametrize(
    ("lifecycle", "told", "complete", "warned"),
    [
        ({"stopSignal": "SIGUSR1"}, "", True, True),
        ({"stopSignal": "SIGUSR1"}, "SIGUSR1", True, False),
        ({"stopSignal": "SIGUSR1"}, "", False, False),
        ({}, "", True, False),
    ],
)
def test_runtime_that_ignores_the_stop_signal_is_an_event(
    lifecycle: dict[str, Any], told: str, complete: bool, warned: bool
) -> None:
    events: list[tuple[Any, ...]] = []
    recorder = SimpleNamespace(pod=lambda _, *event: events.append(event))
    containers = [{"name": "c", "image": "i", "lifecycle": lifecycle}]
    found = ContainerView(id="1", name="c", state="running", stop_signal=told, complete=complete)
    start({"containers": containers}, events=recorder).check_stop_signal(found)
    assert [(kind, reason, name) for kind, reason, _, name in events] == [
        ("Warning", "StopSignalIgnored", "c")
    ] * warned


class Volumes:
    """The volume actor with files of a mebibyte each."""

    def ask(self, request: ReadVolumeFile, _: float) -> Future[VolumeFile]:
        future: Future[VolumeFile] = Future()
        future.set(VolumeFile(data=b"KEY='v'\n".ljust(request.max_bytes)))
        return future


def file_keys(count: int) -> list[dict[str, Any]]:
    """Variables from so many files."""
    refs = ({"volumeName": "data", "path": f"f{number}", "key": "KEY"} for number in range(count))
    return [{"name": f"V{number}", "valueFrom": {"fileKeyRef": ref}} for number, ref in enumerate(refs)]


@pytest.mark.parametrize(("files", "fits"), [(16, True), (17, False)])
def test_environment_files_of_a_container_have_a_bound(files: int, fits: bool) -> None:
    pod = start({"containers": [{"name": "c", "image": "i", "env": file_keys(files)}]}).pod
    context: Any = SimpleNamespace(volumes=Volumes())
    read = supplies.volume_files(context, pod, pod.spec.containers[0], {"data": "/data"})
    with nullcontext() if fits else pytest.raises(ConfigError, match="more than 16777216 bytes together"):
        assert complete(read)["data", "f0"].value("KEY") == "v"


CLASS = ObjectRef(kind="RuntimeClass", name="sandboxed")


class Objects:
    """The objects actor with one RuntimeClass, or with none that can be read."""

    def __init__(self, handler: str | None, problem: str = "") -> None:
        document = {"metadata": {"name": CLASS.name}, "handler": handler}
        found = (ApiObject(ref=CLASS, resource_version="1", document=document),) if handler is not None else ()
        failed = (FailedObject(ref=CLASS, message=problem),) if problem else ()
        self.answer = objects.Objects(found=found, failed=failed)

    def ask(self, _: Any, __: float) -> Future[Any]:
        future: Future[Any] = Future()
        future.set(self.answer)
        return future


class Runtime:
    """All handlers but `kata` support recursive read-only mounts. One has the name of a class with another handler."""

    async def status(self) -> pb.StatusResponse:
        can = {"": True, "runsc": True, "kata": False, CLASS.name: True}
        return pb.StatusResponse(
            runtime_handlers=[
                pb.RuntimeHandler(name=name, features=pb.RuntimeHandlerFeatures(recursive_read_only_mounts=one))
                for name, one in can.items()
            ]
        )


def recursive(runtime_class: str | None, known: Objects, **settings: Any) -> bool:
    """Return True when a container of a pod with this class gets recursive read-only mounts."""
    spec = {"runtimeClassName": runtime_class} if runtime_class else {}
    begun = start(spec, cri=Runtime(), objects=known, settings=Settings(**settings))
    return bool(complete(begun._recursive_read_only()))


def complete(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that awaits nothing but complete futures."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as ended:
        return ended.value


@pytest.mark.parametrize(
    ("runtime_class", "known", "can"),
    [
        (CLASS.name, Objects("runsc"), True),
        (CLASS.name, Objects("kata"), False),
        (CLASS.name, Objects("unknown"), False),
        (CLASS.name, Objects(None), False),
        (CLASS.name, Objects(None, "the API server does not answer"), False),
        (None, Objects(None), True),
    ],
)
def test_recursive_read_only_follows_the_handler_of_the_class(
    runtime_class: str | None, known: Objects, can: bool
) -> None:
    assert recursive(runtime_class, known, kubeconfig="/kubeconfig") is can


def test_without_objects_the_class_is_the_handler() -> None:
    assert recursive("runsc", Objects(None)) is True
    assert recursive("kata", Objects(None)) is False


def test_the_nodes_masked_paths_are_in_the_config() -> None:
    thermal = ("/sys/devices/system/cpu/cpu0/thermal_throttle",)
    begun = start({}, masked_paths=thermal, userns=SimpleNamespace(of=lambda _: OF_THE_NODE))
    config = build_container_config(
        begun.pod,
        begun.container,
        begun._sources(),
        0,
        ImageEnsured(image_ref="i", user="0"),
        MountInputs(),
        HostFiles(),
        begun.context,
    )
    assert tuple(config.linux.security_context.masked_paths[-1:]) == thermal
