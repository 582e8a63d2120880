"""The web page with the process tree, mailboxes, pods, last deaths and the answers of `supervisor why`.

It shows the same data as `supervisor ps`, `pods` and `why`: no spec, no environment, no log, no stack. All values are
inserted as text, and the content security policy allows the page's own files only.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from actors._metrics import agent
from actors._metrics.merge import Samples
from actors.server.base.http import JSON, Request, Response, text
from actors.server.context import Context
from actors.server.figures.processes import ProcessUse
from actors.server.policy import Route
from proto.agent.supervisor import ActorRow, ListActors
from proto.node.runtime import EMBEDDED
from proto.node.runtime import endpoint as embedded_endpoint
from proto.pods.pod_columns import columns
from proto.pods.status import ListPods
from proto.waits.facts import collect, states
from proto.waits.resolve import UnknownSubjectError, subject_of
from proto.waits.text import lines, unmet
from proto.waits.walk import why
from proto.wire.errors import ActorError

PODS_S = 2.0
DEATHS_S = 2.0
DEATHS_SHOWN = 10
WHY_S = 2.0
SUPERVISOR_S = 0.2
MOST_LINES = 100
LONGEST_LINE = 300
_STATIC = Path(__file__).with_name("static")
_FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "pictures.js": ("pictures.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_RECORD = re.compile(r"(?P<actor>.+)-(?P<incarnation>\d+)\.txt")


async def get_root(_: Context, __: Request) -> Response:
    """Redirect to the page."""
    return Response(302, b"", headers={"Location": "/page/"})


async def get_file(context: Context, request: Request) -> Response:
    """A static file of the page, or its JSON document."""
    if request.path == "/page":
        return Response(301, b"", headers={"Location": "/page/"})
    if request.params["file"] == "page.json":
        return Response(200, msgspec.json.encode(await state(context)), JSON, dict(_HEADERS))
    known = _FILES.get(request.params["file"])
    if known is None:
        return text(404, f"404 page not found: there is no {quote(request.params['file'])}\n")
    data = await context.blocking(DEATHS_S, (_STATIC / known[0]).read_bytes)
    return Response(200, data, known[1], dict(_HEADERS))


async def get_why(context: Context, request: Request) -> Response:
    """For what a subject waits, as `supervisor why SUBJECT` says, without stacks. It asks the supervisor only."""
    text_asked = request.first("subject")[:LONGEST_LINE]
    rows: tuple[ActorRow, ...] = ()
    with contextlib.suppress(ActorError):  # its view adds to the wait records, and may be absent
        rows = (await context.ask("supervisor", ListActors(with_memory=False), SUPERVISOR_S)).rows
    try:
        sentence, below = await context.blocking(WHY_S, _why, context, rows, text_asked)
    except UnknownSubjectError as error:
        return text(404, f"{error}\n")
    found = {"time": time.time(), "subject": text_asked, "sentence": sentence, "lines": below}
    return Response(200, msgspec.json.encode(found), JSON, dict(_HEADERS))


def _why(context: Context, rows: tuple[ActorRow, ...], asked: str) -> tuple[str, list[str]]:
    run_dir, endpoint = context.settings.run_dir, context.settings.container_runtime_endpoint
    endpoint = embedded_endpoint(run_dir) if endpoint == EMBEDDED else endpoint
    facts = collect(Path(run_dir), states(rows), endpoint)
    subject = subject_of(asked, facts, context.pods.names())
    answer = why(facts, subject)
    kind, _, name = subject.partition("/")
    pods = context.pods.find(*name.split("/", 1)) if kind == "pod" and "/" in name and not answer.causes else []
    return unmet(subject, pods[-1], time.time()) if pods else answer.sentence, lines(answer, detail=False)[:MOST_LINES]


async def state(context: Context) -> dict[str, Any]:
    """The page's JSON document. Actors that do not answer leave gaps and cause no delay."""
    found = context.collector
    asked = context.ask_next("status", ListPods(), PODS_S)
    samples = await found.samples()
    rows, use = found.rows, found.use
    now = time.time()
    return {
        "time": now,
        "node": context.settings.node_name,
        "processes": [_process(row, use.get(row.pid, ProcessUse()), samples) for row in rows],
        "pods": await _pods(asked, now),
        "deaths": await _deaths(context, rows, now),
    }


def _process(row: ActorRow, use: ProcessUse, samples: Samples) -> dict[str, Any]:
    depth = samples.get(agent.MAILBOX_DEPTH.name, {}).get((row.name,))
    delays = samples.get(agent.MAILBOX_DELAY.name, {}).get((row.name,))
    handled = sum(delays[:-1]) if delays else 0
    return {
        "name": row.name,
        "pid": row.pid,
        "state": row.state,
        "incarnation": row.incarnation,
        "uptime_s": row.uptime_s,
        "restarts": row.restarts,
        "restart_in_s": row.restart_in_s,
        "last_death": row.last_death[:LONGEST_LINE],
        "mailbox": None if depth is None else int(depth[0]),
        "delay_s": delays[-1] / handled if delays and handled else None,
        "cpu_s": use.cpu_s,
        "memory_bytes": use.pss_bytes,
    }


async def _pods(asked: Any, now: float) -> list[dict[str, str]] | None:
    """One row a pod; None while status does not answer."""
    try:
        pods = (await asked).pods
    except ActorError:
        return None
    return [columns(pod, now)._asdict() for pod in pods]


async def _deaths(context: Context, rows: tuple[ActorRow, ...], now: float) -> list[dict[str, Any]]:
    """The last deaths, newest first: death records, and the supervisor's reason for actors without a record."""
    recorded = await _records(context)
    recorded_deaths = {(one["actor"], one["incarnation"]) for one in recorded}
    seen = [
        {
            "time": now - row.uptime_s,
            "actor": row.name,
            "incarnation": row.incarnation - 1,
            "text": row.last_death[:LONGEST_LINE],
        }
        for row in rows
        if row.last_death and (row.name, row.incarnation - 1) not in recorded_deaths
    ]
    return sorted([*recorded, *seen], key=lambda one: -one["time"])[:DEATHS_SHOWN]


async def _records(context: Context) -> list[dict[str, Any]]:
    try:
        return await context.blocking(DEATHS_S, _read_records, Path(context.settings.run_dir, "deaths"))
    except (OSError, ActorError):
        return []


def _read_records(directory: Path) -> list[dict[str, Any]]:
    files = sorted(((path.stat().st_mtime, path) for path in directory.glob("*.txt")), reverse=True)
    found = []
    for at, path in files[:DEATHS_SHOWN]:
        match = _RECORD.fullmatch(path.name)
        if match is not None:
            lines = path.read_text(errors="replace").splitlines()
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            found.append(
                {
                    "time": at,
                    "actor": match["actor"],
                    "incarnation": int(match["incarnation"]),
                    "text": last[:LONGEST_LINE],
                }
            )
    return found


ROUTES = (
    Route("GET", "/", get_root, read_only=True),
    Route("GET", "/page/why.json", get_why, read_only=True),
    Route("GET", "/page/{file:*}", get_file, read_only=True),
)
