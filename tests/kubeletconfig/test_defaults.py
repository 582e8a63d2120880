"""Fields, types and defaults are those of Kubernetes 1.36, also defaults that depend on fields."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.config.kubeletconfig import defaults
from supervisor.config.kubeletconfig.typed import encode, schema
from supervisor.config.kubeletconfig.typed.decode import decode
from supervisor.config.kubeletconfig.typed.schema import Kind
from supervisor.config.kubeletconfig.typed.types import API_VERSION, KIND, KubeletConfiguration

FACTS = [
    line.split("\t")
    for line in (Path(__file__).parent / "fields-1.36.txt").read_text().splitlines()
    if not line.startswith("#")
]
# Published, but left out of the facts because their feature gate is alpha.
ALPHA_LOGGING = {
    f"logging.options.{name}.{option}" for name in ("text", "json") for option in ("splitStream", "infoBufferSize")
}
GO_NAMED = {
    "v1.Duration": "duration",
    "v1.TimeOrMetaDuration": "time-or-duration",
    "v1.VerbosityLevel": "uint32",
    "v1.VModuleConfiguration": "list of struct",
    "v1beta1.KubeletAuthorizationMode": "string",
    "v1beta1.ImagePullCredentialsVerificationPolicy": "string",
    "v1beta1.ResourceChangeDetectionStrategy": "string",
    "v1beta1.MemoryReservationPolicy": "string",
}


def kind_of_go(go: str) -> str:
    if go.startswith("[]"):
        return f"list of {kind_of_go(go[2:])}"
    if go.startswith("map[string]"):
        return f"map of {kind_of_go(go.removeprefix('map[string]'))}"
    return GO_NAMED.get(go, "struct" if "." in go else go)


def kind_text(kind: Kind) -> str:
    return f"{kind.name} of {kind_text(kind.item)}" if kind.item else kind.name


def of(**fields: Any) -> KubeletConfiguration:
    config, problems = decode({"apiVersion": API_VERSION, "kind": KIND, **fields})
    assert not problems
    return defaults.apply(config)


def test_the_fields_are_those_of_the_published_type() -> None:
    assert set(schema.leaves()) == {path for path, _, _ in FACTS} | ALPHA_LOGGING


@pytest.mark.parametrize(("path", "go", "default"), FACTS, ids=[fact[0] for fact in FACTS])
def test_type_and_default_are_those_of_kubernetes(path: str, go: str, default: str) -> None:
    assert kind_text(schema.leaves()[path].field.kind) == kind_of_go(go)
    assert encode.leaf(defaults.default(), path) == json.loads(default)


def test_applying_defaults_again_changes_nothing() -> None:
    assert defaults.apply(defaults.default()) == defaults.default()
    assert defaults.changed(defaults.default()) == []


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ({"nodeStatusUpdateFrequency": "7s"}, "nodeStatusReportFrequency", "7s"),
        ({"nodeStatusUpdateFrequency": "7s", "nodeStatusReportFrequency": "1m"}, "nodeStatusReportFrequency", "1m0s"),
        ({"maxParallelImagePulls": 1}, "serializeImagePulls", True),
        ({"maxParallelImagePulls": 2}, "serializeImagePulls", False),
        ({"maxParallelImagePulls": 2, "serializeImagePulls": True}, "serializeImagePulls", True),
        ({"featureGates": {"KubeletCrashLoopBackOffMax": False}}, "crashLoopBackOff.maxContainerRestartPeriod", None),
        ({"featureGates": {"KubeletEnsureSecretPulledImages": False}}, "imagePullCredentialsVerificationPolicy", ""),
        ({"podPidsLimit": -7}, "podPidsLimit", -1),
        ({"podPidsLimit": 0}, "podPidsLimit", 0),
        ({"enforceNodeAllocatable": []}, "enforceNodeAllocatable", []),
        ({"registryPullQPS": 0}, "registryPullQPS", 0),
        ({"registryBurst": 0}, "registryBurst", 10),
        ({"resolvConf": ""}, "resolvConf", ""),
        ({"syncFrequency": "0s"}, "syncFrequency", "1m0s"),
        ({"healthzPort": 0}, "healthzPort", 0),
        ({"maxPods": None}, "maxPods", 110),
    ],
)
def test_explicit_zero_counts_for_go_pointers(fields: dict[str, Any], path: str, expected: Any) -> None:
    assert encode.leaf(of(**fields), path) == expected


def test_explicit_values_stay() -> None:
    config = of(maxPods=7, evictionHard={"memory.available": "1Gi"})
    assert (config.max_pods, config.eviction_hard) == (7, {"memory.available": "1Gi"})
    assert defaults.changed(config) == ["maxPods", "evictionHard"]


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        defaults.default().max_pods = 1  # type: ignore[misc]
    changed = schema.replace(defaults.default(), "tracing.endpoint", "localhost:4317")
    assert changed.tracing is not None
    assert schema.get(changed, "tracing.endpoint") == "localhost:4317"
    assert schema.get(defaults.default(), "tracing.endpoint") is None
    assert msgspec.structs.replace(changed, tracing=None) == defaults.default()
