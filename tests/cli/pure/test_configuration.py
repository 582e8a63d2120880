"""The precedence of flags, drop-ins, file and defaults for every flag, and the errors of invalid files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from proto.agent.settings import Settings
from supervisor.config.configuration import Effective, assemble, drop_ins
from supervisor.config.flags import parser, table
from supervisor.config.kubeletconfig import defaults
from supervisor.config.kubeletconfig.mapping import to_settings
from supervisor.config.kubeletconfig.problems import ConfigurationError
from supervisor.config.kubeletconfig.typed import encode

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
TEXT = yaml.safe_dump(HEAD)


def nested(field: str, value: Any) -> dict[str, Any]:
    """{a: {b: value}} for a.b."""
    for name in reversed(field.split(".")):
        value = {name: value}
    return dict(value)


class Files:
    """A --config file and a --config-dir."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "config.yaml"
        self.dir = directory / "config.d"
        self.dir.mkdir()

    def write(self, path: Path, content: dict[str, Any] | str) -> Path:
        path.parent.mkdir(exist_ok=True, parents=True)
        text = content if isinstance(content, str) else yaml.safe_dump(HEAD | content, sort_keys=False)
        path.write_text(text)
        return path

    def assemble(self, *flags: str) -> Effective:
        config = str(self.config) if os.path.lexists(self.config) else ""
        return assemble(parser.parse(flags).by_field(), config, str(self.dir))

    def errors(self, *flags: str) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            self.assemble(*flags)
        return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# Precedence, for every flag, by its type: the file's value, the drop-in's, the flag's text; and what is in force with
# the drop-in over the file, and with the flag over both.

A_MAP = ({"a": "1", "b": "2"}, {"b": "3"}, "c=4", {"a": "1", "b": "3"}, {"c": "4"})
A_LIST = (["a", "b"], ["c"], "d,e", ["c"], ["d", "e"])
A_NUMBER = (61, 62, "63", 62, 63)
ROWS: dict[str, tuple[Any, Any, str, Any, Any]] = {
    "string": ("/a", "/b", "/c", "/b", "/c"),
    "int32": A_NUMBER,
    "int64": A_NUMBER,
    "Level": A_NUMBER,
    "duration": ("61s", "62s", "63s", "1m2s", "1m3s"),
    "quantity": ("1Mi", "2Mi", "3Mi", "2Mi", "3Mi"),
    "ip": ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.3"),
    "stringSlice": A_LIST,
    "mapStringString": A_MAP,
    "mapStringStringNoSplit": A_MAP,
    "langleMap": ({"a.b": "1", "c": "2"}, {"c": "3"}, "d<4", {"a.b": "1", "c": "3"}, {"d": "4"}),
    "mapStringBool": (
        {"NodeSwap": False, "MemoryQoS": True},
        {"MemoryQoS": False},
        "KubeletPSI=true,NodeSwap=true",
        {"NodeSwap": False, "MemoryQoS": False},
        {"NodeSwap": True, "MemoryQoS": False, "KubeletPSI": True},
    ),
    "colonSeparatedMultimapStringString": (
        {"A": ["1"], "B": ["2"]}, {"B": ["3", "4"]}, "C:5", {"A": ["1"], "B": ["3", "4"]}, {"C": ["5"]},
    ),
    "[]v1.Taint": (
        [{"key": "a", "value": "", "effect": "NoSchedule"}], [{"key": "b", "value": "x", "effect": "NoExecute"}],
        "c=d:NoSchedule",
        [{"key": "b", "value": "x", "effect": "NoExecute"}], [{"key": "c", "value": "d", "effect": "NoSchedule"}],
    ),
    "reserved-memory": (
        [{"numaNode": 0, "limits": {"memory": "1Gi"}}], [{"numaNode": 1, "limits": {"memory": "2Gi"}}],
        "2:memory=3Gi",
        [{"numaNode": 1, "limits": {"memory": "2Gi"}}], [{"numaNode": 2, "limits": {"memory": "3Gi"}}],
    ),
    "pattern=N,...": (
        [{"filePattern": "a", "verbosity": 1}], [{"filePattern": "b", "verbosity": 2}], "c=3",
        [{"filePattern": "b", "verbosity": 2}],
        [{"filePattern": "b", "verbosity": 2}, {"filePattern": "c", "verbosity": 3}],
    ),
}  # fmt: skip
ADDED = ("featureGates", "logging.vmodule")
"""Fields to whose value in the files a flag adds, as in the kubelet. Other flags replace it."""


