"""Finds what keeps a pod from being ready, from its status and events, and the remedy. Pure.

`supervisor run` shows it for all pods. `supervisor why` and the web page show it for one pod.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from proto.common.rfc3339 import seconds_of
from proto.v1 import Container, ContainerPort, ContainerStateTerminated, ContainerStatus, Event, Pod, Probe
from proto.waits.chain import seconds
from proto.waits.remedies import IMPORT, PULLING, THROTTLED, is_timeout, of_error, of_eviction, pull_problem

STARTING_S = 10.0
"""Time for a pod to start, and for a failing probe, before there is advice on it."""
RECENT_S = 300.0
"""Age of an event's last repeat up to which the event counts for advice."""
CAUSE_CHARS = 200
MORE_MEMORY = "raise limits.memory, or correct what uses it"
CORRECT_PROBE = "correct the probe or what it asks"
CRASH_LOOP = "CrashLoopBackOff"
KILLED = "it was killed: "
"""Begin of a wait record's error for a container that the agent has ended, before the cause."""
HOOK_FAILED = "its postStart hook failed"
"""The cause of a kill after a failed postStart hook."""
BACK_OFF = "; back-off "
"""The text after the last end in that error."""
CREATING = ("ContainerCreating", "PodInitializing")


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

    name: str = "supervisor"
    run_dir: str = ""
    """Empty: the reader knows it."""

    def __call__(self, words: str) -> str:
        """The command line of `words`."""
        return f"{self.name} {words}" + (f" --run-dir {self.run_dir}" if self.run_dir else "")


class Look(NamedTuple):
    """Facts beside the pod's status. `events`: the pod's, the latest first. `now`: Unix time.

    A container that starts, or fails its probe, for less than `patience_s` is no obstacle. With `patience_s`, neither
    is a probe that may have had no result yet.
    """

    events: Sequence[Event] = ()
    now: float = 0.0
    tool: Tool = Tool()
    patience_s: float = 0.0
    throttling: Callable[[str], str] = lambda _: ""
    """The text on a CPU limit that throttles a container, by its CRI ID; asked after a probe's timeout only."""
    last_line: Callable[[Pod, str, bool], str] = lambda _pod, _container, _previous: ""
    """The last line of a container's log, of its present or previous run. Asked for an end without a message."""


def events_of(pod: Pod, events: Iterable[Event], since: float = 0.0) -> list[Event]:
    """The pod's events with a repeat after `since` (Unix time), the latest first."""
    own = [one for one in events if one.involved_object.uid == pod.metadata.uid and _when(one) > since]
    return sorted(own, key=_when, reverse=True)


def _when(event: Event) -> float:
    stamp = event.last_timestamp or event.first_timestamp
    return seconds_of(stamp) if stamp else 0.0


def obstacle(pod: Pod, look: Look) -> Obstacle | None:
    """The reason why the pod is not ready; None for a ready, completed or ending pod, and when nothing tells."""
    ready = any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
    if ready or pod.status.phase == "Succeeded" or pod.metadata.deletion_timestamp is not None:
        return None
    if pod.status.phase == "Failed":
        return _failed(pod, look)
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for container in containers:
        if found := _waiting(pod, container, look) or _ends_again(pod, container, look):
            return found
    for container in containers:
        if found := _probed(pod, container, look) or _initializes(pod, container, look):
            return found
    for container in containers:
        if found := _awaits_result(pod, container, look):
            return found
    return _not_begun(pod, containers, look) or _gated(pod)


def crash(pod: Pod, name: str, look: Look, killed: str = "") -> Obstacle | None:
    """The obstacle of a container that ends again and again; None when the status has no end of it.

    `killed`: why the agent has ended its last run, by a wait record; else events may tell it.
    """
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if container.name == name and (container.state.terminated or container.last_state.terminated) is not None:
            return _crashed(pod, container, look, killed)
    return None


def restarts(pod: Pod, name: str) -> int:
    """The restarts of a container so far."""
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((one.restart_count for one in containers if one.name == name), 0)


def taken_ports(pod: Pod, pods: Iterable[Pod]) -> list[str]:
    """The host ports of the pod that another pod has, in words."""
    others = [
        one for one in pods if one.metadata.uid != pod.metadata.uid and one.status.phase in ("Pending", "Running")
    ]
    return [
        f"host port {port.host_port} is of pod {other.metadata.namespace}/{other.metadata.name}"
        for port in _host_ports(pod)
        for other in others
        if any(_collide(port, one) for one in _host_ports(other))
    ]


