"""Parsing of files: objects, problems and warnings."""

# ruff: noqa: E501 - tables keep one case to a line

import base64
from typing import Any

import pytest
import yaml

from actors.objects.parsing.load import load
from actors.objects.parsing.problems import ObjectsError
from proto.pods.objects import ObjectRef

CANARY = "hunter2-canary"


def document(kind: str, name: str = "x", **fields: Any) -> dict[str, Any]:
    versions = {"RuntimeClass": "node.k8s.io/v1", "PriorityClass": "scheduling.k8s.io/v1"}
    return {"apiVersion": versions.get(kind, "v1"), "kind": kind, "metadata": {"name": name}} | fields


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def refs(text: str) -> list[str]:
    return [
        f"{one.object.ref.kind} {one.object.ref.namespace}/{one.object.ref.name}"
        for one in load("/o/a.yaml", text.encode()).objects
    ]


def error_of(text: str | bytes) -> ObjectsError:
    with pytest.raises(ObjectsError) as raised:
        load("/o/a.yaml", text if isinstance(text, bytes) else text.encode())
    return raised.value


def test_every_document_and_every_item_of_a_list_is_an_object() -> None:
    text = yaml.safe_dump_all(
        [
            document("ConfigMap", "a"),
            None,
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": [document("Secret", "b"), document("RuntimeClass", "c", handler="h")],
            },
            {
                "apiVersion": "v1",
                "kind": "SecretList",
                "items": [document("Secret", "d", metadata={"name": "d", "namespace": "ns"})],
            },
            document("PersistentVolume", "e"),
            {"apiVersion": "v1", "kind": "List"},
        ]
    )
    assert refs(text) == [
        "ConfigMap default/a",
        "Secret default/b",
        "RuntimeClass /c",
        "Secret ns/d",
        "PersistentVolume /e",
    ]


def test_json_files_and_json_documents_are_parsed() -> None:
    assert refs('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}') == ["ConfigMap default/a"]
    two = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n'
    assert refs(two) == ["ConfigMap default/a", "Secret default/b"]
    assert refs("") == refs("# nothing\n---\n") == []


def only(fields: dict[str, Any]) -> Any:
    (one,) = load("/o/a.yaml", yaml.safe_dump(fields).encode()).objects
    return one.object


def test_data_is_decoded_and_string_data_wins() -> None:
    secret = only(document("Secret", data={"a": b64("1"), "b": "MQ\n==\n"}, stringData={"a": "2", "c": "ü"}, type="t"))
    assert secret.data == {"a": b"2", "b": b"1", "c": "ü".encode()}
    assert secret.secret_type == "t"
    assert only(document("Secret")).secret_type == "Opaque"
    config_map = only(document("ConfigMap", data={"a": "x"}, binaryData={"b": "/wA="}, immutable=True))
    assert config_map.data == {"a": b"x", "b": b"\xff\x00"}
    assert config_map.binary_keys == ("b",)
    assert config_map.immutable


def test_a_version_is_of_the_content() -> None:
    one, same, other = (only(document("Secret", stringData={"a": value})) for value in ("1", "1", "2"))
    assert one.resource_version == same.resource_version != other.resource_version
    assert only(document("Secret", data={"a": b64("1")})).resource_version == one.resource_version


def test_kinds_without_data_are_documents() -> None:
    service = only(document("Service", spec={"clusterIP": "10.0.0.1", "ports": [{"port": 80, "name": None}]}))
    assert service.document["spec"] == {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}
    assert service.document["metadata"] == {"name": "x", "namespace": "default"}
    assert service.ref == ObjectRef(kind="Service", namespace="default", name="x")


HEAD = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n"

