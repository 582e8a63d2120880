"""Manifests: each error has its file, line and field; no input raises another exception."""

# ruff: noqa: E501 - tables keep one case to a line

import copy
import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.config.pods import manifest
from actors.config.pods.static_pods import Allowed, load
from actors.config.validation.problems import ManifestError
from proto.agent.settings import Settings as AgentSettings
from proto.schema import document
from proto.schema.fieldpath import field_text
from proto.schema.scalars import plain_scalar

HEAD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
GOOD = HEAD + "spec:\n  containers:\n  - name: c\n    image: busybox\n"


def error_of(text: str | bytes) -> ManifestError:
    with pytest.raises(ManifestError) as raised:
        load("/m/a.yaml", text.encode() if isinstance(text, str) else text, "node")
    return raised.value


@pytest.mark.parametrize(
    ("text", "line", "field", "problem"),
    [
        ("", 1, "", "the file is empty"),
        ("# nothing\n", 1, "", "the file is empty"),
        ("a: [", 2, "", "not YAML"),
        ("a:\n\tb: 1", 2, "", "not YAML"),
        ("- 1", 1, "", "must be a mapping with apiVersion, kind and metadata, not a list"),
        ("just text", 1, "", "must be a mapping"),
        (b"a: 1\n\xff", 2, "", "not UTF-8"),
        ("kind: Pod", 1, "apiVersion", "Required value"),
        ("apiVersion: v1\nkind: Deployment", 2, "kind", "must be Pod, not 'Deployment'"),
        ("apiVersion: v1\nkind: PodList", 2, "kind", "a file holds one Pod"),
        ("apiVersion: v2\nkind: Pod", 1, "apiVersion", "must be v1"),
        ("apiVersion: v1\nkind: Pod\nspec: {}", 1, "metadata.name", "Required value"),
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n", 3, "metadata.name", "Required value"),
        (HEAD + "spec: []", 4, "spec", "must be a mapping, not a list"),
        (HEAD + "spec:\n  hostPID: 'yes'", 5, "spec.hostPID", "must be true or false, not text"),
        (GOOD + "    image: again\n", 8, "spec.containers[0].image", "twice, first on line 7"),
        (GOOD + "    args: [1]\n", 8, "spec.containers[0].args[0]", "must be text"),
        (GOOD.replace("busybox", "5"), 7, "spec.containers[0].image", "must be text (in quotes"),
        (HEAD[:25] + "metadata:\n  name: a\n  labels:\n    b: c\n    d: 1\n", 7, "metadata.labels.d", "must be text"),
        (GOOD + "    resources: {limits: {a.b/c: []}}\n", 8, "spec.containers[0].resources.limits[a.b/c]", "must"),
        ("a: &a [*a]", 1, "", "has no anchor before it"),
        ('{"apiVersion": "\\ud800"}', 0, "", "not a character"),
        (GOOD + f"    livenessProbe: {{timeoutSeconds: {1 << 31}}}\n", 8, "spec.containers[0].livenessProbe.timeoutSeconds",
         "must be a whole number <= 2147483647"),
        (GOOD + f"    resources: {{limits: {{cpu: 1, memory: {10**20}}}}}\n", 8, "spec.containers[0].resources.limits.memory",
         "must be a whole number <= 9223372036854775807"),
        ("? [1]\n: 2\n", 1, "", "a key must be text"),
        ("a: !!python/object:os.system x", 1, "", "does not fit"),
        ("a: !custom x", 1, "", "does not fit"),
        ("[" * 100_000, 1, "", "nested deeper"),
        ("{" * 100_000, 1, "", "nested deeper"),
        ('{"apiVersion": "v1", "kind": "Pod",\n "metadata": {"name": "a", "name": "b"}}', 2, "metadata.name", "twice"),
        (HEAD + "spec: {containers: []}", 4, "spec.containers", "Required value"),
        (GOOD.replace("name: c", "name: C_1"), 6, "spec.containers[0].name", "Invalid value: \"C_1\""),
        (GOOD.replace("web", "Web"), 3, "metadata.name", "Invalid value"),
        (GOOD.replace("    image: busybox\n", ""), 6, "spec.containers[0].image", "Required value"),
    ],
)  # fmt: skip
def test_error_names_line_and_field(text: str | bytes, line: int, field: str, problem: str) -> None:
    error = error_of(text)
    assert (error.line, error.field) == (line, field)
    assert problem in error.problem
    assert str(error).startswith(
        f"cannot use manifest /m/a.yaml:{line}: " if line else "cannot use manifest /m/a.yaml: "
    )


