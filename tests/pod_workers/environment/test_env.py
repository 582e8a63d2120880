"""Environment, expansion and the downward API."""

import time

import pytest

from actors._host.node.downward import NodeFacts, default_limits
from actors.pod_workers.environment.variables import ConfigError, Sources, environment, expand, references
from proto.v1 import Container, Pod
from proto.v1.codec import from_dict


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "a"),
        ("x$(A)y$(B)", "xaybb"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$a"),
        ("$$$$(A)", "$$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("$", "$"),
        ("$(A)$$$(", "a$$("),
        ("$$(A)$$$", "$(A)$$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$(C)", "$(A)"),
        ("", ""),
    ],
)
def test_expansion_is_that_of_kubernetes(text, expanded):
    assert expand(text, {"A": "a", "B": "bb", "C": "$(A)"}) == expanded


def test_open_references_take_no_quadratic_time():
    text = "$(A)" + "$(" * 50_000
    began = time.process_time()
    assert expand(text, {"A": "a"}) == "a" + "$(" * 50_000
    assert references(text) == ("A",)
    assert time.process_time() - began < 1


def container(**fields) -> Container:
    return from_dict(Container, {"name": "c", **fields})


def pod(**fields) -> Pod:
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"app": "web", "a.b/c": "d"},
        "annotations": {"note": 'say "hi"'},
    }
    return from_dict(Pod, {"metadata": metadata, "spec": {"nodeName": "n", "serviceAccountName": "sa", **fields}})


NODE = NodeFacts(name="n", host_ips=("192.0.2.2", "2001:db8::2"), allocatable={"cpu": 2, "memory": "1Gi"})


def of(env: list[dict], sources: Sources | None = None, **fields) -> dict[str, str]:
    sources = sources or Sources(node=NODE, pod_ips=("10.0.0.1", "fd00::1"))
    return environment(pod(), container(env=env, **fields), sources)