def row(flag: table.Flag) -> tuple[Any, Any, str, Any, Any]:
    if flag.kind.name != "bool":
        return ROWS[flag.kind.name]
    default = bool(encode.leaf(defaults.default(), flag.field))
    return (not default, default, str(not default).lower(), default, not default)


FLAGS = [flag for flag in table.flags().values() if flag.field]


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_flag_wins_over_drop_in_over_file_over_default(
    files: Files, monkeypatch: pytest.MonkeyPatch, flag: table.Flag
) -> None:
    monkeypatch.setattr("supervisor.config.kubeletconfig.validation.validate", lambda _: [])
    in_file, in_drop_in, text, merged, forced = row(flag)

    def in_force(*flags: str) -> Any:
        value = encode.plain(files.assemble(*flags).config, mask=False)
        for name in flag.field.split("."):
            value = value.get(name, {} if name != flag.field.rpartition(".")[2] else False)
        if isinstance(value, dict) and flag.name == "eviction-hard":
            return {signal: limit for signal, limit in value.items() if signal in "a.b c d"}
        return value

    default = in_force()
    argument = f"--{flag.name}={text}"
    adds = flag.field in ADDED
    assert in_force(argument) == forced or adds
    files.write(files.config, nested(flag.field, in_file))
    assert in_force() == ("1m1s" if in_file == "61s" else in_file) != default
    assert in_force(argument) == forced or adds
    files.write(files.dir / "10.conf", nested(flag.field, in_drop_in))
    assert in_force() == merged
    assert in_force(argument) == forced


def test_zero_is_zero_in_a_flag_and_the_default_in_a_file(files: Files) -> None:
    files.write(files.config, {"imageMinimumGCAge": "0s", "syncFrequency": "0s"})
    config = files.assemble("--minimum-image-ttl-duration=0s").config
    assert (config.image_minimum_gc_age, config.sync_frequency) == (0, 60_000_000_000)


def test_seccomp_default_is_on_by_flag_or_field(files: Files) -> None:
    files.write(files.config, {"seccompDefault": True})
    assert files.assemble("--seccomp-default=false").config.seccomp_default is True
    assert files.assemble().source("seccompDefault") is not None


def test_null_in_a_drop_in_restores_the_default(files: Files) -> None:
    files.write(files.config, {"maxPods": 20, "authentication": {"webhook": {"cacheTTL": "7s"}}})
    files.write(files.dir / "1.conf", {"maxPods": None, "authentication": None})
    effective = files.assemble()
    assert (effective.config.max_pods, effective.source("maxPods")) == (110, None)
    assert effective.config.authentication == defaults.default().authentication


@pytest.mark.parametrize(
    ("in_file", "in_drop_in", "field", "expected"),
    [
        ({}, {"nodeStatusUpdateFrequency": "7s"}, "nodeStatusReportFrequency", "5m0s"),
        ({"nodeStatusUpdateFrequency": "7s"}, {}, "nodeStatusReportFrequency", "7s"),
        ({"nodeStatusUpdateFrequency": "7s"}, {"nodeStatusUpdateFrequency": "8s"}, "nodeStatusReportFrequency", "7s"),
        ({"nodeStatusReportFrequency": "0s"}, {"nodeStatusUpdateFrequency": "8s"}, "nodeStatusReportFrequency", "5m0s"),
        ({}, {"nodeStatusReportFrequency": None}, "nodeStatusReportFrequency", "10s"),
        ({"maxParallelImagePulls": 5}, {"maxParallelImagePulls": 1}, "serializeImagePulls", False),
        ({}, {"serializeImagePulls": False, "maxParallelImagePulls": 5}, "maxParallelImagePulls", 5),
    ],
)
def test_default_that_depends_on_a_field_is_set_before_drop_ins(
    files: Files, in_file: dict[str, Any], in_drop_in: dict[str, Any], field: str, expected: Any
) -> None:
    files.write(files.config, in_file)
    files.write(files.dir / "1.conf", in_drop_in)
    effective = files.assemble()
    assert encode.leaf(effective.config, field) == expected
    assert field in in_drop_in or effective.source(field) is None


