"""Checks that a node reaches its goal, and stays there, once no more faults happen."""

from __future__ import annotations

from collections.abc import Iterator

from proto.cri import api_pb2 as pb
from proto.v1 import Pod
from tests.model.cri.runtime import Program
from tests.model.invariants import TERMINAL
from tests.model.specs import is_sidecar
from tests.model.world import World

SETTLED_WITHIN_S = 3600.0
"""Back-offs end after 5 minutes, deadlines of calls after 4; several may follow one another."""
_DONE = Program(exits=0, after_s=0.1)
QUIET_S = 400.0
"""After the goal is reached, no start may happen for this long."""
RESYNC_S = 1.0
"""Longest step of a settled pod. All pods resync at common times, one of which may be now."""


def settle(world: World) -> None:
    """End all faults, wait until the goal is reached, and check that it stays so."""
    world.faults.clear()
    world.no_images.clear()
    world.health.clear()
    world.programs = dict.fromkeys(_plain_inits(world), _DONE)
    for container in world.running():
        if container.name in world.programs and container.program.exits is None:
            world.runtime.end(container, 0)
    for peer in world.peers.values():
        peer.fault = lambda _: None
    if world.process is not None:
        world.process.cri.end_commands()
    world.peers["probe"].look()
    world.clock.advance(5.0)  # until recent messages have arrived and short-lived containers have ended
    waited, step_s = 0.0, 1.0
    while missing := list(_missing(world)):
        assert waited < SETTLED_WITHIN_S, f"after {waited:g} s: {missing}\n{explain(world)}"
        world.clock.advance(step_s)
        waited += step_s
        step_s = min(60.0, step_s * 2)
        world.check()
    begun = world.runtime.begun
    world.clock.advance(QUIET_S)
    world.check()
    looked = world.clock.now
    while missing := list(_missing(world)):
        assert world.clock.now < looked + RESYNC_S, f"settled, and not any more: {missing}\n{explain(world)}"
        world.clock.step(looked + RESYNC_S) or world.clock.advance(RESYNC_S)
    assert world.runtime.begun == begun, f"settled, and goes on\n{explain(world)}"


def _plain_inits(world: World) -> set[str]:
    return {one.name for pod in world.all_wanted() for one in pod.spec.init_containers if not is_sidecar(one)}


def _missing(world: World) -> Iterator[str]:
    """Texts of all differences from the goal."""
    if world.process is None or not world.process.bus.ready:
        yield "pod_workers is away"
        return
    if world.clock.now <= world.runtime.surprise_at:
        yield "a late effect is to come"
    wanted = {pod.metadata.uid: pod for pod in world.all_wanted()}
    for uid in {one.uid for one in world.runtime.sandboxes.values()} - wanted.keys():
        yield f"something of {uid} is in the runtime and unwanted"
    for uid in world.pods().keys() - wanted.keys():
        yield f"{uid} is published and unwanted"
    for uid in world.process.actor.workers.keys() - wanted.keys():
        yield f"{uid} has a worker and is unwanted"
    for uid in world.peers["volume"].mounted - wanted.keys():
        yield f"volumes of {uid} are mounted and unwanted"
    for uid, worker in world.process.actor.workers.items():
        shown = worker.describe()
        if shown["step"]:
            yield f"the worker of {uid} is at work"
        if shown["stage"] == "terminated" and shown["last_error"]:
            yield f"the worker of {uid} cleans up again later: {shown['last_error']}"
    for uid, pod in wanted.items():
        yield from (f"{uid}: {what}" for what in _missing_of(world, pod))


def _missing_of(world: World, pod: Pod) -> Iterator[str]:
    uid = pod.metadata.uid
    shown = world.pods().get(uid)
    if shown is None:
        yield "not published"
        return
    if shown.metadata != pod.metadata or shown.spec != pod.spec:
        yield "published with an old object"
    running = [one for one in world.running() if one.sandbox.uid == uid]
    ready = [one for one in world.runtime.sandboxes.values() if one.uid == uid and one.ready]
    if shown.status.phase in TERMINAL or pod.metadata.deletion_timestamp is not None:
        yield from _missing_of_ended(world, pod, shown, len(running), len(ready))
        return
    of_pod = (one for one in world.runtime.containers.values() if one.sandbox.uid == uid)
    begun = any(one.state != pb.CONTAINER_CREATED for one in of_pod)
    if pod.spec.restart_policy == "Never" and not ready and not running and begun:
        return  # as in computePodActions: no second sandbox after a container began or failed to start
    worker = world.process.actor.workers.get(uid)
    if worker is None or worker.termination is not None:
        yield "it has no worker that keeps it running"
    if shown.status.phase != "Running":
        yield f"phase {shown.status.phase}"
    if len(ready) != 1:
        yield f"{len(ready)} ready sandboxes"
    names = sorted(one.name for one in running)
    ends = {one.name: one.state.terminated for one in shown.status.container_statuses if one.state.terminated}
    done = {name for name, end in ends.items() if pod.spec.restart_policy == "Never" or not end.exit_code}
    sidecars = [one.name for one in pod.spec.init_containers if is_sidecar(one)]
    expected = sorted([*sidecars, *(one.name for one in pod.spec.containers if one.name not in done)])
    if names != expected:
        yield f"{names} run, not {expected}"
    if pod.spec.restart_policy == "Always" and done:
        yield f"{done} have ended"
    statuses = {one.name: one for one in (*shown.status.init_container_statuses, *shown.status.container_statuses)}
    for one in running:
        status = statuses.get(one.name)
        if status is None or status.container_id != f"containerd://{one.id}" or status.state.running is None:
            yield f"{one.name} runs and is not shown so: {status}"
        elif not status.ready:
            yield f"{one.name} is not ready"


def _missing_of_ended(world: World, pod: Pod, shown: Pod, running: int, ready: int) -> Iterator[str]:
    uid = pod.metadata.uid
    if shown.status.phase not in TERMINAL and not world.static:
        yield f"deleted, and phase {shown.status.phase}"
    if running or ready:
        yield f"{shown.status.phase} with {running} containers and {ready} sandboxes"
    if uid in world.peers["volume"].mounted:
        yield "ended, and its volumes are mounted"
    asked = pod.metadata.deletion_timestamp is not None or pod.spec.active_deadline_seconds is not None
    asked = asked or uid in world.evicted  # the phase follows the exit codes then; Succeeded has no reason
    if pod.spec.restart_policy == "Always" and not asked:
        yield f"{shown.status.phase} for no reason"


def explain(world: World) -> str:
    """The state of the world as text."""
    now = world.clock.now - world.began
    lines = [f"{now:.3f} s"]
    for sandbox in world.runtime.sandboxes.values():
        lines.append(f"sandbox {sandbox.id[-4:]} {sandbox.uid} {'ready' if sandbox.ready else 'notready'}")
    for one in world.runtime.containers.values():
        lines.append(
            f"container {one.id[-4:]} {one.name} in {one.sandbox.id[-4:]}: state {one.state}, code {one.exit_code} "
            f"{one.reason} {one.message}"
        )
    for uid, pod in world.pods().items():
        lines.append(f"published {uid}: {pod.status.phase} {pod.status.reason}")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            lines.append(f"  {status.name} #{status.restart_count} ready={status.ready} {status.state}")
    if world.process is not None:
        lines += [f"worker {uid}: {one.describe()}" for uid, one in world.process.actor.workers.items()]
    return "\n".join(lines)
