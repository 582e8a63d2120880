"""Tables of the step for each source of volumes, and of the errors."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from actors._host.node.downward import NodeFacts
from actors.volume import policy
from actors.volume.plugins import payload
from actors.volume.plugins.base import CannotMount, Context
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
    (wish,) = wanted.plugin.tokens(spec, wanted.volume, context)
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
