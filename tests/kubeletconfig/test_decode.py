"""Decoding of files: all errors together, with line and hint."""

# ruff: noqa: E501 - tables keep one case to a line

import json
import time
from typing import Any

import pytest
import yaml

from supervisor.config.kubeletconfig import defaults, validation
from supervisor.config.kubeletconfig.loading import MAX_BYTES, Loaded, parse
from supervisor.config.kubeletconfig.typed import decode, encode, schema
from supervisor.config.kubeletconfig.typed.scalars import SCALARS
from tests.kubeletconfig.samples import EVERY, HEAD, KUBEADM


def load(text: str | bytes) -> Loaded:
    return parse("kubelet.yaml", text.encode() if isinstance(text, str) else text)


def errors(text: str | bytes) -> list[str]:
    return [str(problem) for problem in load(text).errors]


@pytest.mark.parametrize("text", [KUBEADM, EVERY], ids=["kubeadm", "every field"])
def test_valid_files_are_read_and_written_back_as_they_were(text: str) -> None:
    loaded = load(text)
    assert loaded.errors == ()
    again = decode.decode(encode.plain(loaded.config, mask=False))
    assert again == (loaded.config, [])


def test_every_field_of_the_full_example_is_decoded() -> None:
    loaded = load(EVERY)
    written = yaml.safe_load(EVERY)
    shown = encode.plain(loaded.config, mask=False)
    assert set(shown) == set(written)
    for name in ("evictionHard", "featureGates", "registerWithTaints", "systemReserved", "tlsCurvePreferences"):
        assert shown[name] == written[name]
    assert encode.leaf(loaded.config, "logging.flushFrequency") == "6s"
    assert shown["reservedMemory"] == written["reservedMemory"]


def test_json_is_read_as_yaml_is() -> None:
    text = json.dumps(yaml.safe_load(EVERY), indent=1)
    assert load(text).config == load(EVERY).config
    assert load(text).sources["maxPods"].line > 1


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("syncFrequency", "1h2m3.5s", 3_723_500_000_000),
        ("syncFrequency", "1ns", 1),
        ("cpuCFSQuotaPeriod", "250us", 250_000),
        ("logging.flushFrequency", "5s", 5_000_000_000),
        ("logging.flushFrequency", 5, 5),
        ("maxPods", 1e2, 100),
        ("memoryThrottlingFactor", 1, 1.0),
        ("featureGates", {"A": True}, {"A": True}),
        ("staticPodURLHeader", {"A": ["b"]}, {"A": ("b",)}),
        ("evictionHard", {}, {}),
        ("clusterDNS", [], ()),
        ("reservedMemory", [], ()),
        ("logging.options.json.infoBufferSize", 512, "512"),
    ],
)
def test_single_values_are_converted_exactly(path: str, text: Any, expected: Any) -> None:
    assert decode.convert(path, text) == expected


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("maxPods", "110", "must be a whole number, not '110'"),
        ("maxPods", True, "must be a whole number, not true"),
        ("maxPods", 1.5, "must be a whole number, not 1.5"),
        ("maxPods", 2**31, "must be a whole number from -2147483648 to 2147483647, not 2147483648"),
        ("maxPods", 10**100, "a number of that many digits"),
        ("logging.verbosity", -1, "must be a whole number from 0 to 4294967295, not -1"),
        ("failSwapOn", "yes", "must be true or false, not 'yes'"),
        ("failSwapOn", 1, "must be true or false, not 1"),
        ("clusterDomain", 1, "must be text (in quotes, as it looks like one), not 1"),
        ("clusterDomain", ["a"], "must be text, not a list"),
        ("clusterDNS", "10.96.0.10", "must be a list, not '10.96.0.10'"),
        ("clusterDNS", ["a", None], "[1]: must be text, not nothing"),
        ("evictionHard", ["a"], "must be a mapping, not a list"),
        ("evictionHard", {"memory.available": 100}, "[memory.available]: must be text (in quotes"),
        ("featureGates", {"A": "true"}, "A: must be true or false, not 'true'"),
        ("syncFrequency", 60, "must be a duration such as 10s or 1h30m, not 60; add a unit, as in 30s"),
        ("syncFrequency", "1 minute", "'1 minute' is not a duration"),
        ("syncFrequency", "9999999h", "out of range for a duration"),
        ("memoryThrottlingFactor", "0.9", "must be a number, not '0.9'"),
        ("memoryThrottlingFactor", 10**400, "must be a number, not a number of that many digits"),
        ("logging.options.json.infoBufferSize", "12Q", "'12Q' is not a quantity"),
        ("reservedMemory", [{"numaNode": 0, "limits": {"memory": "much"}}], "'much' is not a quantity"),
        ("reservedMemory", ["a"], "[0]: must be a mapping, not 'a'"),
        ("registerWithTaints", [{"kye": "a"}], "[0].kye: unknown field, did you mean key?"),
    ],
)
def test_wrong_type_is_refused_with_the_expected_type(path: str, value: Any, message: str) -> None:
    with pytest.raises(decode.ConversionError) as raised:
        decode.convert(path, value)
    assert message in str(raised.value)


