"""Validates a configuration by all rules, and reports all violations together.

The rules are those of the kubelet's validation, and those of later stages of its start: eviction thresholds,
addresses, reserved resources, CPU lists, TLS names. The machine's state is not checked. Sources:
https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ and pkg/kubelet/apis/config/validation of
Kubernetes 1.36.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from supervisor.config.kubeletconfig import feature_gates
from supervisor.config.kubeletconfig.feature_gates import Gates
from supervisor.config.kubeletconfig.problems import MAX_PROBLEMS, Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration
from supervisor.config.kubeletconfig.validation import (
    allocatable,
    choices,
    eviction,
    gated,
    images,
    logs,
    network,
    node,
    numbers,
    resources,
    server,
)

_RULES = (
    numbers.rules,
    choices.rules,
    eviction.rules,
    allocatable.rules,
    network.rules,
    server.rules,
    node.rules,
)
_GATED_RULES = (gated.rules, images.rules, resources.rules, logs.rules)


def validate(config: KubeletConfiguration) -> list[Problem]:
    """The violations of a configuration with defaults (`defaults.apply`). `problems.located` adds file and line."""
    return list(itertools.islice(_violations(config), MAX_PROBLEMS))


def _violations(config: KubeletConfiguration) -> Iterator[Problem]:
    gates = Gates(config.feature_gates or {})
    yield from feature_gates.check(config.feature_gates or {})
    for rules in _RULES:
        yield from rules(config)
    for gated_rules in _GATED_RULES:
        yield from gated_rules(config, gates)


def warnings(config: KubeletConfiguration) -> list[Problem]:
    """Warnings of deprecated, insecure or ineffective values."""
    return [
        *feature_gates.warnings(config.feature_gates or {}),
        *allocatable.warnings(config),
        *eviction.warnings(config),
        *server.warnings(config),
        *network.warnings(config),
    ]