def test_all_violations_are_counted_and_the_first_is_named() -> None:
    error = error_of(HEAD + "spec:\n  dnsPolicy: Maybe\n  containers:\n  - name: c\n  - name: c\n    image: i\n")
    assert (error.line, error.field) == (7, "spec.containers[0].image")
    assert len(error.others) == 2
    assert "(and 2 more: line 8: spec.containers[1].name: Duplicate value" in str(error)
    assert 'line 5: spec.dnsPolicy: Unsupported value: "Maybe": supported values: "ClusterFirstWithHostNet"' in str(
        error
    )


def test_static_pod_with_scheduling_gates_is_refused() -> None:
    error = error_of(GOOD + "  schedulingGates:\n  - name: g\n")
    assert error.field == "spec.nodeName"
    assert error.problem == "Forbidden: cannot be set until all schedulingGates have been cleared"


def test_alias_bomb_is_refused_before_it_grows() -> None:
    rows = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "aliases count once for each use" in error_of("\n".join(rows)).problem


def test_file_larger_than_any_pod_is_refused() -> None:
    assert "more than a manifest may have" in error_of(b"#" * (manifest.MAX_BYTES + 1)).problem


def test_unknown_fields_and_further_documents_are_warnings() -> None:
    text = GOOD + "    imagee: x\n    ports:\n    - containerPort: 80\n      hostport: 1\n  zzz: 1\n---\nkind: Other\n"
    warnings = [(one.line, one.field, one.problem) for one in load("/m/a.yaml", text.encode(), "node").warnings]
    assert warnings == [
        (8, "spec.containers[0].imagee", "unknown field, did you mean image?"),
        (11, "spec.containers[0].ports[0].hostport", "unknown field, did you mean hostPort?"),
        (12, "spec.zzz", "unknown field"),
        (13, "", "only the first document of a file is read; put each pod in its own file"),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True), ("off", False), ("~", None), ("", None), ("12:30", "12:30"), ("2026-01-01", "2026-01-01"), ("1e3", 1000.0),
        ("0644", 420), ("0o644", 420), ("0x1F", 31), ("-3", -3), ("1_000", 1000), ("1.5", 1.5), ("08", 8.0), (".inf", ".inf"),
        ("1" * 50, "1" * 50), ("1e999", "1e999"), ("100m", "100m"), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_plain_scalars_are_read_as_kubernetes_does(text: str, value: Any) -> None:
    found = plain_scalar(text)
    assert (found, type(found)) == (value, type(value))


def bomb_of_lists(levels: int = 24) -> str:
    """Each level merges the one before twice, and adds no value of its own."""
    lines = ["a0: &a0 {}"]
    lines += [f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}]}}" for level in range(1, levels)]
    return "\n".join(lines)


def bomb_of_values(levels: int = 40) -> str:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{level}: &a{level} {{k{level}: 1, <<: [*a{level - 1}, *a{level - 1}]}}" for level in range(1, levels)]
    return "\n".join(lines)


def chain(levels: int) -> str:
    return "\n".join(["a0: &a0 {}", *(f"a{level}: &a{level} {{<<: *a{level - 1}}}" for level in range(1, levels))])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (bomb_of_lists(), "as do merge keys"),
        (bomb_of_lists(60), "as do merge keys"),
        (bomb_of_values(), "as do merge keys"),
        (chain(2_000), "merge keys (<<) nested deeper than 64 levels"),
    ],
)
def test_merge_keys_are_counted_and_their_depth_is_bounded(text: str, problem: str) -> None:
    began = time.process_time()
    for read in (document.parse, document.parse_all):
        with pytest.raises(document.DocumentError) as caught:
            read(text.encode(), document.Limits(1 << 20, "a manifest", "a Pod"))
        assert problem in caught.value.problem
    assert time.process_time() - began < 10