def test_a_field_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        decode.convert("noSuchField", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + "evictionHard: 5\n", "kubelet.yaml:3: evictionHard: must be a mapping, not 5"),
        (HEAD + "authentication: true\n", "kubelet.yaml:3: authentication: must be a mapping, not true"),
        (HEAD + "clusterDNS: {}\n", "kubelet.yaml:3: clusterDNS: must be a list, not a mapping"),
        (HEAD + "clusterDNS:\n- a\n- 5\n", "kubelet.yaml:5: clusterDNS[1]: must be text (in quotes, as it looks like one), not 5"),
        (HEAD + "\tmaxPods: 5\n", "kubelet.yaml:3: not YAML: found a tab character that violates indentation"),
        (HEAD + "maxPods: [\n", "kubelet.yaml:4: not YAML: did not find expected node content"),
        ("kind: KubeletConfiguration\n", "kubelet.yaml:1: apiVersion: is missing; write apiVersion: kubelet.config.k8s.io/v1beta1"),
        ("apiVersion: kubelet.config.k8s.io/v1beta1\n", "kubelet.yaml:1: kind: is missing; write kind: KubeletConfiguration"),
        (
            HEAD.replace("v1beta1", "v1alpha1"),
            "kubelet.yaml:1: apiVersion: must be kubelet.config.k8s.io/v1beta1, not 'kubelet.config.k8s.io/v1alpha1'",
        ),
        (HEAD.replace("Kubelet", "KubeProxy"), "kubelet.yaml:2: kind: must be KubeletConfiguration, not 'KubeProxyConfiguration'"),
        ("", "kubelet.yaml:1: the file is empty; it must hold a KubeletConfiguration"),
        ("# nothing\n", "kubelet.yaml:1: the file is empty; it must hold a KubeletConfiguration"),
        ("- a\n", "kubelet.yaml:1: must be a mapping with apiVersion kubelet.config.k8s.io/v1beta1 and kind KubeletConfiguration, not a list"),
        ("text", "kubelet.yaml:1: must be a mapping with apiVersion"),
        (b"kind: \xff\n", "kubelet.yaml:1: not UTF-8 text; save the file as UTF-8"),
        (HEAD.encode() + b"clusterDomain: \xe9t\xe9\n", "kubelet.yaml:3: not UTF-8 text; save the file as UTF-8"),
        (b"\xff\xfe" + HEAD.encode("utf-16-le"), "kubelet.yaml:1: not UTF-8 text; save the file as UTF-8"),
        (b"#" * (MAX_BYTES + 1), "kubelet.yaml: 1048577 bytes are more than a configuration may have (1048576)"),
        ("[" * 1000, "kubelet.yaml:1: nested deeper than 64 levels"),
        (HEAD + "evictionHard: &a {b: *a}\n", "kubelet.yaml:3: the alias (*NAME) has no anchor before it; put text that begins with * in quotes"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_with_line_and_field(text: str | bytes, expected: str) -> None:
    found = errors(text)
    assert any(expected in error for error in found), found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + "maxPod: 5\n", "kubelet.yaml:3: maxPod: unknown field, did you mean maxPods?"),
        (HEAD + "max-pods: 5\n", "kubelet.yaml:3: [max-pods]: unknown field, did you mean maxPods?"),
        (HEAD + "MaxPods: 5\n", "kubelet.yaml:3: MaxPods: unknown field, did you mean maxPods?"),
        (HEAD + "somethingElse: 5\n", "kubelet.yaml:3: somethingElse: unknown field"),
        (
            HEAD + "authentication:\n  webhook:\n    cacheTTl: 1s\n",
            "kubelet.yaml:5: authentication.webhook.cacheTTl: unknown field, did you mean cacheTTL?",
        ),
        (
            HEAD + "maxPods: 5\nmaxPods: 6\n",
            "kubelet.yaml:4: maxPods: the key is there twice, first on line 3; the last value counts",
        ),
        (
            HEAD + "evictionHard:\n  memory.available: 1Mi\n  memory.available: 2Mi\n",
            "kubelet.yaml:5: evictionHard[memory.available]: the key is there twice, first on line 4; the last value counts",
        ),
        (
            HEAD + "registerWithTaints: [{kye: a, key: a}]\n",
            "kubelet.yaml:3: registerWithTaints[0].kye: unknown field, did you mean key?",
        ),
        (HEAD + "nope: {maxPods: 6, x: [1]}\n", "kubelet.yaml:3: nope: unknown field"),
        (
            HEAD + "maxPods: many\nmaxPods: 5\n",
            "kubelet.yaml:4: maxPods: the key is there twice, first on line 3; the last value counts",
        ),
        (
            HEAD + "logging: {verbosity: 1}\nmaxPods: 5\nlogging:\n  format: json\n",
            "kubelet.yaml:5: logging: the key is there twice, first on line 3; the last value counts",
        ),
        (
            json.dumps(yaml.safe_load(HEAD))[:-1] + ', "maxPods": 6, "maxPods": 5}',
            "kubelet.yaml:1: maxPods: the key is there twice",
        ),
        (
            json.dumps(yaml.safe_load(HEAD))[:-1] + ', "maxPods": 6, "maxPods": 5, "x": "\\ud83d\\ude00"}',
            "maxPods: the key is there twice",
        ),
    ],
)
def test_unknown_field_or_repeated_key_is_left_out_with_a_warning(text: str, expected: str) -> None:
    """As in the kubelet's lenient decoding, whose JSON is case-sensitive."""
    loaded = load(text)
    assert loaded.errors == ()
    found = [str(problem) for problem in loaded.ignored]
    assert any(expected in warning for warning in found), found
    assert decode.decode(loaded.value) == (loaded.config, [])
    assert not [field for field in loaded.sources if field.startswith("nope") or "kye" in field]


