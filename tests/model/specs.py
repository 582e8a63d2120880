"""Small pods for the model."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from actors.config.defaulting.defaults import default_pod
from actors.config.pods.static_pods import mark_seen
from proto.v1 import Container, Pod, from_dict, to_json

PROBE = {"exec": {"command": ["probe"]}}
SEEN = "2025-06-15T00:00:00Z"

HOOKS = (
    None,
    {"postStart": {"exec": {"command": ["hook"]}}},
    {"preStop": {"exec": {"command": ["hook"]}}},
    {"preStop": {"sleep": {"seconds": 3}}},
    {"postStart": {"exec": {"command": ["hook"]}}, "preStop": {"sleep": {"seconds": 60}}},
)

_probes = st.fixed_dictionaries(
    {}, optional={"livenessProbe": st.just(PROBE), "readinessProbe": st.just(PROBE), "startupProbe": st.just(PROBE)}
)


@st.composite
def _container(draw: Any, name: str) -> dict[str, Any]:
    hooks = draw(st.sampled_from(HOOKS))
    return {"name": name, "image": "image:1", **({"lifecycle": hooks} if hooks else {}), **draw(_probes)}


@st.composite
def _init(draw: Any, name: str) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"name": name, "image": "image:1"}
    startup = {"startupProbe": PROBE} if draw(st.booleans()) else {}
    return {"name": name, "image": "image:1", "restartPolicy": "Always", **startup}


@st.composite
def specs(draw: Any) -> dict[str, Any]:
    """A PodSpec: up to two init containers, plain or sidecar, one or two main ones, each policy, perhaps a volume."""
    spec: dict[str, Any] = {
        "containers": [draw(_container(name)) for name in "ab"[: draw(st.integers(1, 2))]],
        "initContainers": [draw(_init(name)) for name in "ij"[: draw(st.integers(0, 2))]],
        "restartPolicy": draw(st.sampled_from(["Always", "Always", "OnFailure", "Never"])),
        "terminationGracePeriodSeconds": draw(st.sampled_from([1, 5, 30])),
    }
    if draw(st.booleans()):
        spec["volumes"] = [{"name": "v", "emptyDir": {}}]
    return spec


def is_sidecar(container: Container) -> bool:
    """Return True for an init container that is a sidecar."""
    return container.restart_policy == "Always"


def static_pod(spec: dict[str, Any]) -> Pod:
    """As config makes it from a manifest. Its UID is a hash, so the same spec is the same pod."""
    pod = _pod(spec, "web-node")
    return mark_seen(_with_uid(pod, hashlib.md5(to_json(pod), usedforsecurity=False).hexdigest()), "file", SEEN)


def api_pod(spec: dict[str, Any], number: int) -> Pod:
    """As config makes it from an API object."""
    return mark_seen(_with_uid(_pod(spec, "web"), f"00000000-0000-0000-0000-{number:012}"), "api", SEEN)


def _pod(spec: dict[str, Any], name: str) -> Pod:
    pod = default_pod(from_dict(Pod, {"metadata": {"name": name, "namespace": "default"}, "spec": dict(spec)}))
    return replace(pod, status=replace(pod.status, phase="Pending"))


def _with_uid(pod: Pod, uid: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, uid=uid, generation=1))


def with_deletion(pod: Pod, grace_s: int) -> Pod:
    """As the API has it after a deletion request."""
    metadata = replace(pod.metadata, deletion_timestamp=SEEN, deletion_grace_period_seconds=grace_s)
    return replace(pod, metadata=metadata)


def with_image(pod: Pod, image: str) -> Pod:
    """With another image in its first container, which the API allows."""
    first, *rest = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(first, image=image), *rest)))


def with_phase(pod: Pod, phase: str) -> Pod:
    """With this phase in its status."""
    return replace(pod, status=replace(pod.status, phase=phase))
