"""Every rule a configuration must keep, all checked, all violations reported together.

Covers the rules of the kubelet's own validation and what it leaves to later stages of its start: eviction thresholds,
addresses, reserved resources, CPU lists, TLS names. Does not look at the machine. Sources:
https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ and, for what a page does not say, the behaviour
of pkg/kubelet/apis/config/validation of Kubernetes 1.36.
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
    """What is wrong with a configuration that has its defaults (`defaults.apply`); empty if nothing.

    `problems.located` adds file and line.
    """
    return list(itertools.islice(_violations(config), MAX_PROBLEMS))


def _violations(config: KubeletConfiguration) -> Iterator[Problem]:
    gates = Gates(config.feature_gates or {})
    yield from feature_gates.check(config.feature_gates or {})
    for rules in _RULES:
        yield from rules(config)
    for gated_rules in _GATED_RULES:
        yield from gated_rules(config, gates)


def warnings(config: KubeletConfiguration) -> list[Problem]:
    """What works but will not for long, or is hardly meant."""
    return [
        *feature_gates.warnings(config.feature_gates or {}),
        *eviction.warnings(config),
        *server.warnings(config),
    ]
