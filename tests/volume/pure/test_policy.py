"""Tables of desired volumes, due steps, removal and tmpfs sizes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from actors.volume import policy
from actors.volume.plugins import empty_dir
from actors.volume.plugins.base import ATTACH_FAILED, CannotMount
from actors.volume.policy import NEW, Actual, Wanted
from actors.volume.reconcile.failure_reporter import FailureReporter
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.errors import VolumeError
from actors.volume.steps.places import CSI
from actors.volume.steps.removal_rules import LOCAL_PLUGINS, VolumeDir, removal_steps
from actors.volume.steps.volumes import EmptyDir
from proto.v1 import (
    Container,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    ISCSIVolumeSource,
    Pod,
    PodSpec,
    Volume,
    VolumeMount,
    from_dict,
)
from proto.v1.containers.resources import ResourceRequirements
from proto.v1.volumes.legacy import FlexVolumeSource, GitRepoVolumeSource

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


def test_wanted_volumes_are_used_ones_in_spec_order() -> None:
    volumes = (
        empty("b"),
        empty("unused", medium="Memory"),
        Volume(name="a", host_path=HostPathVolumeSource(path="/x", type="File")),
        Volume(name="bare"),
        Volume(name="unserved", iscsi=ISCSIVolumeSource()),
    )
    wanted = policy.wanted_volumes(pod(volumes, container("a", "b"), init=(container("bare"),)))
    assert [(name, one.plugin.source) for name, one in wanted.items()] == [
        ("b", "empty_dir"),
        ("a", "host_path"),
        ("bare", "empty_dir"),
    ]
    assert policy.wanted_volumes(pod(volumes, container())) == {}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (
            Volume(name="v", iscsi=ISCSIVolumeSource()),
            'MountVolume.SetUp failed for volume "v" : this agent does not support volumes of type `iscsi`: '
            "it logs in to no iSCSI targets; use a CSI driver",
        ),
        (
            Volume(name="v", flex_volume=FlexVolumeSource(driver="example.com/d")),
            'MountVolume.SetUp failed for volume "v" : this agent does not support volumes of type `flexVolume`: '
            "it runs no FlexVolume plugins; use a CSI driver",
        ),
        (
            Volume(name="v", git_repo=GitRepoVolumeSource(repository="https://example.com/r")),
            'MountVolume.SetUp failed for volume "v" : git-repo volume plugin has been disabled; if necessary, '
            "it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`",
        ),
        (
            empty("w"),
            "unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: no such volume in the pod",
        ),
    ],
)
def test_mount_failure_names_the_volume(volume: Volume, message: str) -> None:
    with pytest.raises(CannotMount) as caught:
        policy.wanted_volumes(pod((volume,), container("v")))
    assert str(caught.value) == message
    assert not caught.value.retry


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0"])
def test_volume_name_must_be_one_path_component(name: str) -> None:
    with pytest.raises(CannotMount):
        policy.check_component(name)


CONFIG = Wanted(Volume(name="v"), policy.PLUGINS["config_map"])
EMPTY = Wanted(Volume(name="v"), policy.PLUGINS["empty_dir"])
STEP = EmptyDir("u", "kubernetes.io~empty-dir", "v")
MEMORY = EmptyDir("u", "kubernetes.io~empty-dir", "v", "tmpfs", "size=1")


@pytest.mark.parametrize(
    ("wanted", "step", "actual", "needed"),
    [
        (EMPTY, STEP, NEW, True),
        (EMPTY, STEP, Actual(mounted=True, digest=b"other"), False),
        (CONFIG, STEP, Actual(mounted=True, digest=b"other"), True),
        (CONFIG, STEP, Actual(mounted=True, digest=policy.digest(STEP)), False),
        (CONFIG, STEP, Actual(mounted=True, medium=""), True),
        (EMPTY, STEP, Actual(mounted=True, medium=""), False),
        (EMPTY, MEMORY, Actual(mounted=True, medium=""), True),  # its tmpfs went with a boot, the mark stayed
        (EMPTY, MEMORY, Actual(mounted=True, medium="tmpfs"), False),
    ],
)
def test_missing_volume_or_changed_content_needs_a_step(
    wanted: Wanted, step: EmptyDir, actual: Actual, needed: bool
) -> None:
    assert policy.needs(wanted, step, policy.digest(step), actual) == needed


def test_retries_double_from_half_a_second_to_two_minutes() -> None:
    state, now, delays = NEW, 100.0, []
    for _ in range(11):
        state = policy.failed(state, CannotMount("no"), now)
        delays.append(state.retry_at - now)
        assert not policy.is_due(state, now)
        assert policy.is_due(state, state.retry_at)
        assert policy.next_try_s([NEW, state], now) == delays[-1]
        now = state.retry_at
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122, 122]
    assert policy.failed(state, CannotMount("attaching", soon=True), now).retry_at == now + policy.SOON_S
    assert policy.failed(NEW, CannotMount("attaching", soon=True), now).retry_at == now + 0.5
    assert policy.done(b"", "/v") == Actual(mounted=True, path="/v")
    assert policy.next_try_s([NEW, policy.failed(NEW, CannotMount("never", retry=False), 0.0)], 0.0) is None


@pytest.mark.parametrize(
    ("wanted", "before", "quiet"),
    [
        (CONFIG, Actual(mounted=True, digest=b"old"), True),
        (CONFIG, NEW, False),  # the pod waits for it
        (EMPTY, Actual(mounted=True), False),  # has no objects
        (None, Actual(mounted=True), False),
    ],
)
def test_first_failed_refreshes_are_quiet(wanted: Wanted | None, before: Actual, quiet: bool) -> None:
    state, found = before, []
    for _ in range(6):
        state = policy.failed(state, CannotMount('configmap "o" not found'), 0.0)
        found.append(policy.is_quiet(wanted, state))
        assert policy.is_quiet(wanted, state, ending=True) == quiet
    assert found == ([True] * 4 + [False] * 2 if quiet else [False] * 6)


def test_hanging_volume_is_not_touched_until_its_helper_ends() -> None:
    state = policy.hung(NEW, since=1000.0, pid=7, now=50.0)
    assert not policy.is_due(state, 1e9)
    assert policy.next_try_s([state], 50.0) is None
    assert policy.refusal(["v"], {"v": state}, 1012.5) == (
        "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], "
        'failed to process volumes=[]: context deadline exceeded: volume "v" has not answered for 12 s'
    )
    again = policy.hung(policy.released(state), since=1030.0, pid=0, now=80.0)
    assert again.hung_since == 1000.0, "it has not answered since the first call"
    assert policy.is_due(again, again.retry_at)


def test_a_refusal_names_what_failed_and_what_does_not_answer() -> None:
    states = {
        "a": policy.failed(NEW, CannotMount("no such file"), 0.0),
        "b": policy.hung(NEW, 100.0, 1, 0.0),
        "c": Actual(mounted=True),
        "d": policy.failed(Actual(mounted=True), CannotMount("not refreshed"), 0.0),
    }
    assert policy.refusal(["a", "b", "c", "d"], states, 108.0) == (
        'MountVolume.SetUp failed for volume "a" : no such file; '
        "Unable to attach or mount volumes: unmounted volumes=[a b], unattached volumes=[], "
        'failed to process volumes=[]: context deadline exceeded: volume "b" has not answered for 8 s'
    )


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize(
    ("stage", "of_devices", "reason"),
    [
        ("MountVolume.SetUp failed", "MapVolume.SetUpDevice failed", "FailedMapVolume"),
        ("MountVolume.NodeAffinity check failed", "MapVolume.NodeAffinity check failed", "FailedMount"),
        (
            "MountVolume.Setup failed while expanding volume",
            "MapVolume.MarkVolumeAsMounted failed while expanding volume",
            "FailedMapVolume",
        ),
        ("MapVolume.MapPodDevice failed", "MapVolume.MapPodDevice failed", "FailedMapVolume"),
    ],
)
def test_failure_of_a_raw_device_has_its_own_words(stage: str, of_devices: str, reason: str, device: bool) -> None:
    use = {"volumeDevices": [{"name": "v", "devicePath": "/d"}]} if device else {"volumeMounts": [{"name": "v"}]}
    spec = {"containers": [{"name": "c", **use}], "volumes": [{"name": "v", "persistentVolumeClaim": {}}]}
    user = from_dict(Pod, {"metadata": {"name": "p", "uid": "u"}, "spec": spec})
    state, told = PodVolumes(pod=user, wanted=policy.wanted_volumes(user)), []
    reporter: Any = FailureReporter.__new__(FailureReporter)
    reporter._actor = SimpleNamespace(settings=SimpleNamespace(kubeconfig="/there"))
    reporter._events = SimpleNamespace(pod=lambda _, *event: told.append(event))
    reporter.failed("u", state, "v", CannotMount("why", stage=stage, volume="pv"))
    reason = reason if device or stage == of_devices else "FailedMount"
    assert told == [("Warning", reason, f'{of_devices if device else stage} for volume "pv" : why')]
    assert policy.refusal(state.wanted, state.actual, 0.0) == told[0][2]
    reporter.failed("u", state, "v", CannotMount("not attached", stage=ATTACH_FAILED, volume="pv"))
    assert len(told) == 1, "a wait for the attachment is no event"
    names = "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]"
    assert names in policy.overdue_message(state.wanted, state.actual, 0.0)
    kind = "MapVolume" if device else "MountVolume"
    assert policy.refusal(state.wanted, state.actual, 0.0).startswith(f"{kind}.WaitForAttach failed")


def test_a_pod_that_waits_too_long_names_its_volumes() -> None:
    states = {
        "attached-late": policy.failed(NEW, CannotMount("not attached", stage=ATTACH_FAILED), 0.0),
        "failed": policy.failed(NEW, CannotMount("no such file"), 0.0),
        "mounted": Actual(mounted=True),
        "slow": replace(NEW, hung_since=100.0),
    }
    text = "Unable to attach or mount volumes: unmounted volumes={}, unattached volumes={}, "
    text += "failed to process volumes=[]: {}"
    slow = 'context deadline exceeded: volume "slow" has not answered for 125 s'
    expected = text.format("[attached-late failed slow]", "[attached-late]", slow)
    assert policy.overdue_message(states, states, 225.0) == expected
    del states["slow"]
    expected = text.format("[attached-late failed]", "[attached-late]", "context deadline exceeded")
    assert policy.overdue_message(states, states, 225.0) == expected
    assert policy.overdue_message(["mounted"], states, 225.0) == ""
    states["unbound"] = policy.failed(NEW, CannotMount("PVC is not bound", stage=""), 0.0)
    assert policy.overdue_message(states, states, 225.0) == "", "each failure has that event"


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
def test_only_the_pods_own_content_is_unmounted_or_deleted(
    plugin: str, fs_type: str, steps: tuple[str, ...] | None
) -> None:
    found = VolumeDir(plugin, "v", fs_type)
    if steps is not None:
        assert removal_steps(found) == steps
    else:
        with pytest.raises(VolumeError, match="is not ours"):
            removal_steps(found)


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
    assert empty_dir.pod_memory_limit(pod((), *containers, init=init)) == limit


def test_memory_limit_of_the_pod_itself_has_its_overhead() -> None:
    own = ResourceRequirements(limits={"memory": "200Mi"})
    assert empty_dir.pod_memory_limit(pod((), container(), resources=own, overhead={"memory": "100Mi"})) == 300 * MI
    assert empty_dir.pod_memory_limit(pod((), container(), overhead={"memory": "100Mi"})) == 0


@pytest.mark.parametrize(
    ("memory", "size_limit", "size"),
    [("", None, GI), ("64Mi", None, 64 * MI), ("64Mi", "32Mi", 32 * MI), ("64Mi", "1Gi", 64 * MI), ("", "0", GI)],
)
def test_size_of_a_tmpfs_is_the_least_limit(memory: str, size_limit: str | None, size: int) -> None:
    assert empty_dir.tmpfs_size(pod((), container(memory=memory)), size_limit, GI) == size


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
            empty_dir.huge_page_size(spec, medium)
    else:
        assert empty_dir.huge_page_size(spec, medium) == size


def test_local_plugins_are_all_plugins_with_a_directory_but_csi() -> None:
    assert {plugin.directory for plugin in policy.PLUGINS.values()} - {"", CSI} == LOCAL_PLUGINS
