"""The data of the page's pictures: who sends to whom, starts of pods, the last hour, and an actor's flame graph.

Names, times and counts only: no spec, no environment, no message's content. One profile runs at a time.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from actors._metrics import agent
from actors._metrics.merge import Samples
from actors.server.base.http import JSON, BadRequest, Request, Response, text
from actors.server.context import Context
from actors.server.policy import Route
from proto.agent import flame_graph, registry
from proto.agent.actor import Profile
from proto.pods.events import ListEvents
from proto.pods.pod_workers import GetTimelines
from proto.wire.errors import ActorError

ASK_S = 2.0
HOUR_S = 3600.0
MOST_PODS, MOST_FAULTS = 30, 300
MOST_SECONDS = 10.0
MOST_FRAMES = 1500
LEAST_SHARE = 0.005
LONGEST = 300
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


async def get_graph(context: Context, _: Request) -> Response:
    """The actors, and how many messages each has handled of which sender, with their time in its mailbox."""
    samples = await context.collector.samples()
    depths = samples.get(agent.MAILBOX_DEPTH.name, {})
    nodes = [
        {"name": row.name, "state": row.state, "mailbox": int(depths.get((row.name,), (0.0,))[0])}
        for row in context.collector.rows
        if row.name != "forkserver"
    ]
    return _json({"time": time.time(), "nodes": nodes, "edges": edges(samples)})


def edges(samples: Samples) -> list[dict[str, Any]]:
    """Sender, receiver, count and summed queue time; all since the receiver's first start."""
    counts = samples.get(agent.MESSAGES_FROM.name, {})
    queued = samples.get(agent.QUEUE_SECONDS_FROM.name, {})
    return [
        {"from": source, "to": actor, "count": values[0], "queue_s": queued.get((actor, source), (0.0,))[0]}
        for (actor, source), values in sorted(counts.items())
    ]


async def get_timelines(context: Context, _: Request) -> Response:
    """The last starts of pods, and the totals of each step."""
    try:
        found = await context.ask("pod_workers", GetTimelines(), ASK_S)
    except ActorError as error:
        return _json({"time": time.time(), "pods": [], "totals": [], "problem": str(error)[:LONGEST]})
    pods = [msgspec.to_builtins(pod) for pod in found.pods[:MOST_PODS]]
    return _json({"time": time.time(), "pods": pods, "totals": msgspec.to_builtins(found.totals), "problem": ""})


async def get_hour(context: Context, _: Request) -> Response:
    """Faults and restarts of the agent's processes, and the readiness of pods, of the last hour."""
    now, problem = time.time(), ""
    faults: list[dict[str, Any]] = []
    try:
        events = (await context.ask("events", ListEvents(), ASK_S)).events
    except ActorError as error:
        events, problem = (), str(error)[:LONGEST]
    for event in events:
        about = event.involved_object
        at = _seconds(event.last_timestamp or event.first_timestamp)
        if about.kind in ("Actor", "Process") and now - at <= HOUR_S:
            what = {"time": at, "actor": about.name, "type": event.type, "reason": event.reason, "count": event.count}
            faults.append(what | {"text": (event.message or "")[:LONGEST]})
    readiness = context.pods.readiness.shown(now)
    return _json({"time": now, "faults": faults[-MOST_FAULTS:], "pods": readiness, "problem": problem})


async def get_flame(context: Context, request: Request) -> Response:
    """Sample an actor for some seconds, and return the tree of its busy frames."""
    if not context.settings.enable_profiling_handler:
        return text(405, "profiling endpoint is disabled.\n")
    actor = request.first("actor")
    if actor not in registry.NAMES:
        raise BadRequest(f"there is no actor {actor!r}")
    seconds = _wanted_seconds(request)
    if context.profiles:
        return text(429, "another profile runs; try again\n")
    context.profiles += 1
    try:
        samples = (await context.ask(actor, Profile(seconds=seconds), seconds + ASK_S)).samples
    finally:
        context.profiles -= 1
    root = flame_graph.tree(samples if request.first("waits") else flame_graph.busy(samples))
    budget = [MOST_FRAMES]
    return _json(
        {"actor": actor, "seconds": seconds, "samples": sum(samples.values()), "root": _plain(root, root.count, budget)}
    )


def _plain(frame: flame_graph.Frame, whole: int, budget: list[int]) -> list[Any]:
    """[name, count, children] of the frames with a visible share."""
    budget[0] -= 1
    children = [
        _plain(child, whole, budget)
        for child in sorted(frame.children.values(), key=lambda one: one.name)
        if child.count >= LEAST_SHARE * whole and budget[0] > 0
    ]
    return [frame.name[:LONGEST], frame.count, children]


def _wanted_seconds(request: Request) -> float:
    try:
        seconds = float(request.first("seconds") or 3)
    except ValueError as error:
        raise BadRequest("seconds is no number") from error
    if not 0 < seconds <= MOST_SECONDS:
        raise BadRequest(f"seconds must be more than 0 and at most {MOST_SECONDS:g}")
    return seconds


def _seconds(timestamp: str | None) -> float:
    from datetime import datetime  # noqa: PLC0415

    try:
        return datetime.fromisoformat(timestamp or "").timestamp()
    except ValueError:
        return 0.0


def _json(value: Any) -> Response:
    return Response(200, msgspec.json.encode(value), JSON, dict(_HEADERS))


ROUTES = (
    Route("GET", "/page/graph.json", get_graph, read_only=True),
    Route("GET", "/page/timelines.json", get_timelines, read_only=True),
    Route("GET", "/page/hour.json", get_hour, read_only=True),
    Route("GET", "/page/flame.json", get_flame, read_only=True),
)
