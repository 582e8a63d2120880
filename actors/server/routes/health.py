"""/healthz and its checks: ping, log, syncloop, device-plugin.

https://kubernetes.io/docs/reference/using-api/health-checks/
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actors._metrics import kubelet as metrics
from actors.server.base.http import Request, Response, text
from actors.server.context import Context
from actors.server.policy import Route
from proto.agent.actor import Ping
from proto.common.health_report import report
from proto.resources.resources import CheckDevicePlugins
from proto.wire.errors import ActorError, Refused
from proto.wire.message import Request as Ask

ANSWER_S = 5.0
CHECKS: dict[str, tuple[str, Ask[Any]] | None] = {
    "ping": None,
    "log": None,
    "syncloop": ("pod_workers", Ping()),
    "device-plugin": ("resources", CheckDevicePlugins()),
}
"""The actor and the request of each check. None: it passes when this actor answers."""


async def get_healthz(context: Context, request: Request) -> Response:
    """All checks, or the check that the path names."""
    name = request.params.get("check", "")
    if name and name not in CHECKS:
        return text(404, "404 page not found\n")
    if name:
        problem = (await _problems(context, [name]))[name]
        return text(500, f"internal server error: {problem}\n") if problem else text(200, "ok")
    excluded = frozenset(request.query.get("exclude", ()))
    wanted = await _problems(context, [check for check in CHECKS if check not in excluded])
    for check, problem in wanted.items():
        metrics.HEALTH.set(not problem, check, "healthz")
        metrics.HEALTH_CHECKS.inc(check, "error" if problem else "success", "healthz")
    return text(*report(CHECKS, wanted, excluded, verbose="verbose" in request.query))


async def _problems(context: Context, checks: Iterable[str]) -> dict[str, str]:
    """The problem of each check, empty for none. The actors are asked at the same time."""
    answers = {
        check: context.ask_next(*asked, ANSWER_S) if (asked := CHECKS[check]) is not None else None for check in checks
    }
    problems = {}
    for check, answer in answers.items():
        problems[check] = ""
        if answer is not None:
            try:
                await answer
            except Refused as refused:
                problems[check] = refused.message
            except ActorError as error:
                problems[check] = f"health check failed: {error}"
    return problems


ROUTES = (
    Route("GET", "/healthz", get_healthz, read_only=True),
    Route("GET", "/healthz/{check}", get_healthz, read_only=True),
)