def test_drop_in_without_a_file_finds_the_defaults(files: Files) -> None:
    files.write(files.dir / "1.conf", {"nodeStatusUpdateFrequency": "7s"})
    effective = files.assemble()
    assert encode.leaf(effective.config, "nodeStatusReportFrequency") == "5m0s"
    assert set(effective.sources) == {"nodeStatusUpdateFrequency"}


def test_parallel_pulls_of_a_drop_in_need_its_serialize_image_pulls(files: Files) -> None:
    files.write(files.config, {})
    files.write(files.dir / "1.conf", {"maxParallelImagePulls": 5})
    (error,) = files.errors()
    assert "1.conf:3: maxParallelImagePulls: must not be larger than 1 unless serializeImagePulls is false" in error


def test_drop_in_may_switch_off_the_gate_of_a_default(files: Files) -> None:
    files.write(files.config, {})
    files.write(files.dir / "1.conf", {"featureGates": {"KubeletCrashLoopBackOffMax": False}})
    assert encode.leaf(files.assemble().config, "crashLoopBackOff.maxContainerRestartPeriod") is None


def test_structs_merge_field_by_field(files: Files) -> None:
    files.write(files.config, {"authentication": {"anonymous": {"enabled": True}, "webhook": {"cacheTTL": "7s"}}})
    files.write(files.dir / "1.conf", {"authentication": {"webhook": {"enabled": False}}})
    found = files.assemble("--client-ca-file=/ca").config.authentication
    assert (found.anonymous.enabled, found.webhook.enabled, found.webhook.cache_ttl) == (True, False, 7_000_000_000)
    assert found.x509.client_ca_file == "/ca"


# Eviction thresholds


@pytest.mark.parametrize(
    ("in_file", "in_drop_in", "expected"),
    [
        ({}, {}, {"memory.available": "100Mi", "nodefs.available": "10%"}),
        ({"evictionHard": {"memory.available": "1Gi"}}, {}, {"memory.available": "1Gi", "nodefs.available": None}),
        ({}, {"evictionHard": {"memory.available": "1Gi"}}, {"memory.available": "1Gi", "nodefs.available": "10%"}),
        (
            {"evictionHard": {"nodefs.available": "7%"}},
            {"evictionHard": {"memory.available": "1Gi"}},
            {"memory.available": "1Gi", "nodefs.available": "7%", "imagefs.available": None},
        ),
        (
            {"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": True},
            {},
            {"memory.available": "1Gi", "nodefs.available": "10%"},
        ),
    ],
)
def test_eviction_thresholds(
    files: Files, in_file: dict[str, Any], in_drop_in: dict[str, Any], expected: dict[str, str | None]
) -> None:
    files.write(files.config, in_file)
    files.write(files.dir / "1.conf", in_drop_in)
    hard = files.assemble().config.eviction_hard or {}
    assert {signal: hard.get(signal) for signal in expected} == expected


# Sources


def test_every_value_has_its_source(files: Files) -> None:
    files.write(files.config, {"maxPods": 20, "evictionHard": {"memory.available": "1Gi", "nodefs.available": "5%"}})
    files.write(files.dir / "10.conf", {"evictionHard": {"nodefs.available": "6%"}, "clusterDNS": ["10.0.0.1"]})
    origins = files.assemble("--cluster-domain=a.b", "--feature-gates=NodeSwap=true").origins()
    assert {field: os.path.basename(origin) for field, origin in origins.items()} == {
        "maxPods": "config.yaml:3",
        "evictionHard": "10.conf:3",
        "evictionHard[memory.available]": "config.yaml:5",
        "evictionHard[nodefs.available]": "10.conf:4",
        "clusterDNS": "10.conf:5",
        "clusterDNS[0]": "10.conf:6",
        "clusterDomain": "--cluster-domain",
        "featureGates": "--feature-gates",
        "featureGates.NodeSwap": "--feature-gates",
    }