def _host_ports(pod: Pod) -> list[ContainerPort]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return [port for container in containers for port in container.ports if port.host_port]


def _collide(one: ContainerPort, other: ContainerPort) -> bool:
    """True for the same port and protocol on a common address; no address is each of them."""
    addresses = {port.host_ip or "0.0.0.0" for port in (one, other)}
    same = one.host_port == other.host_port and (one.protocol or "TCP") == (other.protocol or "TCP")
    return same and (len(addresses) == 1 or "0.0.0.0" in addresses)


def wanted_labels(pod: Pod) -> list[str]:
    """The node's labels and fields that the pod requires, in words."""
    found = [f"{key}={value}" for key, value in pod.spec.node_selector.items()]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    any_of = [
        " and ".join(
            " ".join([one.key, one.operator, *one.values]) for one in (*term.match_expressions, *term.match_fields)
        )
        for term in terms
    ]
    wanted = [*found, *([" or ".join(any_of)] if any_of else [])]
    return [f"it asks for {' and '.join(wanted)}"] if wanted else []


def ending(exit_code: int, reason: str | None, message: str | None) -> str:
    """A container's end in words: exit code 137 (OOMKilled), last with 'its last message'."""
    why = f" ({reason})" if reason not in (None, "", "Error", "Completed") else _signal(exit_code)
    return f"exit code {exit_code}{why}" + (f", last with {cause(message)!r}" if message else "")


def _signal(exit_code: int) -> str:
    """The signal that has ended a process, which runtimes and shells add to 128."""
    try:
        return f" ({signal.Signals(exit_code - 128).name})"
    except ValueError:
        return ""


def _told(pod: Pod, container: ContainerStatus, ended: ContainerStateTerminated, look: Look) -> str:
    """The container's last end in words, with the last line of the log for a failure without a message."""
    if ended.exit_code == 0 or ended.message:
        return ending(ended.exit_code, ended.reason, ended.message)
    previous = container.state.running is not None
    return ending(ended.exit_code, ended.reason, look.last_line(pod, container.name, previous))


def _failed(pod: Pod, look: Look) -> Obstacle:
    name, reason, message = pod.metadata.name, pod.status.reason or "", cause(pod.status.message)
    containers = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    ended = [(one, one.state.terminated) for one in containers if one.state.terminated is not None]
    if reason == "Evicted":
        return Obstacle(name, f"was evicted: {message}", f"{of_eviction(message)}, then run it again")
    if reason == "DeadlineExceeded":
        return Obstacle(name, f"has failed: {message}", "raise its activeDeadlineSeconds")
    if reason:
        return Obstacle(name, f"was rejected: {reason}: {message}", "ask for less, or change what the pod selects")
    failed = [(own, end) for own, end in ended if end.exit_code]
    how = " and ".join(_told(pod, own, end, look) for own, end in failed)
    which = f" -c {failed[0][0].name}" if failed and failed[0][0].name != pod.spec.containers[0].name else ""
    return Obstacle(name, f"has failed with {how or 'exit code ?'}", f"see {look.tool(f'logs {name}{which}')}")


def _waiting(pod: Pod, container: ContainerStatus, look: Look) -> Obstacle | None:
    """The obstacle of a container in state waiting."""
    name, waiting, tool = pod.metadata.name, container.state.waiting, look.tool
    if waiting is None or not waiting.reason or waiting.reason in CREATING:
        return None
    message, reason = waiting.message or "", waiting.reason
    if reason in PULLING:
        return _pulled(pod, container, message, tool)
    if reason == "ErrImageNeverPull":
        bring = tool("images import FILE")
        return Obstacle(name, f"needs the image {container.image}, which is not here and is never to be pulled", bring)
    if reason == CRASH_LOOP:
        return _crashed(pod, container, look)
    if reason == "InvalidImageName":
        return Obstacle(name, f"has an invalid image name: {cause(message)}", "correct it in the manifest")
    what = f"cannot start container {container.name}: {reason}: {cause(message)}"
    return Obstacle(name, what, "correct its manifest or what it refers to")