def test_last_value_of_a_repeated_key_counts() -> None:
    loaded = load(HEAD + "logging: {verbosity: 1}\nmaxPods: 5\nlogging:\n  format: json\nmaxPods: 6\n")
    assert (loaded.config.max_pods, loaded.value["maxPods"], loaded.sources["maxPods"].line) == (6, 6, 7)
    assert (loaded.config.logging.verbosity, loaded.sources["logging.format"].line) == (0, 6)
    assert "logging.verbosity" not in loaded.sources


@pytest.mark.parametrize(
    "text", ['{"kind": "KubeletConfiguration", "kind": "x"}', '{"kind": "\\ud83d\\ude00", "kind": "x"}']
)
def test_last_kind_of_a_file_counts(text: str) -> None:
    assert any("kind: must be KubeletConfiguration, not 'x'" in error for error in errors(text))


def test_aliases_of_a_mapping_lose_only_what_is_unknown_there() -> None:
    loaded = load(HEAD + "authentication: {webhook: &w {cacheTTL: 7s}}\nauthorization: {webhook: *w}\n")
    assert [problem.field for problem in loaded.ignored] == ["authorization.webhook.cacheTTL"]
    assert loaded.value["authentication"] == {"webhook": {"cacheTTL": "7s"}}
    assert loaded.value["authorization"] == {"webhook": {}}


def test_tags_build_nothing() -> None:
    assert load(HEAD + "clusterDomain: !!python/name:os.system x\n").errors
    assert load(HEAD + "maxPods: !!int 5\n").config.max_pods == 5