def test_replaced_list_leaves_no_source_of_the_old(files: Files) -> None:
    files.write(files.config, {"clusterDNS": ["10.0.0.1", "10.0.0.2"]})
    files.write(files.dir / "1.conf", {"clusterDNS": ["10.0.0.3"]})
    effective = files.assemble()
    assert effective.config.cluster_dns == ("10.0.0.3",)
    assert "clusterDNS[1]" not in effective.sources


def test_replaced_list_is_warned_of(files: Files) -> None:
    files.write(files.config, {"clusterDNS": ["10.0.0.1"], "maxPods": 5, "evictionHard": {"memory.available": "1Gi"}})
    files.write(files.dir / "1.conf", {"clusterDNS": ["10.0.0.2"], "maxPods": 6})
    files.write(files.dir / "2.conf", {"clusterDNS": ["10.0.0.2"]})
    effective = files.assemble("--cluster-dns=10.0.0.3", "--eviction-hard=nodefs.available<5%", "--max-pods=7")
    assert effective.config.cluster_dns == ("10.0.0.3",)
    assert [note.replace(f"{files.config.parent}/", "") for note in effective.notes] == [
        "config.d/1.conf:3: clusterDNS: replaces the value of config.yaml:3",
        "--cluster-dns: clusterDNS: replaces the value of config.d/2.conf:3",
        "--eviction-hard: evictionHard: replaces the value of config.yaml:6",
    ]


# Drop-in directories


def test_drop_ins_are_ordered_lexically_across_directories(tmp_path: Path) -> None:
    for name in ("20.conf", "10.conf", "9.conf", "15/b.conf", "15/a.conf", "..data/x.conf", "note.txt", "15/n.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names, others = drop_ins(str(tmp_path))
    assert [os.path.relpath(name, tmp_path) for name in names] == [
        "10.conf", "15/a.conf", "15/b.conf", "20.conf", "9.conf",
    ]  # fmt: skip
    assert [os.path.relpath(name, tmp_path) for name in others] == ["15/n.yaml", "note.txt"]


def test_drop_in_without_conf_suffix_is_ignored_with_a_note(files: Files) -> None:
    files.write(files.dir / "10.yaml", "nonsense: [")
    effective = files.assemble()
    assert effective.config == defaults_with_thresholds()
    assert effective.notes == (f"{files.dir}/10.yaml: ignored, a drop-in has to end in .conf",)


def defaults_with_thresholds() -> Any:
    return assemble({}).config


def test_swapped_configmap_volume_is_read_as_one_version(files: Files) -> None:
    for version, pods in (("..1", 20), ("..2", 30)):
        files.write(files.dir / version / "10.conf", {"maxPods": pods})
    (files.dir / "..data").symlink_to("..1")
    (files.dir / "10.conf").symlink_to("..data/10.conf")
    assert files.assemble().config.max_pods == 20
    (files.dir / "..next").symlink_to("..2")
    (files.dir / "..next").rename(files.dir / "..data")
    assert files.assemble().config.max_pods == 30


# All errors are reported


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda files: files.write(files.config, "a: ["), "config.yaml:2: not YAML"),
        (lambda files: files.write(files.config, ""), "config.yaml:1: the file is empty"),
        (lambda files: files.config.write_bytes(b"a: \xff\n"), "config.yaml:1: not UTF-8"),
        (lambda files: files.config.symlink_to("/nowhere"), "config.yaml: is a symbolic link without a target"),
        (lambda files: files.config.mkdir(), "config.yaml: is a directory"),
        (lambda files: os.mkfifo(files.config), "config.yaml: is not a regular file"),
        (lambda files: files.write(files.config, {"maxPods": "many"}), "config.yaml:3: maxPods: "),
        (lambda files: files.write(files.config, "kind: Pod\napiVersion: v1\n"), "yaml:1: kind: must be KubeletConf"),
        (lambda files: files.write(files.dir / "1.conf", {"syncFrequency": "soon"}), "1.conf:3: syncFrequency: "),
        (lambda files: files.write(files.dir / "1.conf", {"syncFrequency": "-1s"}), "1.conf:3: syncFrequency: "),
        (lambda files: files.write(files.dir / "1.conf", "maxPods: 1"), "1.conf:1: apiVersion: is missing"),
        (lambda files: (files.dir / "1.conf").mkdir(), None),
        (lambda files: (files.dir / "1.conf").symlink_to(files.dir), "1.conf: is a directory"),
        (lambda files: files.dir.rmdir(), "config.d: cannot be read: No such file or directory; give a directory"),
        (
            lambda files: files.write(files.config, {"imageGCHighThresholdPercent": 101}),
            "config.yaml:3: imageGCHighThresholdPercent: must be between 0 and 100",
        ),
        (
            lambda files: files.write(files.config, {"imageGCLowThresholdPercent": 90}),
            "config.yaml:3: imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent (85), not 90",
        ),
        (lambda files: files.write(files.config, {"evictionHard": {"disk": "1Gi"}}), "config.yaml:4: evictionHard"),
        (lambda files: files.write(files.config, {"clusterDomain": "a b"}), "config.yaml:3: clusterDomain: "),
        (lambda files: files.write(files.config, {"kubeReserved": {"cpu": "lots"}}), "yaml:4: kubeReserved.cpu: "),
        (lambda files: files.write(files.config, {"featureGates": {"NodeSwep": True}}), "Gates.NodeSwep: unrec"),
    ],
    ids=lambda one: one if isinstance(one, str) else None,  # a function's text has its address
)  # fmt: skip
def test_invalid_file_is_reported_with_its_line(
    files: Files, prepare: Callable[[Files], object], message: str | None
) -> None:
    prepare(files)
    if message is None:
        files.assemble()
        return
    errors = files.errors()
    assert any(message in error for error in errors), errors


