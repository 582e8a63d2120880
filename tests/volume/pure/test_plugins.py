"""Tables of the step for each source of volumes, and of the errors."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from actors._host.node.downward import NodeFacts
from actors.volume import policy
from actors.volume.mount_points import find_mount_points
from actors.volume.plugins import payload
from actors.volume.plugins.base import CannotMount, Context
from actors.volume.reconcile.volume_state import PodVolumes
from actors.volume.steps.codec import SetUp
from actors.volume.steps.volumes import EmptyDir, File, Files
from proto import v1
from proto.pods.objects import ApiObject, ObjectRef, Token
from proto.v1 import Pod, Volume

MI = 1 << 20
CONTAINER = {"name": "c", "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "250m"}}}


def pod(**volume: Any) -> Pod:
    """A pod `ns/p` that mounts the one volume `v`."""
    container = {**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    metadata = {
        "name": "p", "namespace": "ns", "uid": "u", "labels": {"b": '2"', "a": "1"}, "annotations": {"x/y": "z"}
    }  # fmt: skip
    spec = {"containers": [container], "volumes": [{"name": "v", **volume}], "securityContext": {"fsGroup": 7}}
    return v1.from_dict(Pod, {"metadata": metadata, "spec": spec})


def step(objects: Mapping[str, Mapping[str, bytes]] | None = None, **volume: Any) -> SetUp:
    """The step of the volume; `objects` by `Kind/name`."""
    spec = pod(**volume)
    wanted = policy.wanted_volumes(spec)["v"]
    found = {}
    for key, data in (objects or {}).items():
        kind, _, name = key.partition("/")
        ref = ObjectRef(kind=kind, namespace="ns", name=name)
        found[ref] = ApiObject(ref=ref, resource_version="1", data=dict(data))
    context = Context(64 * MI, NodeFacts(allocatable={"cpu": 2, "memory": 1 << 30}), found)
    return wanted.plugin.step(spec, wanted.volume, context)


def files(objects: Mapping[str, Mapping[str, bytes]] | None = None, **volume: Any) -> dict[str, tuple[bytes, int]]:
    made = step(objects, **volume)
    assert isinstance(made, Files)
    return {file.path: (file.data, file.mode) for file in made.files}


@pytest.mark.parametrize("group", [-1, 1 << 31, 1 << 32])
def test_number_that_is_no_group_is_an_error_of_the_volume(group: int) -> None:
    spec = pod(emptyDir={})
    spec = replace(spec, spec=replace(spec.spec, security_context=v1.PodSecurityContext(fs_group=group)))
    wanted = policy.wanted_volumes(spec)["v"]
    with pytest.raises(CannotMount, match=f"fsGroup {group}: must be between 0 and 2147483647") as refused:
        wanted.plugin.step(spec, wanted.volume, Context(64 * MI, NodeFacts(), {}))
    assert not refused.value.retry


def test_secrets_are_in_memory_and_config_maps_on_disk() -> None:
    secret = step({"Secret/s": {}}, secret={"secretName": "s"})
    assert secret == Files(EmptyDir("u", "kubernetes.io~secret", "v", "tmpfs", f"size={64 * MI}", 7), ())
    config = step({"ConfigMap/c": {}}, configMap={"name": "c"})
    assert config == Files(EmptyDir("u", "kubernetes.io~configmap", "v", fs_group=7), ())
    downward = step(downwardAPI={"items": []})
    assert isinstance(downward, Files)
    assert (downward.directory.plugin, downward.directory.medium) == ("kubernetes.io~downward-api", "tmpfs")
    assert step(emptyDir={"medium": "Memory", "sizeLimit": "1Mi"}) == EmptyDir(
        "u", "kubernetes.io~empty-dir", "v", "tmpfs", f"size={MI}", 7
    )


DATA = {"a": b"1", "b": b"2"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, {"a": (b"1", 0o644), "b": (b"2", 0o644)}),
        ({"defaultMode": 0o400}, {"a": (b"1", 0o400), "b": (b"2", 0o400)}),
        ({"items": [{"key": "b", "path": "x/./y"}]}, {"x/y": (b"2", 0o644)}),
        ({"items": [{"key": "b", "path": "y", "mode": 0}], "defaultMode": 0o600}, {"y": (b"2", 0)}),
        ({"items": [{"key": "no", "path": "y"}, {"key": "a", "path": "a"}], "optional": True}, {"a": (b"1", 0o644)}),
    ],
)
@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_keys_become_files(kind: str, source: dict[str, Any], expected: dict[str, tuple[bytes, int]]) -> None:
    volume = (
        {"configMap": {"name": "o", **source}} if kind == "ConfigMap" else {"secret": {"secretName": "o", **source}}
    )
    assert files({f"{kind}/o": DATA}, **volume) == expected


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "o"}}, 'configmap "o" not found'),
        ({"secret": {"secretName": "o"}}, 'secret "o" not found'),
        (
            {"configMap": {"name": "there", "items": [{"key": "k", "path": "p"}]}},
            "configmap references non-existent config key: k",
        ),
        (
            {"secret": {"secretName": "there", "items": [{"key": "k", "path": "p"}]}},
            "references non-existent secret key: k",
        ),
        ({"secret": {"secretName": "large"}}, "Too long: may not be more than 1048576 bytes, and has 1048577"),
        (
            {"projected": {"sources": [{"configMap": {"name": "o"}}, {"secret": {"name": "o"}}]}},
            '[configmap "o" not found, secret "o" not found]',
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            "failed to fetch token: cannot use TokenManager when kubelet is in standalone mode",
        ),
        (
            {"configMap": {"name": "there", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}},
            "invalid path: x is a file, and a directory of x/y",
        ),
        (
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "spec.nothing"}}]}},
            "unsupported fieldPath: spec.nothing",
        ),
        ({"emptyDir": {"medium": "Disk"}}, 'unknown storage medium "Disk"'),
        (
            {"emptyDir": {"medium": "HugePages"}},
            "medium HugePages: hugePages storage requested, but there is no resource request for huge pages",
        ),
    ],
)
def test_missing_sources_give_the_kubelets_messages(volume: dict[str, Any], message: str) -> None:
    objects = dict.fromkeys(("ConfigMap/there", "Secret/there"), DATA) | {"Secret/large": {"k": b"x" * (MI + 1)}}
    with pytest.raises(CannotMount) as caught:
        step(objects, **volume)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", 'must not be empty: ""'),
        ("/etc/passwd", "must be relative path: /etc/passwd"),
        ("../x", "must not contain '..': ../x"),
        ("a/../../x", "must not contain '..': a/../../x"),
        ("..data", "must not start with '..': ..data"),
        ("./..x", "must not start with '..': ./..x"),
        (".", "must not start with '..': ."),
        ("a/" + "x" * 256, "filenames must be less than or equal to 255 characters"),
        ("x/" * 2100, "must be less than or equal to 4096 characters"),
    ],
)
def test_a_path_that_leads_out_of_the_volume_is_refused(path: str, message: str) -> None:
    with pytest.raises(CannotMount) as caught:
        files({"ConfigMap/o": DATA}, configMap={"name": "o", "items": [{"key": "a", "path": path}]})
    assert str(caught.value) == f"invalid path: {message}"
    assert not caught.value.retry


def test_missing_optional_object_is_an_empty_directory() -> None:
    assert files(configMap={"name": "no", "optional": True}) == {}
    assert files(projected={"sources": [{"secret": {"name": "no", "optional": True}}]}) == {}


def test_the_downward_api_writes_fields_and_resources() -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "one", "fieldRef": {"fieldPath": "metadata.annotations['x/y']"}, "mode": 0o400},
        {"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "requests.cpu", "divisor": "1m"}},
        {"path": "unset", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
    ]
    expected = {
        "labels": (b'a="1"\nb="2\\""', 0o644),
        "one": (b"z", 0o400),
        "memory": (b"64", 0o644),
        "cpu": (b"250", 0o644),
        "unset": (b"2", 0o644),
    }
    assert files(downwardAPI={"items": items}) == expected
    assert files(projected={"sources": [{"downwardAPI": {"items": items}}]}) == expected


@pytest.mark.parametrize("field", ["annotations['']", "annotations['a b']", "labels['A.b/c']", "labels['a\\n']"])
def test_the_downward_api_refuses_what_is_no_key(field: str) -> None:
    with pytest.raises(CannotMount, match="invalid key subscript in metadata") as caught:
        files(downwardAPI={"items": [{"path": "x", "fieldRef": {"fieldPath": f"metadata.{field}"}}]})
    assert not caught.value.retry


def test_downward_file_has_the_limit_that_only_the_pod_has() -> None:
    own = v1.from_dict(Pod, {"spec": {"resources": {"limits": {"cpu": "1500m", "memory": "32Mi"}}}}).spec.resources
    spec = pod()
    spec = replace(spec, spec=replace(spec.spec, resources=own))
    items = [
        {"path": name, "resourceFieldRef": {"containerName": "c", "resource": f"limits.{name}", "divisor": divisor}}
        for name, divisor in (("cpu", "1m"), ("memory", "1Mi"))
    ]
    source = v1.from_dict(Volume, {"name": "v", "downwardAPI": {"items": items}}).downward_api
    assert source is not None
    made = payload.of_fields(spec, source.items, None, NodeFacts(allocatable={"cpu": 2, "memory": 1 << 30}))
    assert {path: file.data for path, file in made.items()} == {"cpu": b"1500", "memory": b"64"}


def test_projected_source_without_a_type_adds_no_file() -> None:
    """As in the kubelet's collectData. The API server accepts such a source."""
    assert files(projected={"sources": [{}]}) == {}
    made = files({"ConfigMap/c": DATA}, projected={"sources": [{}, {"configMap": {"name": "c"}}, {}]})
    assert made == files({"ConfigMap/c": DATA}, projected={"sources": [{"configMap": {"name": "c"}}]})