def test_all_errors_are_reported_in_the_order_of_the_file() -> None:
    text = (
        HEAD
        + "maxPods: many\nmaxPods: 5\nsyncFrequency: 5\nnope: 1\nauthentication: {anonymus: {}}\nclusterDNS: [1, 2]\n"
    )
    assert [(problem.line, problem.field) for problem in load(text).problems()] == [
        (4, "maxPods"),
        (5, "syncFrequency"),
        (6, "nope"),
        (7, "authentication.anonymus"),
        (8, "clusterDNS[0]"),
        (8, "clusterDNS[1]"),
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("".join(f"field{n}: 1\n" for n in range(30_000)), 100),
        ("maxPods: 1\n" * 50_000, 100),
        ("featureGates: {" + ", ".join(f"Gate{n}: true" for n in range(40_000)) + "}\n", 0),
        ("clusterDNS: [" + "1," * 90_000 + "]\n", 100),
        ("enforceNodeAllocatable: [" + ",".join(f"a{n}" for n in range(90_000)) + "]\n", 0),
        ("? " + "x" * 500_000 + "\n: 1\n", 1),
    ],
)
def test_huge_file_of_errors_is_read_quickly(text: str, count: int) -> None:
    started = time.process_time()
    loaded = load(HEAD + text)
    found = loaded.problems()
    assert len(found) == count
    assert sum(len(str(error)) for error in found) < 100_000
    if not count:
        problems = validation.validate(defaults.apply(loaded.config))
        assert len(problems) == 100
    assert time.process_time() - started < 10


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (error,) = errors(HEAD + "\n".join(lines))
    assert "more than 100000 values; aliases count once for each use" in error


def test_merge_keys_and_anchors_work() -> None:
    text = HEAD + "evictionHard: &hard {memory.available: 1Mi}\nevictionSoft:\n  <<: *hard\n  pid.available: '5'\n"
    loaded = load(text)
    assert loaded.errors == ()
    assert loaded.config.eviction_soft == {"memory.available": "1Mi", "pid.available": "5"}


def test_null_means_absent() -> None:
    loaded = load(HEAD + "maxPods:\nauthentication: ~\ntracing: null\n")
    assert (loaded.errors, loaded.config) == ((), load(HEAD).config)


def test_further_document_is_ignored_with_a_warning() -> None:
    loaded = load(HEAD + "---\nmaxPods: 5\n")
    assert (loaded.errors, loaded.config.max_pods) == ((), 0)
    assert [str(warning) for warning in loaded.warnings] == [
        "kubelet.yaml:3: only the first document of a file is read; put the others into drop-ins"
    ]


def test_sources_have_file_and_line_of_every_field() -> None:
    sources = load(HEAD + "evictionHard:\n  memory.available: 1Mi\nlogging: {verbosity: 4}\n").sources
    assert {field: str(origin) for field, origin in sources.items() if field[0] in "el"} == {
        "evictionHard": "kubelet.yaml:3",
        "evictionHard[memory.available]": "kubelet.yaml:4",
        "logging": "kubelet.yaml:5",
        "logging.verbosity": "kubelet.yaml:5",
    }


@pytest.mark.parametrize("value", ["secret-token", "{A: secret-token}", "[secret-token]", "{A: [[secret-token]]}"])
def test_header_values_are_not_in_errors(value: str) -> None:
    (error,) = errors(HEAD + f"staticPodURLHeader: {value}\n")
    assert "must be a mapping of header names to lists of text" in error
    assert "secret-token" not in error
    with pytest.raises(decode.ConversionError) as raised:
        decode.convert("staticPodURLHeader", yaml.safe_load(value))
    assert "secret-token" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:s3cret@h/p?q=a@b", "https://<masked>@h/p?q=a@b"),
        ("https://h/p@q", "https://h/p@q"),
        ("https://a@b:s3cret@h", "https://<masked>@h"),
    ],
)
def test_password_of_the_pod_url_is_not_shown(url: str, shown: str) -> None:
    config = load(HEAD + f"staticPodURL: {url}\n").config
    assert encode.plain(config)["staticPodURL"] == shown
    assert encode.secrets(config) == ({"staticPodURL": url} if url != shown else {})


def test_header_values_are_not_shown() -> None:
    config = load(HEAD + "staticPodURLHeader: {Authorization: [secret-token]}\n").config
    assert "secret-token" not in str(encode.plain(config))
    assert encode.plain(config)["staticPodURLHeader"] == {"Authorization": [encode.MASKED]}
    assert encode.secrets(config) == {"staticPodURLHeader": {"Authorization": ["secret-token"]}}


def test_every_scalar_kind_has_a_reader() -> None:
    kinds = {leaf.field.kind.name for leaf in schema.leaves().values()} - {"list", "map"}
    assert kinds <= set(SCALARS)