def test_alias_bomb_is_refused_in_time(files: Files) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    files.write(files.config, "\n".join(lines))
    assert "values; aliases count once for each use" in files.errors()[0]


def test_every_file_with_errors_is_named(files: Files) -> None:
    files.write(files.config, {"maxPods": "x", "syncFrequency": 3})
    files.write(files.dir / "1.conf", {"evictionHard": 5})
    errors = files.errors()
    assert [error.split("/")[-1].split(":")[0] for error in errors] == ["config.yaml", "config.yaml", "1.conf"]


def test_unknown_field_is_noted_in_every_file_and_a_repeated_key_in_the_first(files: Files) -> None:
    files.write(files.config, TEXT + 'maxPod: 1\nmaxPods: 5\nmaxPods: 6\nclusterDNSS: ["10.0.0.1"]\n')
    files.write(files.dir / "1.conf", TEXT + "maxPods: 7\nclusterDNSS: [10.0.0.2]\n")
    effective = files.assemble()
    assert effective.config.max_pods == 7
    assert set(effective.sources) == {"maxPods"}
    assert [note.replace(f"{files.config.parent}/", "") for note in effective.notes] == [
        "config.yaml:3: maxPod: unknown field, did you mean maxPods?",
        "config.yaml:5: maxPods: the key is there twice, first on line 4; the last value counts",
        "config.yaml:6: clusterDNSS: unknown field, did you mean clusterDNS?",
        "config.d/1.conf:4: clusterDNSS: unknown field, did you mean clusterDNS?",
    ]


def test_repeated_key_of_a_drop_in_is_an_error(files: Files) -> None:
    files.write(files.dir / "1.conf", TEXT + "maxPods: 6\nmaxPods: 7\n")
    with pytest.raises(ConfigurationError, match=r"1\.conf:4: maxPods: the key is there twice, first on line 3"):
        files.assemble()


def test_unknown_field_and_repeated_key_are_errors_when_strict(files: Files) -> None:
    files.write(files.config, {"maxPod": 1, "syncFrequency": 3})
    files.write(files.dir / "1.conf", TEXT + "maxPods: 6\nmaxPods: 7\n")
    with pytest.raises(ConfigurationError) as caught:
        assemble({}, str(files.config), str(files.dir), strict=True)
    assert [(problem.field, problem.line) for problem in caught.value.problems] == [
        ("maxPod", 3),
        ("syncFrequency", 4),
        ("maxPods", 4),
    ]


