"""Finds the reason why pods of `supervisor run` are not ready, and the remedy, in one line for all pods.

Pure functions of pods, their events and the time. `command` calls them and shows the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proto.pods.pod_columns import is_ready, seconds_of
from proto.v1 import ContainerStatus, Event, Pod

STARTING_S = 10.0
"""Time for a pod to start, and for a failing probe, before there is advice on it."""
RECENT_S = 300.0
"""Age of an event's last repeat up to which the event counts."""
CAUSE_CHARS = 200
PULLING = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed")
CREATING = ("ContainerCreating", "PodInitializing")
_SAME_AS_ADVICE = re.compile(
    r"pod_workers pod \S+: container \S+: (ErrImage|ImagePull|RegistryUnavailable|CrashLoopBackOff|InvalidImageName)"
)
_REGISTRY = (
    (
        r"x509|certificate",
        "its registry's certificate is not trusted here",
        "have this machine trust its authority, or name another registry",
    ),
    (
        r"cannot reach|name resolution|no such host|connection refused|unreachable|timeout|timed out|deadline exceeded|"
        r"no route to host|code = Unavailable",
        "its registry cannot be reached",
        "connect to the network, or bring the image in: {tool} images import FILE",
    ),
    (
        r"unauthorized|denied|forbidden|authorization|\b401\b|\b403\b",
        "its registry refuses it",
        "correct the image's name, or give the pod imagePullSecrets",
    ),
    (r"toomanyrequests|too many requests|\b429\b", "its registry limits pulls", "wait, or log in to it"),
    (
        r"not found|manifest unknown|name unknown|\b404\b",
        "its registry does not have it",
        "correct the image's name and tag",
    ),
)
"""Pattern in the message of a failed pull, cause, remedy. The first match counts."""


class Obstacle(NamedTuple):
    """The reason why a pod is not ready."""

    pod: str
    what: str
    """The rest of a sentence after the pod's name: cannot ..., because ..."""
    do: str
    """The remedy."""
    about: str = ""
    """Key of pods with the same obstacle, which share a line. Empty: a line of its own."""


class Tool(NamedTuple):
    """The command line of commands for this agent."""

    name: str
    run_dir: str

    def __call__(self, words: str) -> str:
        """The command line of `words`."""
        return f"{self.name} {words} --run-dir {self.run_dir}"


class Advice(NamedTuple):
    """The obstacle of all pods in one sentence, and the remedy."""

    what: str = ""
    do: str = ""

    def line(self) -> str:
        """Both in one line; empty without an obstacle."""
        return f"{self.what}; {self.do}" if self.what else ""


NOTHING = Advice()


def find(pods: Sequence[Pod], events: Sequence[Event], now: float, tool: Tool) -> Advice:
    """Find the obstacle of pods; NOTHING while it is too early to tell. `now` is Unix time."""
    found = [one for one in (_obstacle(pod, _of(pod, events, now), now, tool) for pod in pods) if one is not None]
    if not found:
        return NOTHING
    first = found[0]
    same = [one.pod for one in found if one is first or (first.about and one.about == first.about)]
    others = len(found) - len(same)
    more = f" (and {others} other pod{'s' if others > 1 else ''}: see {tool('events')})" if others else ""
    return Advice(f"{_names(same)} {first.what}", f"{first.do}{more}")


def repeats_advice(warning: str) -> bool:
    """True for a warning in the agent's log that says the same as the advice, for each pod and each retry."""
    return _SAME_AS_ADVICE.match(warning) is not None