def _pulled(pod: Pod, container: ContainerStatus, message: str, tool: Tool) -> Obstacle:
    about = f"cannot get the image {container.image}"
    if (problem := pull_problem(message)) is not None:
        advice = problem.do.replace(IMPORT, tool("images import FILE"))
        return Obstacle(pod.metadata.name, f"{about}: {problem.what}", advice, about)
    return Obstacle(pod.metadata.name, f"{about}: {cause(message)}", f"see {tool('events')}", about)


def _ends_again(pod: Pod, container: ContainerStatus, look: Look) -> Obstacle | None:
    """The obstacle of a crashing container between two starts, when it is not in state waiting."""
    ended = container.state.terminated
    again = ended is not None and ended.exit_code != 0 and container.restart_count > 0
    return _crashed(pod, container, look) if again else None


def _crashed(pod: Pod, container: ContainerStatus, look: Look, killed: str = "") -> Obstacle:
    ended = container.state.terminated or container.last_state.terminated
    how = f"is killed and restarted: {killed}" if killed else "ends repeatedly"
    if ended is not None and not killed:
        how = _how_it_ends(pod, container, ended, look)
    again = " --previous" if container.state.running is not None else ""
    logs = look.tool(f"logs {pod.metadata.name} -c {container.name}{again}")
    do = f"{_of_kill(killed) if killed else _of_end(pod, container.name, ended)}see {logs}"
    return Obstacle(pod.metadata.name, f"is not ready: its container {container.name} {how}", do)


def _of_kill(killed: str) -> str:
    """The remedy that the cause of a kill tells. A CPU limit behind it has its own."""
    if killed.startswith(HOOK_FAILED):
        return "correct the hook; "
    return f"{CORRECT_PROBE}; " if "probe failed" in killed and not THROTTLED.search(killed) else ""


def _of_end(pod: Pod, name: str, ended: ContainerStateTerminated | None) -> str:
    """The remedy that an end tells. A container with a liveness or startup probe may have ended by a kill."""
    if ended is not None and ended.reason == "StartError":
        return f"{of_error(ended.message or '') or 'correct its command or what it refers to'}; "
    if ended is not None and ended.reason == "OOMKilled":
        return f"{MORE_MEMORY}; "
    specs = (*pod.spec.init_containers, *pod.spec.containers)
    killed = any(one.name == name and (one.liveness_probe or one.startup_probe or one.lifecycle) for one in specs)
    itself = ended is not None and ended.exit_code == 0 and not killed
    return "have its command run on, or set another restartPolicy; " if itself else ""


def _how_it_ends(pod: Pod, container: ContainerStatus, ended: ContainerStateTerminated, look: Look) -> str:
    """The last end, with the kill by the agent that events tell.

    The event of the last run's kill may be left out: the recorder drops events of a pod that has too many of them.
    """
    itself = f"ends with {_told(pod, container, ended, look)}, and is restarted"
    kill, at = _kill(container.name, look)
    if not kill or ended.reason in ("OOMKilled", "StartError"):
        return itself
    began = seconds_of(ended.started_at) if ended.started_at else 0.0
    return f"is killed and restarted: {kill}" if at >= began else f"{itself}; an earlier run was killed: {kill}"


def _kill(container: str, look: Look) -> tuple[str, float]:
    """Why the agent itself has ended the container, by its latest event, and when; empty without one."""
    own = [one for one in look.events if _is_of(one, container)]
    for event in own:
        if event.reason == "FailedPostStartHook":
            return HOOK_FAILED, _when(event)
        for probe in ("liveness", "startup"):
            if event.reason == "Killing" and f"failed {probe} probe" in _text(event):
                said = (one for one in own if one.reason == "Unhealthy" and _text(one).lower().startswith(probe))
                return _probe_said(_text(next(said, event))), _when(event)
    return "", 0.0


def _text(event: Event) -> str:
    return event.message or ""


def _is_of(event: Event, container: str) -> bool:
    return f"{{{container}}}" in (event.involved_object.field_path or "")


def _probe_said(message: str) -> str:
    """The message of a failed probe in one line: its head, and the last line of the output."""
    head, _, output = message.partition(": ")
    return f"{head.rstrip(': ')}: {cause(output)}" if output.strip() else head.rstrip(": ")