def test_unusable_dns_server_is_noted_with_its_line(files: Files) -> None:
    files.write(files.config, {"clusterDNS": ["x", "010.0.0.1"]})
    effective = files.assemble()
    assert effective.notes == (
        f"{files.config}:4: clusterDNS[0]: 'x' is no IP address such as 10.96.0.10 or fd00::10; left out",
    )
    assert to_settings(effective.config, Settings()).cluster_dns == ("10.0.0.1",)
    assert files.assemble("--cluster-dns=y").notes[-1].startswith("--cluster-dns: clusterDNS[0]: 'y' is no IP address")


def test_every_broken_rule_has_the_winning_source(files: Files) -> None:
    files.write(files.config, {"maxPods": -1, "imageGCLowThresholdPercent": 90})
    files.write(files.dir / "1.conf", {"maxPods": -2})
    errors = files.errors("--cluster-domain=x y", "--sync-frequency=-1s")
    assert any(error.startswith("--cluster-domain: clusterDomain: ") for error in errors)
    assert any(error.startswith("--sync-frequency: syncFrequency: ") for error in errors)
    assert any("1.conf:3: maxPods: " in error for error in errors)
    assert any("config.yaml:4: imageGCLowThresholdPercent: " in error for error in errors)


def test_locked_gate_cannot_be_changed_by_a_flag(files: Files) -> None:
    assert any("locked to true" in error for error in files.errors("--feature-gates=NodeLogQuery=false"))


@pytest.mark.parametrize(
    ("gate", "field"),
    [
        ("KubeletCrashLoopBackOffMax", "crashLoopBackOff.maxContainerRestartPeriod"),
        ("KubeletEnsureSecretPulledImages", "imagePullCredentialsVerificationPolicy"),
        ("AllBeta", "imagePullCredentialsVerificationPolicy"),
    ],
)
def test_gate_off_by_flag_leaves_its_field_without_default(files: Files, gate: str, field: str) -> None:
    files.write(files.config, {})
    config = files.assemble(f"--feature-gates={gate}=false").config
    assert not encode.leaf(config, field)
    assert encode.leaf(files.assemble().config, field)


def test_gate_of_a_file_decides_its_default_and_a_flag_its_rule(files: Files) -> None:
    """As in the kubelet, which sets defaults before the flags are applied to the file."""
    files.write(files.config, {"featureGates": {"KubeletCrashLoopBackOffMax": False}})
    (error,) = files.errors("--feature-gates=KubeletCrashLoopBackOffMax=true")
    assert "maxContainerRestartPeriod: must be set while" in error
    files.write(files.config, {"featureGates": {"KubeletCrashLoopBackOffMax": True}})
    (error,) = files.errors("--feature-gates=KubeletCrashLoopBackOffMax=false")
    assert "maxContainerRestartPeriod: requires feature gate KubeletCrashLoopBackOffMax" in error


def test_gate_without_the_gate_that_it_needs_is_reported_with_its_line(files: Files) -> None:
    files.write(files.config, {"featureGates": {"GracefulNodeShutdown": True}})
    files.write(files.dir / "1.conf", {"featureGates": {"ClusterTrustBundleProjection": True}})
    errors = files.errors("--feature-gates=GracefulNodeShutdown=false")
    assert any(
        error.startswith(f"{files.dir}/1.conf:4: featureGates.ClusterTrustBundleProjection: ") for error in errors
    )
    assert any(error.startswith("--feature-gates: featureGates.GracefulNodeShutdown: ") for error in errors)


def test_paths_are_relative_to_their_file(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(files.config, {"staticPodPath": "manifests", "resolvConf": ""})
    files.write(files.dir / "1.conf", {"podLogsDir": "../logs", "authentication": {"x509": {"clientCAFile": "ca"}}})
    monkeypatch.chdir("/")
    config = files.assemble().config
    assert config.static_pod_path == f"{files.config.parent}/manifests"
    assert config.pod_logs_dir == f"{files.config.parent}/logs"
    assert config.authentication.x509.client_ca_file == f"{files.dir}/ca"
    assert config.resolv_conf == ""


def test_second_document_is_ignored_with_a_note(files: Files) -> None:
    files.write(files.config, TEXT + "maxPods: 5\n---\nmaxPods: 6\n")
    effective = files.assemble()
    assert effective.config.max_pods == 5
    assert any("only the first document" in note for note in effective.notes)
