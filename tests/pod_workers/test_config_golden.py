"""Sandbox and container configs compared with the kubelet 1.36's requests to containerd for the same pod."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from actors._cgroup.quantities.cri import linux_container_resources
from actors._cgroup.quantities.resources import container_resources
from actors._cgroup.quantities.swap import SwapRules
from actors.pod_workers.cri_config.container_config import InstanceInputs, container_config
from actors.pod_workers.cri_config.dns import DnsConfig, pod_dns
from actors.pod_workers.cri_config.host_files import HostFiles
from actors.pod_workers.cri_config.mounts import MountInputs
from actors.pod_workers.cri_config.sandbox_config import sandbox_config
from proto.agent.settings import Settings
from proto.v1 import ObjectMeta, Pod, PodSpec
from proto.v1.codec import from_dict

GOLDEN = Path(__file__).parent / "golden"
MEMORY_OF_THE_GOLDEN_NODE = 8_229_896 * 1024 * 2


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def plain(message: Any) -> dict[str, Any]:
    """As the runtime prints a request: proto field names, 64-bit numbers as numbers, zero values left out."""
    return without_zeros(
        numbers(json_format.MessageToDict(message, preserving_proto_field_name=True, use_integers_for_enums=True))
    )


def numbers(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: numbers(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return int(value) if isinstance(value, str) and key.startswith(("cpu_", "memory_", "oom_")) else value


def without_zeros(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_zeros(one) for name, one in value.items() if one not in (0, "", False, [], None)}
    return [without_zeros(one) for one in value] if isinstance(value, list) else value


@pytest.fixture
def probed() -> Pod:
    sandbox = golden("cri-sandbox.json")
    meta = ObjectMeta(
        name="probed",
        namespace="golden",
        uid=sandbox["metadata"]["uid"],
        labels={"app": "probed"},
        annotations=sandbox["annotations"],
    )
    return Pod(metadata=meta, spec=from_dict(PodSpec, golden("spec-probed.json")))


def test_sandbox_config_of_probed_equals_the_kubelets(probed):
    settings = Settings(cluster_dns=("10.0.0.10",), cluster_domain="cluster.local")
    dns = pod_dns(probed, settings.cluster_dns, settings.cluster_domain, DnsConfig(servers=("192.0.2.53",)))
    expected = golden("cri-sandbox.json")
    got = plain(sandbox_config(probed, 0, settings, expected["linux"]["cgroup_parent"], dns))
    assert got == without_zeros(expected)


def test_container_config_of_probed_equals_the_kubelets(probed):
    expected = golden("cri-container.json")["config"]
    resources = container_resources(
        probed,
        probed.spec.containers[0],
        Settings(),
        memory_capacity_bytes=MEMORY_OF_THE_GOLDEN_NODE,
        page_sizes=("2MB", "1GB"),
        swap=SwapRules(accounting=True),
    )
    instance = InstanceInputs(
        image_ref=expected["image"]["image"],
        image_user="0",
        envs={"MODE": "blue", "IP": "10.88.5.16"},
        mounts=MountInputs({mount["container_path"].strip("/"): mount["host_path"] for mount in expected["mounts"]}),
        files=HostFiles(*(mount["host_path"] for mount in expected["mounts"][-2:])),
        resources=linux_container_resources(resources),
        seccomp_root="/var/lib/kubelet/seccomp",
    )
    config = container_config(probed, probed.spec.containers[0], instance)
    # containerd 1.6 knows no user_specified_image, so what it prints of the kubelet's request lacks it.
    assert config.image.user_specified_image == "docker.io/library/busybox:latest"
    config.image.user_specified_image = ""
    got = plain(config)
    for env in got["envs"]:
        env["value"] = dict(instance.envs)[env["key"]]  # bytes in JSON are base64
    assert got == without_zeros(expected)
    assert {one.key: one.value for one in config.envs} == {"MODE": b"blue", "IP": b"10.88.5.16"}