def test_projected_sources_share_a_directory_and_the_last_wins() -> None:
    sources = [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "deep/k"}, {"key": "k", "path": "a"}]}},
    ]
    made = files({"ConfigMap/c": DATA, "Secret/s": {"k": b"s"}}, projected={"sources": sources, "defaultMode": 0o440})
    assert made == {"a": (b"s", 0o440), "b": (b"2", 0o440), "deep/k": (b"s", 0o440)}


def test_data_is_in_no_repr() -> None:
    made = step({"Secret/s": {"k": b"CANARY"}}, secret={"secretName": "s"})
    assert "CANARY" not in repr(made)
    assert "CANARY" not in repr(payload.payload([File("k", b"CANARY", 0)]))


TOKEN_VOLUME = {
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}},
            {"configMap": {"name": "ca"}},
        ]
    }
}


def with_token(token: Token | str, **security: Any) -> SetUp:
    spec = pod(**TOKEN_VOLUME)
    spec = replace(spec, spec=replace(spec.spec, security_context=v1.from_dict(v1.PodSecurityContext, security)))
    wanted = policy.wanted_volumes(spec)["v"]
    ref = ObjectRef(kind="ConfigMap", namespace="ns", name="ca")
    objects = {ref: ApiObject(ref=ref, resource_version="1", data={"ca.crt": b"CA"})}
    context = Context(64 * MI, standalone=False).with_objects(objects)
    (wish,) = wanted.plugin.credentials(spec, wanted.volume, context)
    assert (wish.namespace, wish.service_account, wish.pod_name, wish.pod_uid) == ("ns", "default", "p", "u")
    assert (wish.audiences, wish.expiration_s) == (("vault",), 600)
    return wanted.plugin.step(spec, wanted.volume, context.with_objects(objects, {wish: token}))


