"""What is wanted, what is missing, what may be removed, how large a tmpfs gets: tables."""

from typing import Any

import pytest

from actors.volume import policy, sizes
from actors.volume.policy import CannotMount, EmptyDir, Found, HostPath
from proto.v1 import Container, EmptyDirVolumeSource, HostPathVolumeSource, Pod, PodSpec, Volume, VolumeMount
from proto.v1.resources import ResourceRequirements
from proto.v1.security import PodSecurityContext
from proto.v1.volume_projected import SecretVolumeSource

GI = 1 << 30
MI = 1 << 20


def container(*mounts: str, memory: str = "", restart: str | None = None, **resources: Any) -> Container:
    limits = {"memory": memory} if memory else {}
    return Container(
        name="c",
        volume_mounts=tuple(VolumeMount(name=name, mount_path=f"/{name}") for name in mounts),
        resources=ResourceRequirements(limits=limits, **resources),
        restart_policy=restart,
    )


def pod(volumes: tuple[Volume, ...], *containers: Container, init: tuple[Container, ...] = (), **spec: Any) -> Pod:
    return Pod(spec=PodSpec(volumes=volumes, containers=containers, init_containers=init, **spec))


def empty(name: str, **source: Any) -> Volume:
    return Volume(name=name, empty_dir=EmptyDirVolumeSource(**source))


def test_volumes_that_a_container_uses_are_wanted_in_the_order_of_the_spec() -> None:
    volumes = (
        empty("b"),
        empty("unused", medium="Memory"),
        Volume(name="a", host_path=HostPathVolumeSource(path="/x", type="File")),
        Volume(name="bare"),
        Volume(name="secret-unused", secret=SecretVolumeSource(secret_name="s")),
    )
    wanted = policy.wanted_volumes(pod(volumes, container("a", "b"), init=(container("bare"),)), GI)
    assert wanted == (EmptyDir("b"), HostPath("a", "/x", "File"), EmptyDir("bare"))
    assert policy.wanted_volumes(pod(volumes, container()), GI) == ()


def test_fs_group_and_medium_reach_the_empty_dir() -> None:
    security = PodSecurityContext(fs_group=2000)
    spec = pod((empty("m", medium="Memory", size_limit="64Mi"),), container("m"), security_context=security)
    assert policy.wanted_volumes(spec, GI) == (EmptyDir("m", "tmpfs", f"size={64 * MI}", 2000),)


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (
            Volume(name="v", secret=SecretVolumeSource(secret_name="s")),
            'MountVolume.SetUp failed for volume "v" : this agent does not support volumes of type `secret` yet: '
            "use emptyDir or hostPath",
        ),
        (empty("v", medium="Disk"), 'MountVolume.SetUp failed for volume "v" : unknown storage medium "Disk"'),
        (
            empty("v", medium="HugePages"),
            'MountVolume.SetUp failed for volume "v" : medium HugePages: hugePages storage requested, but there is no '
            "resource request for huge pages",
        ),
        (
            empty("w"),
            "unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: no such volume in the pod",
        ),
    ],
)
def test_what_cannot_be_mounted_is_said_with_the_volumes_name(volume: Volume, message: str) -> None:
    with pytest.raises(CannotMount) as caught:
        policy.wanted_volumes(pod((volume,), container("v")), GI)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0"])
def test_a_name_that_leads_elsewhere_is_no_volume(name: str) -> None:
    with pytest.raises(CannotMount):
        policy.check_component(name)


def test_what_is_there_is_not_set_up_again() -> None:
    wanted = (EmptyDir("a"), EmptyDir("b", fs_group=1), HostPath("c", "/c"))
    assert policy.missing_volumes(wanted, {}) == wanted
    assert policy.missing_volumes(wanted, {"a": EmptyDir("a"), "b": EmptyDir("b")}) == (wanted[2],)


@pytest.mark.parametrize(
    ("plugin", "fs_type", "steps"),
    [
        ("kubernetes.io~empty-dir", "", ("delete",)),
        ("kubernetes.io~empty-dir", "tmpfs", ("unmount", "delete")),
        ("kubernetes.io~empty-dir", "hugetlbfs", ("unmount", "delete")),
        ("kubernetes.io~empty-dir", "ext4", None),
        ("kubernetes.io~projected", "tmpfs", ("unmount", "delete")),
        ("kubernetes.io~csi", "", ("rmdir",)),
        ("kubernetes.io~csi", "tmpfs", None),
        ("kubernetes.io~nfs", "nfs4", None),
        ("kubernetes.io~host-path", "", ("rmdir",)),
    ],
)
def test_only_what_is_the_pods_own_is_unmounted_or_deleted(
    plugin: str, fs_type: str, steps: tuple[str, ...] | None
) -> None:
    found = Found(plugin, "v", fs_type)
    if steps is not None:
        assert policy.removal_steps(found) == steps
    else:
        with pytest.raises(CannotMount, match="is not ours"):
            policy.removal_steps(found)


@pytest.mark.parametrize(
    ("containers", "init", "limit"),
    [
        ((container(memory="64Mi"), container(memory="64Mi")), (), 128 * MI),
        ((container(memory="64Mi"), container()), (), 0),
        ((container(memory="64Mi"),), (container(memory="1Gi"),), GI),
        ((container(memory="64Mi"),), (container(memory="32Mi", restart="Always"),), 96 * MI),
        (
            (container(memory="64Mi"),),
            (container(memory="32Mi", restart="Always"), container(memory="1Gi")),
            GI + 32 * MI,
        ),
        ((container(memory="64Mi"),), (container(),), 0),
    ],
)
def test_memory_limit_of_a_pod(containers: tuple[Container, ...], init: tuple[Container, ...], limit: int) -> None:
    assert sizes.pod_memory_limit(pod((), *containers, init=init)) == limit


@pytest.mark.parametrize(
    ("memory", "size_limit", "size"),
    [("", None, GI), ("64Mi", None, 64 * MI), ("64Mi", "32Mi", 32 * MI), ("64Mi", "1Gi", 64 * MI), ("", "0", GI)],
)
def test_size_of_a_tmpfs_is_the_least_limit(memory: str, size_limit: str | None, size: int) -> None:
    assert sizes.tmpfs_size(pod((), container(memory=memory)), size_limit, GI) == size


@pytest.mark.parametrize(("threshold", "size"), [(None, GI), ("24Mi", 1000 * MI), ("25%", 768 * MI), ("2Gi", 0)])
def test_allocatable_memory_is_what_eviction_leaves(threshold: str | None, size: int) -> None:
    assert sizes.allocatable_memory(GI, threshold) == size


@pytest.mark.parametrize(
    ("medium", "requests", "size"),
    [
        ("HugePages", {"hugepages-2Mi": "4Mi"}, "2Mi"),
        ("HugePages-1Gi", {"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}, "1Gi"),
        ("HugePages", {"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}, "multiple huge page sizes"),
        ("HugePages-1Gi", {"hugepages-2Mi": "4Mi"}, "no resource request"),
    ],
)
def test_page_size_follows_the_requests(medium: str, requests: dict[str, str], size: str) -> None:
    spec = pod((), container(requests=requests))
    if " " in size:
        with pytest.raises(ValueError, match=size):
            sizes.huge_page_size(spec, medium)
    else:
        assert sizes.huge_page_size(spec, medium) == size