def _is_young(container: ContainerStatus, look: Look) -> bool:
    """True for a container that does not run, or has begun a short time ago."""
    return container.state.running is None or _age_s(container, look) < look.patience_s


def _age_s(container: ContainerStatus, look: Look) -> float:
    running = container.state.running
    return look.now - seconds_of(running.started_at) if running is not None and running.started_at else 0.0


def _probed(pod: Pod, container: ContainerStatus, look: Look) -> Obstacle | None:
    """The obstacle of a running container that fails a probe, or has not passed it."""
    if container.ready or _is_young(container, look):
        return None
    about = f"is not ready: container {container.name}:"
    for event in look.events:
        if event.reason == "Unhealthy" and _is_of(event, container.name):
            said = _probe_said(_text(event))
            what, do = _cause_of_failure(container, said, look)
            return Obstacle(pod.metadata.name, f"{about} {said}{what}", do)
    pending = _pending(pod, container)
    if pending is None or _age_s(container, look) < _result_s(*pending):
        return None
    return Obstacle(pod.metadata.name, f"{about} its {_kind(*pending)} probe has not succeeded", CORRECT_PROBE)


def _cause_of_failure(container: ContainerStatus, said: str, look: Look) -> tuple[str, str]:
    """(what may be behind a failed probe, the remedy): a CPU limit behind a timeout, or a process without memory."""
    identity = (container.container_id or "").rpartition("/")[2]
    if is_timeout(said) and (note := look.throttling(identity)):
        return f"; its container is {note}", "or see what the probe asks"
    for event in look.events:
        if event.reason == "OOMKilled" and _is_of(event, container.name) and look.now - _when(event) < RECENT_S:
            return f"; {cause(event.message).rstrip('.')}", MORE_MEMORY
    return "", CORRECT_PROBE


def recent(pod: Pod, look: Look) -> list[str]:
    """Ends, failed probes and OOM kills of the last RECENT_S, of a pod that waits for nothing now."""
    found = []
    for one in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        last = one.last_state.terminated
        at = seconds_of(last.finished_at) if last is not None and last.finished_at else 0.0
        if last is not None and one.restart_count and look.now - at < RECENT_S:
            times = f"{one.restart_count} time{'s' if one.restart_count > 1 else ''}"
            how = _told(pod, one, last, look)
            found.append(f"container {one.name} has restarted {times}, {seconds(look.now - at)} ago after {how}")
    for event in look.events:
        if event.reason in ("Unhealthy", "OOMKilled") and look.now - _when(event) < RECENT_S:
            times = f"{event.count} times, last " if (event.count or 1) > 1 else ""
            said = _probe_said(_text(event)).rstrip(".")
            found.append(f"{said} ({times}{seconds(look.now - _when(event))} ago)")
    return found


def _awaits_result(pod: Pod, container: ContainerStatus, look: Look) -> Obstacle | None:
    """The obstacle of a running container whose probe may have had no result yet: its author has nothing to correct."""
    pending = _pending(pod, container)
    if container.ready or container.state.running is None or pending is None or look.patience_s:
        return None
    delay = pending[1].initial_delay_seconds or 0
    early = max(0.0, _age_s(container, look)) < delay  # a clock that was set back gives no age
    what = f"begins {delay} s after the container's start" if early else "has not succeeded yet"
    last, again = container.last_state.terminated, ""
    if last is not None and last.exit_code:  # it may end again before its probe has a result
        what += f"; its last run ended with {ending(last.exit_code, last.reason, last.message)}"
        again = " --previous"
    logs = look.tool(f"logs {pod.metadata.name} -c {container.name}{again}")
    about = f"is not ready: container {container.name}: its {_kind(*pending)} probe"
    return Obstacle(pod.metadata.name, f"{about} {what}", f"wait, or see {logs}")


def _pending(pod: Pod, container: ContainerStatus) -> tuple[Container, Probe] | None:
    """The container's spec and the probe that it has to pass next, if any."""
    specs = (*pod.spec.init_containers, *pod.spec.containers)
    spec = next((one for one in specs if one.name == container.name), None)
    if spec is None:
        return None
    probe = spec.startup_probe if spec.startup_probe is not None and not container.started else spec.readiness_probe
    return (spec, probe) if probe is not None else None


