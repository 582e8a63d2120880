"""Every field has one verdict, the page in etc/ is current, and effective fields have an effect."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proto.agent.settings import Settings
from supervisor.config.kubeletconfig import defaults, fields
from supervisor.config.kubeletconfig.loading import parse
from supervisor.config.kubeletconfig.mapping import EFFECTIVE
from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.kubeletconfig.typed.decode import decode
from supervisor.config.kubeletconfig.typed.types import API_VERSION, KIND, KubeletConfiguration
from supervisor.config.kubeletconfig.verdicts import ASKS_NOTHING
from tests.kubeletconfig.samples import EVERY, EXCLUDED_FROM_EVERY, KUBEADM

ROOT = Path(__file__).parents[3]


def of(text: str) -> KubeletConfiguration:
    loaded = parse("f", text.encode())
    assert not loaded.errors
    return defaults.apply(loaded.config)


def settings_of(cores: int | None = None, **written: Any) -> Settings:
    config, problems = decode({"apiVersion": API_VERSION, "kind": KIND, **written})
    assert not problems
    return fields.to_settings(defaults.apply(config), Settings(run_dir="/r", root_dir="/k"), cores)


def test_every_field_has_one_verdict_with_a_reason() -> None:
    found = fields.verdicts()
    assert set(found) == set(schema.leaves())
    assert all(verdict.why for verdict in found.values())
    assert {verdict.kind for verdict in found.values()} == {"effective", "accepted without effect", "rejected"}


def test_the_table_is_current() -> None:
    current = fields.PATH.read_text(encoding="utf-8")
    assert current == fields.markdown(), "run python -m supervisor.config.kubeletconfig.fields"


@pytest.mark.parametrize("path", EFFECTIVE)
def test_effective_field_changes_a_setting_of_its_actors(path: str) -> None:
    attribute, used_by = EFFECTIVE[path].attribute, EFFECTIVE[path].used_by.split(";")[0]
    assert attribute in {field.name for field in msgspec.structs.fields(Settings)}
    if used_by == "every process":
        assert f"settings.{attribute}" in (ROOT / "actors/_base/process/child.py").read_text()
        return
    shared = "".join(file.read_text() for file in (ROOT / "actors").glob("_*/**/*.py"))
    for actor in used_by.split(", "):
        own = "".join(file.read_text() for file in (ROOT / "actors" / actor).rglob("*.py"))
        assert own, f"there is no actor {actor}"
        assert f".{attribute}" in own + shared, f"{actor} does not read {attribute}"


def test_defaults_change_no_setting() -> None:
    assert settings_of() == Settings(run_dir="/r", root_dir="/k")


def test_every_effective_field_reaches_its_setting() -> None:
    base, config = Settings(), of(EVERY)
    mapped = fields.to_settings(config, base, cores=1)
    attributes = {path: effect.attribute for path, effect in EFFECTIVE.items()}
    same = {path for path, name in attributes.items() if getattr(mapped, name) == getattr(base, name)}
    assert same == {
        "cgroupRoot",
        "cgroupsPerQOS",
        "enableSystemLogHandler",
        "logging.format",
        "reservedSystemCPUs",
    }  # which other fields of the example hold at their defaults
    assert mapped.sync_frequency_s == 90.0
    assert mapped.cpu_cfs_quota_period_us == 50_000
    assert mapped.crash_loop_max_back_off_s == 100.0
    assert mapped.eviction_hard == config.eviction_hard
    assert mapped.eviction_hard["memory.available"] == "1.5Gi"
    assert mapped.cluster_dns == ("10.96.0.11", "fd00::10")


def back_off(longest: str) -> dict[str, Any]:
    return {"crashLoopBackOff": {"maxContainerRestartPeriod": longest}}


REDUCED = {"featureGates": {"ReduceDefaultCrashLoopBackOffDecay": True}}
"""KubeletCrashLoopBackOffMax is on by default, and its maximum of 300 s counts."""
ONLY_REDUCED = {"featureGates": {"ReduceDefaultCrashLoopBackOffDecay": True, "KubeletCrashLoopBackOffMax": False}}


@pytest.mark.parametrize(
    ("written", "attribute", "expected"),
    [
        ({"podsPerCore": 10}, "max_pods", 20),
        ({"podsPerCore": 100}, "max_pods", 110),
        (back_off("2s"), "crash_loop_initial_back_off_s", 2.0),
        (back_off("60s"), "crash_loop_initial_back_off_s", 10.0),
        ({"featureGates": {"KubeletCrashLoopBackOffMax": False}}, "crash_loop_max_back_off_s", 300.0),
        (REDUCED, "crash_loop_initial_back_off_s", 1.0),
        (REDUCED, "crash_loop_max_back_off_s", 300.0),
        (ONLY_REDUCED, "crash_loop_initial_back_off_s", 1.0),
        (ONLY_REDUCED, "crash_loop_max_back_off_s", 60.0),
        (REDUCED | back_off("20s"), "crash_loop_initial_back_off_s", 1.0),
        (REDUCED | back_off("20s"), "crash_loop_max_back_off_s", 20.0),
        ({"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock"}, "container_runtime_endpoint", ""),
        ({"containerRuntimeEndpoint": "unix:///x.sock"}, "container_runtime_endpoint", "unix:///x.sock"),
        ({"logging": {"verbosity": 0}}, "verbosity", 2),
        ({"logging": {"verbosity": 5}}, "verbosity", 5),
        ({"cgroupRoot": "/kube"}, "cgroup_root", "/kube"),
        ({"featureGates": {"AllowDNSOnlyNodeCSR": True}}, "dns_only_serving_certificate", True),
        ({"featureGates": {"PodLogsQuerySplitStreams": True}}, "split_log_streams", True),
        ({}, "split_log_streams", False),
        ({"featureGates": {"AllowParsingUserUIDFromCertAuth": False}}, "user_uid_of_certificate", False),
        ({"featureGates": {"ClientsAllowCARotation": False}}, "follow_api_authority", False),
        ({"featureGates": {"TaintTolerationComparisonOperators": True}}, "compare_taint_values", True),
        ({"featureGates": {"ImageVolumeWithDigest": True}}, "image_volume_digests", True),
        ({"featureGates": {"RuntimeClassInImageCriApi": True}}, "images_by_handler", True),
        ({"featureGates": {"KubeletRegistrationGetOnExistsOnly": True}}, "create_node_first", True),
        ({"featureGates": {"ChangeContainerStatusOnKubeletRestart": True}}, "reset_readiness_at_start", True),
        ({"featureGates": {"UserNamespacesHostNetworkSupport": True}}, "users_on_host_network", True),
        ({"tlsCurvePreferences": [29, 23]}, "tls_curve_preferences", (29, 23)),
        ({}, "tls_curve_preferences", ()),
        ({"featureGates": {"GracefulNodeShutdownBasedOnPodPriority": False}}, "keep_shutdown_times", False),
        ({"maxParallelImagePulls": 3}, "serialize_image_pulls", False),
        ({"evictionHard": {}}, "eviction_hard", {}),
        ({"resolvConf": ""}, "resolv_conf", ""),
    ],
)
def test_converted_fields_have_the_right_value(written: dict[str, Any], attribute: str, expected: Any) -> None:
    assert getattr(settings_of(cores=2, **written), attribute) == expected


def test_settings_without_a_field_stay_unchanged() -> None:
    base = Settings(run_dir="/a", node_name="n", container_gc_max_containers=5, extra={"x": 1})
    mapped = fields.to_settings(of(EVERY), base)
    for attribute in ("run_dir", "root_dir", "node_name", "container_gc_max_containers", "extra", "heartbeat_period_s"):
        assert getattr(mapped, attribute) == getattr(base, attribute)


def test_ineffective_field_is_warned_of_once_when_set() -> None:
    assert fields.without_effect(defaults.default()) == []
    warned = [problem.field for problem in fields.without_effect(of(EVERY))]
    no_effect = {path for path, verdict in fields.verdicts().items() if verdict.kind == "accepted without effect"}
    assert set(warned) == no_effect - EXCLUDED_FROM_EVERY - set(ASKS_NOTHING)
    assert len(warned) == len(set(warned))


def test_ineffective_fields_of_kubeadm_are_warned_of() -> None:
    assert [str(problem) for problem in fields.without_effect(of(KUBEADM))] == []


def test_defaults_load_neither_yaml_nor_api_types() -> None:
    code = """
import sys
from proto.agent.settings import Settings
from supervisor.config.kubeletconfig import defaults, fields, validation
config = defaults.default()
assert not validation.validate(config) and not validation.warnings(config) and not fields.without_effect(config)
fields.to_settings(config, Settings())
print([name for name in ("yaml", "proto.v1", "difflib", "grpc", "pykka", "zmq") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