def test_anchors_and_merge_keys_work() -> None:
    text = HEAD + "spec:\n  containers:\n  - &c\n    name: c\n    image: i\n  - <<: *c\n    name: d\n"
    pod = manifest.read("/m/a.yaml", text.encode()).pod
    assert [(one.name, one.image) for one in pod.spec.containers] == [("c", "i"), ("d", "i")]


def test_settings_allow_users_on_the_host_network() -> None:
    text = GOOD + "  hostNetwork: true\n  hostUsers: false\n"
    assert "`hostNetwork` must not be set" in str(error_of(text))
    allowed = Allowed.by(AgentSettings(users_on_host_network=True))
    assert load("/m/a.yaml", text.encode(), "node", allowed).pod.spec.host_users is False


def test_json_and_yaml_give_the_same_pod() -> None:
    plain = yaml.safe_load(GOOD)
    for text in (json.dumps(plain), json.dumps(plain, indent="\t"), "  " + json.dumps(plain, indent=1)):
        assert manifest.read("/m/a", text.encode()).pod == manifest.read("/m/a", GOOD.encode()).pod
    plain["metadata"]["annotations"] = {"smile": "\U0001f600", "tab": "a\tb"}
    assert (
        manifest.read("/m/a", json.dumps(plain).encode()).pod.metadata.annotations == plain["metadata"]["annotations"]
    )


def test_null_is_absent() -> None:
    text = GOOD + "    args: null\n    livenessProbe:\n  volumes:\n"
    assert manifest.read("/m/a", text.encode()).pod == manifest.read("/m/a", GOOD.encode()).pod


def test_field_paths_are_in_kubernetes_form() -> None:
    assert field_text(("spec", "containers", 0, "image")) == "spec.containers[0].image"
    assert field_text(("metadata", "labels", "example.com/x")) == "metadata.labels[example.com/x]"


BASE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"a": "b"}},
    "spec": {
        "restartPolicy": "OnFailure",
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "h", "hostPath": {"path": "/x"}}],
        "initContainers": [{"name": "i", "image": "x"}],
        "containers": [
            {
                "name": "c",
                "image": "x",
                "ports": [{"name": "http", "containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": 0.5}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "livenessProbe": {"httpGet": {"port": "http"}},
                "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
            }
        ],
    },
}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([[], {}, [None], {"": 1}, [[]], "..", "\x00", "9" * 300, "1e999", "-1"]),
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, child in children for inner in _paths(child, (*path, key)))]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_paths(BASE)[1:]), JUNK), min_size=1, max_size=3), st.booleans())
def test_mutated_manifest_is_a_pod_or_a_manifest_error(
    changes: list[tuple[tuple[Any, ...], Any]], as_json: bool
) -> None:
    plain = copy.deepcopy(BASE)
    for path, junk in changes:
        holder: Any = plain
        try:
            for part in path[:-1]:
                holder = holder[part]
            holder[path[-1]] = copy.deepcopy(junk)  # else a later change alters what the next example is given
        except (TypeError, IndexError, KeyError):
            continue  # an earlier change removed the place
    text = json.dumps(plain) if as_json else yaml.safe_dump(plain)
    _loads_or_is_an_error(text.encode())


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.binary(max_size=60), st.text(alphabet="{}[]:,-&*<!|>'\"# \n\tab1~?%@", max_size=40).map(str.encode))
)
def test_any_bytes_are_a_pod_or_a_manifest_error(data: bytes) -> None:
    _loads_or_is_an_error(data)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.binary(max_size=3))
def test_damaged_file_is_a_pod_or_a_manifest_error(start: int, length: int, put: bytes) -> None:
    data = GOOD.encode()
    _loads_or_is_an_error(data[:start] + put + data[start + length :])


def _loads_or_is_an_error(data: bytes) -> None:
    try:
        loaded = load("/m/a.yaml", data, "node")
    except ManifestError as error:
        assert error.problem, str(error)  # noqa: PT017 - both ways are right, an error must say something
    else:
        assert loaded.pod.metadata.uid