def _kind(spec: Container, probe: Probe) -> str:
    return "startup" if probe is spec.startup_probe else "readiness"


def _result_s(spec: Container, probe: Probe) -> float:
    """Seconds from the container's start after which this probe has failed if it has not succeeded.

    A readiness probe begins when the startup probe has succeeded, which takes up to all of that one's tries.
    """
    begins = float(probe.initial_delay_seconds or 0)
    startup = spec.startup_probe
    if startup is not None and probe is not startup:
        begins = max(begins, (startup.initial_delay_seconds or 0) + _tries_s(startup, startup.failure_threshold or 3))
    return begins + _tries_s(probe, probe.success_threshold or 1)


def _tries_s(probe: Probe, tries: int) -> float:
    """Seconds of that many tries, with the API's defaults."""
    return float((probe.period_seconds or 10) * tries + (probe.timeout_seconds or 1))


def _initializes(pod: Pod, container: ContainerStatus, look: Look) -> Obstacle | None:
    """The obstacle of an init container that does not end; a sidecar need not end."""
    spec = next((one for one in pod.spec.init_containers if one.name == container.name), None)
    if spec is None or spec.restart_policy == "Always" or _is_young(container, look):
        return None
    logs = look.tool(f"logs {pod.metadata.name} -c {container.name}")
    said = look.last_line(pod, container.name, False)
    last = f", last with {said!r}" if said else ""
    what = f"waits for its init container {container.name}, which runs and has not ended{last}"
    return Obstacle(pod.metadata.name, what, f"see {logs}")


def _not_begun(pod: Pod, containers: Sequence[ContainerStatus], look: Look) -> Obstacle | None:
    """The obstacle of a pod without a started container: a volume, the sandbox or an image."""
    start = pod.status.start_time or pod.metadata.creation_timestamp
    if any(one.state.running or one.state.terminated for one in containers):
        return None
    for event in look.events:
        if event.reason in ("FailedMount", "FailedAttachVolume", "FailedMapVolume"):
            do = "make what the volume refers to, or correct it in the manifest"
            return Obstacle(pod.metadata.name, f"waits for a volume: {cause(event.message)}", do)
        if event.reason == "FailedCreatePodSandBox":
            return Obstacle(pod.metadata.name, f"cannot begin: {cause(event.message)}", f"see {look.tool('events')}")
    if start is None or look.now - seconds_of(start) < look.patience_s:
        return None
    return _slow(pod, look)


def _slow(pod: Pod, look: Look) -> Obstacle:
    """The obstacle of a pod without a started container that has had its time, and no event of a failure."""
    tool = look.tool
    for condition in pod.status.conditions:
        if condition.reason == "FailedMount":
            what = f"waits for a volume: {cause(condition.message)}"
            return Obstacle(pod.metadata.name, what, f"see {tool(f'why pod/{pod.metadata.name}')}")
    images = [event for event in look.events if event.reason in ("Pulling", "Pulled")]
    if images and images[0].reason == "Pulling":
        what = cause(images[0].message)
        return Obstacle(pod.metadata.name, f"is not ready yet: {what}", f"see {tool('images')}", what)
    return Obstacle(pod.metadata.name, "waits for its containers to be created", f"see {tool('events')}", "waits")


def _gated(pod: Pod) -> Obstacle | None:
    """The obstacle of a pod whose containers are ready: a readiness gate. The agent itself never sets its condition."""
    met = {one.type for one in pod.status.conditions if one.status == "True"}
    unmet = [gate.condition_type for gate in pod.spec.readiness_gates if gate.condition_type not in met]
    if not unmet or "ContainersReady" not in met:
        return None
    what = f"is not ready: its containers are, and its readiness gate {unmet[0]} is not True"
    do = "have its controller set this condition in the API server, or remove the gate"
    return Obstacle(pod.metadata.name, what, do)


def cause(message: str | None) -> str:
    """The last line of a message, and of that the last CAUSE_CHARS characters, which have the cause."""
    lines = [" ".join(part.split()) for part in (message or "").splitlines()]
    last = next((part for part in reversed(lines) if part), "no reason was given")
    last = last.rstrip(": ")
    return last if len(last) <= CAUSE_CHARS else f"...{last[-CAUSE_CHARS:]}"