def _names(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{len(names)} pods"


def _of(pod: Pod, events: Iterable[Event], now: float) -> list[Event]:
    """The pod's recent events, the latest first."""
    own = [one for one in events if one.involved_object.uid == pod.metadata.uid]
    recent = [one for one in own if _when(one) > now - RECENT_S]
    return sorted(recent, key=_when, reverse=True)


def _when(event: Event) -> float:
    stamp = event.last_timestamp or event.first_timestamp
    return seconds_of(stamp) if stamp else 0.0


def _obstacle(pod: Pod, events: Sequence[Event], now: float, tool: Tool) -> Obstacle | None:
    if is_ready(pod) or pod.status.phase == "Succeeded" or pod.metadata.deletion_timestamp is not None:
        return None
    if pod.status.phase == "Failed":
        return _failed(pod, tool)
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for container in containers:
        if found := _waiting(pod, container, tool) or _ends_again(pod, container, tool):
            return found
    for container in containers:
        if found := _probed(pod, container, events, now):
            return found
    return _not_begun(pod, containers, events, now, tool)


def _failed(pod: Pod, tool: Tool) -> Obstacle:
    name, reason, message = pod.metadata.name, pod.status.reason or "", _cause(pod.status.message)
    if reason == "Evicted":
        return Obstacle(name, f"was evicted: {message}", "free memory or disk on this machine, then run it again")
    if reason:
        return Obstacle(name, f"was rejected: {reason}: {message}", "ask for less, or change what the pod selects")
    ends = (one.state.terminated for one in pod.status.container_statuses)
    codes = ", ".join(str(end.exit_code) for end in ends if end is not None and end.exit_code)
    return Obstacle(name, f"has failed with exit code {codes or '?'}", f"see {tool(f'logs {name}')}")


def _waiting(pod: Pod, container: ContainerStatus, tool: Tool) -> Obstacle | None:
    """The obstacle of a container in state waiting."""
    name, waiting = pod.metadata.name, container.state.waiting
    if waiting is None or not waiting.reason or waiting.reason in CREATING:
        return None
    message, reason = waiting.message or "", waiting.reason
    if reason in PULLING:
        return _pulled(pod, container, message, tool)
    if reason == "ErrImageNeverPull":
        bring = tool("images import FILE")
        return Obstacle(name, f"needs the image {container.image}, which is not here and is never to be pulled", bring)
    if reason == "CrashLoopBackOff":
        return _crashed(pod, container, tool)
    if reason == "InvalidImageName":
        return Obstacle(name, f"has an invalid image name: {_cause(message)}", "correct it in the manifest")
    what = f"cannot start container {container.name}: {reason}: {_cause(message)}"
    return Obstacle(name, what, "correct its manifest or what it refers to")


def _pulled(pod: Pod, container: ContainerStatus, message: str, tool: Tool) -> Obstacle:
    about = f"cannot get the image {container.image}"
    for pattern, cause, do in _REGISTRY:
        if re.search(pattern, message, re.IGNORECASE):
            advice = do.replace("{tool} images import FILE", tool("images import FILE"))
            return Obstacle(pod.metadata.name, f"{about}: {cause}", advice, about)
    return Obstacle(pod.metadata.name, f"{about}: {_cause(message)}", f"see {tool('events')}", about)


def _ends_again(pod: Pod, container: ContainerStatus, tool: Tool) -> Obstacle | None:
    """The obstacle of a crashing container between two starts, when it is not in state waiting."""
    ended = container.state.terminated
    again = ended is not None and ended.exit_code != 0 and container.restart_count > 0
    return _crashed(pod, container, tool) if again else None


def _crashed(pod: Pod, container: ContainerStatus, tool: Tool) -> Obstacle:
    ended = container.state.terminated or container.last_state.terminated
    how = "ends repeatedly"
    if ended is not None:
        reason = f" ({ended.reason})" if ended.reason not in (None, "Error", "Completed") else ""
        said = f", last with {_cause(ended.message)!r}" if ended.message else ""
        how = f"ends with exit code {ended.exit_code}{reason}{said}, and is restarted"
    logs = tool(f"logs {pod.metadata.name} -c {container.name}")
    return Obstacle(pod.metadata.name, f"is not ready: its container {container.name} {how}", f"see {logs}")


def _probed(pod: Pod, container: ContainerStatus, events: Sequence[Event], now: float) -> Obstacle | None:
    """The obstacle of a running container that has failed a probe for some time."""
    running = container.state.running
    since = seconds_of(running.started_at) if running is not None and running.started_at else now
    if container.ready or now - since < STARTING_S:
        return None
    for event in events:
        if event.reason == "Unhealthy" and f"{{{container.name}}}" in (event.involved_object.field_path or ""):
            what = f"is not ready: container {container.name}: {_cause(event.message)}"
            return Obstacle(pod.metadata.name, what, "correct the probe or what it asks")
    return None


def _not_begun(
    pod: Pod, containers: Sequence[ContainerStatus], events: Sequence[Event], now: float, tool: Tool
) -> Obstacle | None:
    """The obstacle of a pod without a started container: a volume, the sandbox or an image."""
    start = pod.status.start_time or pod.metadata.creation_timestamp
    if any(one.state.running or one.state.terminated for one in containers):
        return None
    for event in events:
        if event.reason in ("FailedMount", "FailedAttachVolume", "FailedMapVolume"):
            do = "make what the volume refers to, or correct it in the manifest"
            return Obstacle(pod.metadata.name, f"waits for a volume: {_cause(event.message)}", do)
        if event.reason == "FailedCreatePodSandBox":
            return Obstacle(pod.metadata.name, f"cannot begin: {_cause(event.message)}", f"see {tool('events')}")
    if start is None or now - seconds_of(start) < STARTING_S:
        return None
    return _slow(pod, events, tool)


def _slow(pod: Pod, events: Sequence[Event], tool: Tool) -> Obstacle:
    """The obstacle of a pod without a started container that has had its time, and no event of a failure."""
    for condition in pod.status.conditions:
        if condition.reason == "FailedMount":
            what = f"waits for a volume: {_cause(condition.message)}"
            return Obstacle(pod.metadata.name, what, f"see {tool(f'why pod/{pod.metadata.name}')}")
    images = [event for event in events if event.reason in ("Pulling", "Pulled")]
    if images and images[0].reason == "Pulling":
        what = _cause(images[0].message)
        return Obstacle(pod.metadata.name, f"is not ready yet: {what}", f"see {tool('images')}", what)
    return Obstacle(pod.metadata.name, "waits for its containers to be created", f"see {tool('events')}", "waits")


def _cause(message: str | None) -> str:
    """The last line of a message, and of that the last CAUSE_CHARS characters, which have the cause."""
    lines = [" ".join(part.split()) for part in (message or "").splitlines()]
    last = next((part for part in reversed(lines) if part), "no reason was given")
    last = last.rstrip(": ")
    return last if len(last) <= CAUSE_CHARS else f"...{last[-CAUSE_CHARS:]}"
