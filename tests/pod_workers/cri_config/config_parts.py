"""Configs of pods, for the tests beside; they are cases that the golden pod does not cover."""

from actors.pod_workers.cri_config.container_config import InstanceInputs, container_config
from actors.pod_workers.cri_config.dns import DnsConfig
from actors.pod_workers.cri_config.sandbox_config import sandbox_config
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.v1 import Pod
from proto.v1.codec import from_dict


def pod(container: dict | None = None, **spec) -> Pod:
    containers = [{"name": "c", "image": "i", **(container or {})}]
    return from_dict(
        Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": containers, **spec}}
    )


def config_of(subject: Pod, image_user: str = "0", **instance) -> pb.ContainerConfig:
    instance["image_user"] = image_user
    return container_config(subject, subject.spec.containers[0], InstanceInputs(image_ref="sha256:1", **instance))


def sandbox_of(subject: Pod) -> pb.PodSandboxConfig:
    return sandbox_config(subject, 1, Settings(), "/kubepods/podu", DnsConfig())
