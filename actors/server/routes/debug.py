"""Debug endpoints: /configz, /debug/flags/v and /debug/pprof for one actor, by `?actor=NAME`.

A profile lists sampled stacks and their counts, the input format of flame graphs. The paths are the kubelet's. Go's
pprof format does not fit a Python process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from actors.server.base.http import JSON, BadRequest, Request, Response, text
from actors.server.context import Context
from actors.server.policy import Route
from proto.agent.actor import Profile, SetVerbosity, Stacks
from proto.agent.supervisor import ListActors
from proto.common import untrusted
from proto.common.logs import wrong_verbosity

ASK_S = 5.0
PROFILE_S, MOST_PROFILE_S = 30, 300


class _InForce(msgspec.Struct):
    configuration: dict[str, Any]
    secrets: dict[str, Any] = {}


async def get_configz(context: Context, _: Request) -> Response:
    """The configuration in force with its secrets, as in the kubelet. Access to it is authorized."""
    path = Path(context.settings.run_dir, "configuration.json")
    try:
        found = untrusted.decode_json(await context.blocking(ASK_S, path.read_bytes), _InForce)
    except (OSError, msgspec.DecodeError) as error:
        return text(503, f"the configuration cannot be read in the run directory: {error}\n")
    return Response(200, msgspec.json.encode({"kubeletconfig": found.configuration | found.secrets}), JSON)


async def put_verbosity(context: Context, request: Request) -> Response:
    """Set the log verbosity of every process; the body is the number."""
    assert request.read_body is not None
    body = (await request.read_body(64)).decode(errors="replace").strip()
    if not body.isascii() or not body.isdecimal():
        return text(400, f"failed to set klog.logging.verbosity {body!r}: not a number")
    if wrong := wrong_verbosity(int(body)):
        return text(400, f"failed to set klog.logging.verbosity {body!r}: {wrong}")
    names = ["supervisor", *await _actors(context)]
    for name in names:
        await context.ask(name, SetVerbosity(v=int(body)), ASK_S)
    return text(200, f"successfully set klog.logging.verbosity to {body}")


async def _actors(context: Context) -> list[str]:
    rows = (await context.ask("supervisor", ListActors(with_memory=False), ASK_S)).rows
    return [row.name for row in rows if row.state == "ready" and row.name not in ("supervisor", "forkserver")]


async def get_profiles(context: Context, _: Request) -> Response:
    """The paths below /debug/pprof and the actors."""
    actors = " ".join(await _actors(context))
    return text(
        200,
        f"/debug/pprof/profile?actor=NAME&seconds={PROFILE_S}  stacks and how often each was seen, for flame graphs\n"
        f"/debug/pprof/goroutine?actor=NAME           what each thread is doing now\n"
        f"/debug/pprof/cmdline                        how the agent was started\n\nactors: {actors}\n",
    )


async def get_profile(context: Context, request: Request) -> Response:
    """Sample an actor's threads for `seconds`."""
    name, seconds = await _wanted(context, request), _seconds(request)
    found = await context.ask(name, Profile(seconds=seconds), seconds + ASK_S)
    return text(200, "".join(f"{stack} {count}\n" for stack, count in found.samples.items()))


async def get_stacks(context: Context, request: Request) -> Response:
    """The present stacks of the actor's threads."""
    found = await context.ask(await _wanted(context, request), Stacks(), ASK_S)
    return text(200, found.text)


async def _wanted(context: Context, request: Request) -> str:
    name, actors = request.first("actor", "server"), await _actors(context)
    if name not in actors:
        raise BadRequest(f"there is no actor {name!r} in service; there are: {' '.join(actors)}")
    return name


def _seconds(request: Request) -> float:
    try:
        seconds = float(request.first("seconds") or PROFILE_S)
    except ValueError as error:
        raise BadRequest("seconds is no number") from error
    if not 0 < seconds <= MOST_PROFILE_S:
        raise BadRequest(f"seconds must be more than 0 and at most {MOST_PROFILE_S}")
    return seconds


async def get_cmdline(context: Context, _: Request) -> Response:
    """The supervisor's arguments."""
    path = Path(f"/proc/{os.getppid()}/cmdline")
    return Response(200, await context.blocking(ASK_S, path.read_bytes))


GENERAL = (Route("GET", "/configz", get_configz),)
FLAGS = (Route("PUT", "/debug/flags/v", put_verbosity),)
PROFILES = (
    Route("GET", "/debug/pprof", get_profiles),
    Route("GET", "/debug/pprof/profile", get_profile),
    Route("GET", "/debug/pprof/goroutine", get_stacks),
    Route("GET", "/debug/pprof/cmdline", get_cmdline),
)