@pytest.mark.parametrize(
    ("security", "mode", "user"),
    [({}, 0o644, None), ({"fsGroup": 7}, 0o600, None), ({"runAsUser": 1000}, 0o600, 1000)],
)
def test_a_token_is_for_its_user_alone(security: dict[str, int], mode: int, user: int | None) -> None:
    made = with_token(Token(token="jwt", expires=10, refresh=8), **security)
    assert isinstance(made, Files)
    assert {file.path: (file.data, file.mode, file.user) for file in made.files} == {
        "token": (b"jwt", mode, user),
        "ca.crt": (b"CA", 0o644, None),
    }
    assert "jwt" not in repr(made)


def test_token_failure_has_the_servers_message() -> None:
    with pytest.raises(CannotMount, match='serviceaccounts "default" not found') as caught:
        with_token('failed to fetch token: serviceaccounts "default" not found')
    assert caught.value.retry


# Mount points of other volumes; the cases of upstream's nested_volumes_test.go and more


def mounted(*containers: tuple[str, ...], kind: str = "containers") -> Pod:
    """A pod whose containers have these mounts, each `VOLUME PATH` or `VOLUME PATH SUBPATH`."""
    made = [
        {
            "name": f"c{number}",
            "volumeMounts": [
                dict(zip(("name", "mountPath", "subPath"), mount.split(" "), strict=False)) for mount in mounts
            ],
        }
        for number, mounts in enumerate(containers)
    ]
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    spec = {"containers": [], kind: made, "volumes": [{"name": "v", "configMap": {"name": "c", "optional": True}}]}
    return v1.from_dict(Pod, {"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([("v /dir",)], ()),
        ([("v /dir", "o /other")], ()),
        ([("v /dir", "o /dirty")], ()),
        ([("v /dir", "o /dir/nested")], ("nested",)),
        ([("o /dir/nested", "v /dir")], ("nested",)),
        ([("o /dir", "v /dir/nested")], ()),
        ([("v /dir", "o /dir/deep/est")], ("deep/est",)),
        ([("v /dir", "o /dir/a", "p /dir/a/b", "q /dir/a-b", "r /dir/a/c")], ("a", "a-b")),
        ([("v /dir", "o /dir/a"), ("v /dir", "o /dir/a/b", "p /dir/c")], ("a", "a/b", "c")),
        ([("v /dir", "o /dir/a"), ("v /else", "o /dir/b", "p /else/c")], ("a", "c")),
        ([("v /dir", "v /dir/a", "o /dir/a/b")], ("a", "b")),
        ([("v /dir", "o /dir/a", "v /other", "o /other/a")], ("a",)),
        ([("v /dir/", "o /dir//a/")], ("a",)),
        ([("v /dir/./x/..", "o /dir/y/../a")], ("a",)),
        ([("v /dir", "o /dir/../a", "p /../dir/b")], ("b",)),
        ([("v dir", "o /dir/a")], ("a",)),
        ([("v //dir", "o /dir/a")], ("a",)),
        ([("v /dir key", "o /dir/a")], ()),
        ([("v /dir ./", "o /dir/a")], ("a",)),
        ([("v /dir", "o /dir/a file")], ("a",)),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
def test_mount_points_in_a_volume_of_files(
    kind: str, containers: list[tuple[str, ...]], expected: tuple[str, ...]
) -> None:
    assert find_mount_points(mounted(*containers, kind=kind), {"v"}).of("v", mounted=False) == expected


@pytest.mark.parametrize(
    ("mounts", "message"),
    [
        (("o /dir/..x",), "must not start with '..': ..x; change the mountPath"),
        (("o /dir/..data/a",), "must not start with '..': ..data/a; change the mountPath"),
        (("o /dir/" + "x" * 256,), "filenames must be less than or equal to 255 characters; change"),
        (("o /dir/" + "x/" * 65,), "more than 64 directories deep; change the mountPath"),
        (("o /dir/..\n",), "such as '..\\\\n' in volume v: invalid path"),
    ],
)
def test_mount_points_that_cannot_be_made_are_left_out(mounts: tuple[str, ...], message: str) -> None:
    found = find_mount_points(mounted(("v /dir", *mounts, "o /dir/ok")), {"v"})
    assert found.of("v", mounted=False) == ("ok",)
    assert message in found.left_out


@pytest.mark.parametrize("mounted_now", [False, True])
def test_mount_path_above_the_container_is_refused(mounted_now: bool) -> None:
    found = find_mount_points(mounted(("v ../dir", "o /else"), ("v /dir", "o /dir/a")), {"v"})
    if mounted_now:
        assert found.of("v", mounted=True) == ("a",), "running containers get its refreshes"
        return
    with pytest.raises(CannotMount, match=re.escape("invalid container mount point ../dir")) as refused:
        found.of("v", mounted=False)
    assert not refused.value.retry


def test_mount_points_beyond_the_most_are_left_out() -> None:
    first = ("v /dir", *(f"o /dir/{number:04}" for number in range(999)))
    found = find_mount_points(mounted(first, ("v /dir", "o /dir/0000", "o /dir/y", "o /dir/z")), {"v"})
    assert found.of("v", mounted=False) == (*(f"{number:04}" for number in range(999)), "y")
    assert "such as 'z' in volume v: 1000 in a pod are the most; change the mountPath" in found.left_out


def cpu_s(mounts: Sequence[str], volumes: Iterable[str]) -> tuple[float, dict[str, tuple[str, ...]]]:
    """Seconds of the search for mount points, and what it finds."""
    subject, names = mounted(tuple(mounts)), set(volumes)
    began = time.process_time()
    found = find_mount_points(subject, names)
    return time.process_time() - began, dict(found.paths)


def test_mount_points_of_many_mounts_are_found_at_once() -> None:
    tops = [f"v /dir{'/' * number}" for number in range(1000)]
    took_s, found = cpu_s((*tops, *(f"o /dir/a/{number}" for number in range(900)), "p /dir/a"), "v")
    assert found == {"v": ("a",)}
    assert took_s < 2


def test_mount_points_of_many_volumes_are_found_at_once() -> None:
    names = [f"v{number}" for number in range(4000)]
    took_s, found = cpu_s([mount for name in names for mount in (f"{name} /{name}", f"o /{name}/a")], names)
    assert len(found) == 1000
    assert took_s < 1


def test_mount_points_of_volumes_at_one_path_are_bounded() -> None:
    names = [f"v{number}" for number in range(3000)]
    took_s, found = cpu_s((*(f"{one} /dir" for one in names), *(f"o /dir/..{one}" for one in names)), names)
    assert found == {}
    assert took_s < 1


def test_mount_points_in_a_deep_chain_are_found_at_once() -> None:
    chain = ["/a" * depth for depth in range(1, 901)]
    mounts = (*(f"v {path}" for path in chain), *(f"o {chain[-1]}/{number}" for number in range(450)))
    took_s, found = cpu_s(mounts, "v")
    assert found == {"v": tuple(sorted(("a", *map(str, range(450)))))}
    assert took_s < 1


def test_mount_points_are_found_when_the_pod_changes(caplog: pytest.LogCaptureFixture) -> None:
    state = PodVolumes()
    first = mounted(("v /dir", "o /dir/..x"))
    first = replace(first, spec=replace(first.spec, volumes=(*first.spec.volumes, Volume(name="o"))))
    (debugger,) = mounted(("v /dir", "o /dir/a"), kind="ephemeralContainers").spec.ephemeral_containers
    second = replace(first, spec=replace(first.spec, ephemeral_containers=(debugger,)))
    for subject, points in ((first, ()), (first, ()), (second, ("a",))):
        state.desire(subject, policy.wanted_volumes(subject))
        assert state.mount_points.of("v", mounted=True) == points
    assert len([one for one in caplog.messages if "cannot make some mount points, such as '..x'" in one]) == 1


def test_steps_of_thousands_of_volumes_take_no_time() -> None:
    names = [f"v{number}" for number in range(4000)]
    subject = mounted(tuple(f"{name} /{name}" for name in names))
    volumes = tuple(v1.from_dict(Volume, {"name": name, "downwardAPI": {"items": []}}) for name in names)
    subject = replace(subject, spec=replace(subject.spec, volumes=volumes))
    began, state = time.process_time(), PodVolumes()
    state.desire(subject, policy.wanted_volumes(subject))
    for one in state.wanted.values():
        one.plugin.step(subject, one.volume, Context(mount_points=state.mount_points.of(one.name, mounted=False)))
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "source",
    [
        {"configMap": {"name": "c", "optional": True}},
        {"secret": {"secretName": "c", "optional": True}},
        {"downwardAPI": {"items": []}},
        {"projected": {"sources": []}},
    ],
)
def test_each_volume_of_files_has_its_mount_points(source: dict[str, Any]) -> None:
    subject = mounted(("v /dir", "o /dir/a"))
    volume = v1.from_dict(Volume, {"name": "v", **source})
    spec = replace(subject, spec=replace(subject.spec, volumes=(volume, Volume(name="o"))))
    wanted = policy.wanted_volumes(spec)["v"]
    made = wanted.plugin.step(spec, wanted.volume, Context(64 * MI, mount_points=("a",)))
    assert isinstance(made, Files)
    assert made.mount_points == ("a",)


LARGE = {"ConfigMap/o": {"k": b"x" * MI}}


def at_paths(count: int) -> dict[str, Any]:
    return {"name": "o", "items": [{"key": "k", "path": f"p{number}"} for number in range(count)]}


def long_fields(count: int) -> dict[str, Any]:
    field = {"fieldPath": "metadata.annotations['x/y']"}
    return {"items": [{"path": f"p{number}", "fieldRef": field} for number in range(count)]}


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": at_paths(4000)},
        {"projected": {"sources": [{"configMap": at_paths(65)}]}},
        {"projected": {"sources": [{"configMap": at_paths(40)}] * 2}},
        {"projected": {"sources": [{"configMap": at_paths(60)}, {"downwardAPI": long_fields(5)}]}},
        {"downwardAPI": long_fields(65)},
    ],
)
def test_copies_of_one_content_are_bounded(volume: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def field(*_: Any) -> str:
        nonlocal made
        made += 1
        return "x" * MI

    monkeypatch.setattr(payload.downward, "field_value", field)
    with pytest.raises(
        CannotMount, match=r"may not be more than 67108864 bytes together, and have [68][0-9]{7} "
    ) as caught:
        step(LARGE, **volume)
    assert not caught.value.retry
    assert made <= 65, "the rest is not made"


def test_a_volume_of_64_whole_objects_is_set_up() -> None:
    sources = [
        {"configMap": {"name": f"o{number}", "items": [{"key": "k", "path": f"p{number}"}]}} for number in range(64)
    ]
    objects = {f"ConfigMap/o{number}": {"k": b"x" * MI} for number in range(64)}
    assert len(files(objects, projected={"sources": sources})) == 64


def files_of(name: str, size: int) -> Files:
    return Files(EmptyDir("u", "kubernetes.io~empty-dir", name), (File("k", b"x" * size, 0o644),))


def test_files_of_all_volumes_of_a_pod_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MAX_POD_BYTES", 1000)
    volumes = payload.PodFiles()
    for name, size in (("a", 100), ("b", 300), ("c", 100)):
        volumes.add(files_of(name, size))
    volumes.add(EmptyDir("u", "kubernetes.io~empty-dir", "e"))
    with pytest.raises(
        CannotMount, match='than 1000 bytes together; this one has 501, and "b", "a", "c" have 500;'
    ) as caught:
        volumes.add(files_of("d", 501))
    assert not caught.value.retry
    for name in ("x", "y", "z"):
        volumes.add(files_of(name, 100))
    with pytest.raises(CannotMount, match='"b", "a", "c", "x", "y" and others have 800;'):
        volumes.add(files_of("d", 201))
    volumes.add(files_of("d", 200))