WRONG: list[tuple[str, int, str, str]] = [
    (HEAD + "data: {a: '***'}\n", 4, "data.a", "not base64"),
    (HEAD + "data:\n  a: 'eA=='\n  b/c: 'eA=='\n", 6, "data[b/c]", "a key must be letters"),
    (HEAD + "stringData: {..a: x}\n", 4, "stringData[..a]", "begin with '..'"),
    (HEAD + "stringData: {a: 1}\n", 4, "stringData.a", "must be text"),
    (HEAD + "stringData: {a: {b: c}}\n", 4, "stringData.a", "must be text"),
    (HEAD + "stringData: [a]\n", 4, "stringData", "must be a mapping, not a list"),
    (HEAD + f"stringData: {{a: {'x' * 1024 * 1024}, b: x}}\n", 1, "data", "Too long: 1048577 bytes, may not be more than 1048576 bytes"),
    (HEAD + "type: kubernetes.io/tls\nstringData: {tls.crt: x}\n", 1, "data", "has the key tls.key"),
    (HEAD + "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: x}\n", 1, "data[.dockerconfigjson]", "must be a JSON object"),
    (HEAD + "type: kubernetes.io/basic-auth\n", 1, "data", "username or password"),
    (HEAD + "immutable: soon\n", 4, "immutable", "must be true or false"),
    ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: x}\nbinaryData: {a: eA==}\n", 5, "binaryData.a", "in data too"),
    ("apiVersion: v1\nkind: Secret\nmetadata: {}\n", 3, "metadata.name", "Required value"),
    ("apiVersion: v1\nkind: Secret\nmetadata: {name: A_b}\n", 3, "metadata.name", "must be lower case"),
    ("apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: a.b}\n", 3, "metadata.namespace", "must be lower case"),
    ("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a, namespace: ns}\n", 3, "metadata.namespace", "is in no namespace"),
    ("apiVersion: v1\nkind: Gadget\nmetadata: {name: a}\n", 2, "kind", "Unsupported value: 'Gadget': supported are CSIDriver, ConfigMap, PersistentVolume, PersistentVolumeClaim, PriorityClass, ResourceClaim, RuntimeClass, Secret, Service, VolumeAttachment"),
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", 2, "kind", "pods go into the manifest directory"),
    ("apiVersion: v2\nkind: Secret\nmetadata: {name: a}\n", 1, "apiVersion", "must be v1 for a Secret"),
    ("kind: RuntimeClass\nmetadata: {name: a}\nhandler: h\n", 1, "apiVersion", "must be node.k8s.io/v1 for a RuntimeClass"),
    ("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\n", 1, "handler", "Required value"),
    ("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: 10GB}}\n", 4, "spec.capacity.storage", "is not a quantity"),
    ("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: 1x}}}\n", 4,
     "spec.resources.requests.storage", "is not a quantity"),
    ("- a\n", 1, "", "must be a mapping"),
    ("a: b\n", 1, "kind", "Required value"),
    (HEAD + "---\n" + HEAD, 5, "metadata.name", "Secret default/x is defined twice, first on line 1"),
    (HEAD + "data: {a: x\n", 5, "", "not YAML"),
    ("apiVersion: v1\nkind: List\nitems:\n- kind: Secret\n  apiVersion: v1\n  metadata: {name: B}\n", 6, "items[0].metadata.name", "must be lower case"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "field", "problem"), WRONG, ids=range(len(WRONG)))
def test_problem_has_line_and_field(text: str, line: int, field: str, problem: str) -> None:
    error = error_of(text)
    assert (error.line, error.field) == (line, field)
    assert problem in error.problem
    assert str(error).startswith(f"cannot use objects file /o/a.yaml:{line}: ")


def test_all_problems_of_a_file_are_reported() -> None:
    error = error_of(HEAD + "data: {a: '*'}\n---\nkind: Gadget\n")
    assert error.problem.startswith("Invalid value: not base64")
    assert error.others[0].startswith("line 6: kind: Unsupported value")


@pytest.mark.parametrize(
    "value",
    [
        f"data: {{a: {CANARY}!}}", f"data: {{a: [{CANARY}]}}", f"stringData: {{a: *{CANARY}}}", f"stringData: {{a: !{CANARY} x}}",
        f"stringData: {{a: ! [{CANARY}]}}", f"stringData: {{a: {{{CANARY}: 1}}}}", f"immutable: {CANARY}", f"stringData: {{a: '{CANARY}}}",
        f'stringData: {{a: "{CANARY}\\q"}}', f"stringData: {{a: %{CANARY}}}", f"stringData: {CANARY}", f"type: kubernetes.io/tls\nstringData: {{tls.crt: {CANARY}}}",
        f"stringData: {{a: &{CANARY} [*{CANARY}]}}", f"stringData: {{a: `{CANARY}}}", f"stringData: {{a: @{CANARY}}}", f"stringData:\n  a: |\n {CANARY}\n",
        f"type: kubernetes.io/dockerconfigjson\nstringData: {{.dockerconfigjson: '{{\"auths\": {CANARY}'}}", f"stringData: {{a: !!int {CANARY}}}",
    ],
)  # fmt: skip
def test_problems_never_show_values(value: str) -> None:
    assert CANARY not in str(error_of(HEAD + value + "\n"))


def test_unknown_fields_are_warnings() -> None:
    file = load("/o/a.yaml", (HEAD + "stringdata: {a: x}\n").encode())
    assert file.warnings == ((4, "stringdata", "unknown field, did you mean stringData?"),)
