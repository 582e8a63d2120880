"""Records of proto/v1: names, presence, and unchanged JSON after decoding and encoding."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proto import v1
from proto.v1.scalars.base import Record, json_name
from tests.proto.v1.records import RECORDS

PLAIN_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "uid": "1", "labels": {"app": "web"}},
    "spec": {
        "hostPID": False,
        "setHostnameAsFQDN": True,
        "restartPolicy": "",
        "volumes": [
            {"name": "e", "emptyDir": {}},
            {"name": "d", "azureDisk": {"diskName": "d", "diskURI": "u"}},
            {"name": "s", "scaleIO": {"gateway": "g"}},
            {"name": "f", "fc": {"targetWWNs": ["a"], "lun": 0}},
        ],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "A", "value": ""}],
                "resources": {},
                "ports": [{"containerPort": 80, "hostIP": "127.0.0.1"}],
                "securityContext": {"runAsUser": 0, "seLinuxOptions": {"level": "s0"}},
                "livenessProbe": {"tcpSocket": {"port": "http"}, "initialDelaySeconds": 0},
            }
        ],
    },
    "status": {
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "qosClass": "BestEffort",
        "containerStatuses": [
            {
                "name": "c",
                "state": {"terminated": {"exitCode": 0}},
                "lastState": {},
                "ready": False,
                "restartCount": 0,
                "image": "",
                "imageID": "",
                "containerID": "containerd://1",
            }
        ],
    },
}


def test_decoded_pod_encodes_the_same() -> None:
    pod = v1.from_dict(v1.Pod, PLAIN_POD)
    assert v1.to_dict(pod) == PLAIN_POD
    assert v1.from_json(v1.Pod, v1.to_json(pod)) == pod


def test_unset_lists_maps_and_scalars_are_left_out() -> None:
    assert v1.to_dict(v1.Pod()) == {}
    assert v1.to_dict(v1.from_dict(v1.PodSpec, {"containers": [], "nodeSelector": {}, "hostname": None})) == {}


def test_a_list_of_pods_always_has_items() -> None:
    assert v1.to_dict(v1.PodList()) == {"apiVersion": "v1", "kind": "PodList", "items": []}


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("pod_ip", "podIP"),
        ("pod_ips", "podIPs"),
        ("host_ips", "hostIPs"),
        ("host_pid", "hostPID"),
        ("container_id", "containerID"),
        ("uid", "uid"),
        ("api_version", "apiVersion"),
        ("downward_api", "downwardAPI"),
        ("fs_group", "fsGroup"),
        ("continue_", "continue"),
        ("external_ips", "externalIPs"),
        ("cluster_ip", "clusterIP"),
        ("pod_cidr", "podCIDR"),
        ("fields_v1", "fieldsV1"),
    ],
)
def test_json_names_are_go_s(attribute: str, name: str) -> None:
    assert json_name(attribute) == name


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_record_is_frozen_keyword_only_and_has_defaults(record: type[Record]) -> None:
    config = record.__struct_config__
    assert config.frozen
    assert config.omit_defaults
    assert v1.from_dict(record, v1.to_dict(record())) == record()
    assert [json_name(name) for name in record.__struct_fields__] == list(record.__struct_encode_fields__)
    with pytest.raises(TypeError):
        record("positional")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"spec": {"containers": [{"image": 5}]}}, "$.spec.containers[0].image"),
        ({"spec": {"hostPID": "yes"}}, "$.spec.hostPID"),
        ({"spec": {"priority": 1 << 31}}, "$.spec.priority"),
        ({"spec": {"terminationGracePeriodSeconds": -(1 << 63) - 1}}, "$.spec.terminationGracePeriodSeconds"),
        ({"metadata": {"labels": {"a": 1}}}, "$.metadata.labels[...]"),
    ],
)
def test_a_wrong_type_names_its_path(wrong: dict[str, Any], path: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        v1.from_dict(v1.Pod, wrong)
    assert path in str(raised.value)


def test_image_volume_status_of_a_server_is_kept() -> None:
    mount = {"name": "v", "mountPath": "/v", "volumeStatus": {"image": {"imageRef": "registry.test/a@sha256:0"}}}
    pod = v1.from_dict(v1.Pod, {"status": {"containerStatuses": [{"name": "c", "volumeMounts": [mount]}]}})
    assert v1.to_dict(pod)["status"]["containerStatuses"][0]["volumeMounts"] == [mount]


def test_a_secret_does_not_print_its_data() -> None:
    assert "aGk=" not in repr(v1.Secret(data={"password": "aGk="}))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_record_survives_the_round_trip(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(RECORDS.values())))
    plain = data.draw(_plain(kind, depth=3))
    once = v1.to_dict(v1.from_dict(kind, plain))
    assert v1.to_dict(v1.from_dict(kind, once)) == once
    assert json.loads(v1.to_json(v1.from_dict(kind, plain))) == once
    assert _without_empty(plain).items() <= _without_empty(once).items()


def _without_empty(plain: dict[str, Any]) -> dict[str, str]:
    """Without what a record may leave out: empty text and the number 0."""
    scalars = ((key, value) for key, value in plain.items() if isinstance(value, int | str))
    return {key: repr(value) for key, value in scalars if value != "" and (isinstance(value, bool) or value != 0)}


def _plain(kind: type[Record], depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Strategy of JSON mappings for a record: every field present or absent, nested to `depth`."""
    fields = {field.encode_name: _plain_value(field.type, depth) for field in msgspec.structs.fields(kind)}
    return st.fixed_dictionaries({}, optional=fields)


def _plain_value(annotation: Any, depth: int) -> st.SearchStrategy[Any]:
    described = msgspec.inspect.type_info(annotation)
    return _described(described, depth)


def _described(described: Any, depth: int) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one return per kind of type
    match described:
        case msgspec.inspect.UnionType():
            return st.one_of([_described(one, depth) for one in described.types if one != msgspec.inspect.NoneType()])
        case msgspec.inspect.StructType():
            return _plain(described.cls, depth - 1) if depth else st.just({})
        case msgspec.inspect.VarTupleType():
            return st.lists(_described(described.item_type, depth), max_size=2) if depth else st.just([])
        case msgspec.inspect.DictType():
            return st.dictionaries(st.text(max_size=3), _described(described.value_type, depth), max_size=2)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return st.integers(described.ge, described.le)  # each has Go's bounds
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case _:
            return st.text(max_size=5)