def test_a_value_sees_what_was_defined_before_it():
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)$(C)"},
        {"name": "C", "value": "2"},
        {"name": "D", "value": "$(B)$$(C)"},
    ]
    assert of(env) == {"A": "1", "B": "1$(C)", "C": "2", "D": "1$(C)$(C)"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['a.b/c']", "d"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", 'say "hi"'),
        ("metadata.labels", 'a.b/c="d"\napp="web"'),
        ("metadata.annotations", 'note="say \\"hi\\""'),
        ("spec.nodeName", "n"),
        ("spec.host", "n"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "192.0.2.2"),
        ("status.hostIPs", "192.0.2.2,2001:db8::2"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1,fd00::1"),
    ],
)
def test_a_field_of_the_pod(path, value):
    assert of([{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]) == {"X": value}


def test_host_ip_of_a_node_without_one_is_a_config_error():
    for path in ("status.hostIP", "status.hostIPs"):
        with pytest.raises(ConfigError, match="host IP unknown"):
            of([{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}], Sources(node=NodeFacts(name="n")))


def test_an_unknown_field_is_a_config_error():
    with pytest.raises(ConfigError, match=r"unsupported fieldPath: spec\.secret"):
        of([{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.secret"}}}])


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "1"),  # 250m, rounded up
        ("limits.cpu", "1m", "250"),
        ("limits.memory", None, "67108864"),
        ("limits.memory", "1Mi", "64"),
        ("requests.cpu", "1m", "0"),
        ("limits.ephemeral-storage", None, "0"),
        ("limits.cpu", "0", "1"),
    ],
)
def test_a_resource_of_the_container(resource, divisor, value):
    selector = {"resource": resource} | ({"divisor": divisor} if divisor else {})
    resources = {"limits": {"cpu": "250m", "memory": "64Mi"}}
    env = [{"name": "X", "valueFrom": {"resourceFieldRef": selector}}]
    assert of(env, resources=resources) == {"X": value}


def test_a_limit_that_is_not_set_is_what_the_node_has():
    node = {"cpu": 1500, "memory": 1 << 30, "ephemeral-storage": 1 << 40, "hugepages-2Mi": 1 << 21, "pods": 110}
    env = [{"name": name, "valueFrom": {"resourceFieldRef": {"resource": f"limits.{name}"}}} for name in node]
    facts = NodeFacts(allocatable=default_limits(node))
    found = of(env, Sources(node=facts))
    assert found == {
        "cpu": "2",
        "memory": str(1 << 30),
        "ephemeral-storage": str(1 << 40),
        "hugepages-2Mi": "0",
        "pods": "0",
    }


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi"])
def test_limit_of_zero_is_what_the_node_has(name):
    node = {"cpu": 1500, "memory": 1 << 30, "ephemeral-storage": 1 << 40, "hugepages-2Mi": 1 << 21}
    env = [
        {"name": kind, "valueFrom": {"resourceFieldRef": {"resource": f"{kind}.{name}"}}}
        for kind in ("limits", "requests")
    ]
    sources = Sources(node=NodeFacts(allocatable=default_limits(node)))
    zero = of(env, sources, resources={"limits": {name: "0"}, "requests": {name: "0"}})
    assert zero == of(env, sources)
    assert zero["requests"] == "0"
    assert (zero["limits"] == "0") == name.startswith("hugepages")


@pytest.mark.parametrize(
    ("resource", "own", "value"),
    [
        ("limits.cpu", {}, "1500"),
        ("limits.cpu", {"limits": {"cpu": "0"}}, "1500"),
        ("limits.cpu", {"limits": {"cpu": "250m"}}, "250"),
        ("limits.memory", {}, str((64 << 20) * 1000)),
        ("limits.ephemeral-storage", {}, str((1 << 40) * 1000)),
        ("limits.hugepages-2Mi", {}, "0"),
        ("requests.cpu", {}, "0"),
        ("requests.memory", {}, "0"),
    ],
)
def test_limit_that_only_the_pod_has_is_the_pods(resource, own, value):
    node = {"cpu": 8000, "memory": 1 << 30, "ephemeral-storage": 1 << 40}
    amounts = {"cpu": "1500m", "memory": "64Mi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}
    spec = pod(resources={"limits": amounts, "requests": amounts})
    env = [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": "1m"}}}]
    sources = Sources(node=NodeFacts(allocatable=default_limits(node)))
    assert environment(spec, container(env=env, resources=own), sources) == {"X": value}


def test_limit_of_zero_of_the_pod_is_what_the_node_has():
    spec = pod(resources={"limits": {"cpu": "0", "memory": "64Mi"}})
    env = [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]
    assert environment(spec, container(env=env), Sources(node=NODE)) == {"X": "2"}


MAPS = Sources(
    config_map=lambda name: {"b": "2", "a": "$(X)"} if name == "m" else None,
    secret=lambda name: {"k": "hush"} if name == "s" else None,
)


def test_each_key_of_a_map_is_the_name_of_a_variable():
    keys = Sources(config_map=lambda _: {"1.key": "a", "two-words": "b"})
    assert of([], keys, envFrom=[{"configMapRef": {"name": "m"}}]) == {"1.key": "a", "two-words": "b"}


def test_whole_maps_come_first_and_unexpanded():
    env_from = [{"prefix": "M_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}]
    env = [{"name": "k", "value": "$(M_a)-$(k)"}]
    assert of(env, MAPS, envFrom=env_from) == {"M_a": "$(X)", "M_b": "2", "k": "$(X)-hush"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "missing", "key": "k"}}, 'configmap "missing" not found'),
        ({"secretKeyRef": {"name": "missing", "key": "k"}}, 'secret "missing" not found'),
        ({"configMapKeyRef": {"name": "m", "key": "z"}}, "couldn't find key z in ConfigMap ns/m"),
        ({"secretKeyRef": {"name": "s", "key": "z"}}, "couldn't find key z in Secret ns/s"),
    ],
)
def test_what_is_missing_is_a_config_error_unless_optional(source, message):
    with pytest.raises(ConfigError) as error:
        of([{"name": "X", "valueFrom": source}], MAPS)
    assert (str(error.value), error.value.reason) == (message, "CreateContainerConfigError")
    ((kind, selector),) = source.items()
    assert of([{"name": "X", "valueFrom": {kind: selector | {"optional": True}}}], MAPS) == {}


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_a_missing_map_is_a_config_error_unless_optional(kind):
    with pytest.raises(ConfigError, match=f'^{kind.lower()} "missing" not found$'):
        of([], envFrom=[{f"{kind}Ref": {"name": "missing"}}])
    assert of([], envFrom=[{f"{kind}Ref": {"name": "missing", "optional": True}}]) == {}


FILES = Sources(
    file_key=lambda key: {"K": "v"}.get(key.key, ""), services={"A_SERVICE_HOST": "10.0.0.1", "X": "theirs"}
)


def test_a_key_of_a_file():
    def ref(key, **more):
        return {"name": "X", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "f.env", "key": key} | more}}

    assert of([ref("K")], Sources(file_key=FILES.file_key)) == {"X": "v"}
    assert of([ref("Z", optional=True)], Sources(file_key=FILES.file_key)) == {}
    with pytest.raises(ConfigError, match=r'^environment variable key "Z" not found in file "f.env"$'):
        of([ref("Z")], FILES)
    with pytest.raises(ConfigError, match=r'^cannot find the volume "v" referenced by FileKeyRef$'):
        of([ref("K")])


def test_services_come_last_and_can_be_used():
    env = [{"name": "U", "value": "http://$(A_SERVICE_HOST)"}, {"name": "X", "value": "ours"}]
    found = of(env, FILES)
    assert found == {"U": "http://10.0.0.1", "X": "ours", "A_SERVICE_HOST": "10.0.0.1"}
    assert list(found)[-1] == "A_SERVICE_HOST"
