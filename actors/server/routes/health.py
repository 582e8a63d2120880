"""/healthz and its checks: ping, log, syncloop.

https://kubernetes.io/docs/reference/using-api/health-checks/
"""

from __future__ import annotations

from actors._metrics import kubelet as metrics
from actors.server.base.http import Request, Response, text
from actors.server.context import Context
from actors.server.policy import Route
from proto.agent.actor import Ping
from proto.wire.errors import ActorError

SYNC_S = 5.0


async def get_healthz(context: Context, request: Request) -> Response:
    """All checks, or the check that the path names."""
    checks = {"ping": "", "log": "", "syncloop": ""}
    name = request.params.get("check", "")
    if name and name not in checks:
        return text(404, "404 page not found\n")
    if name in ("", "syncloop"):
        checks["syncloop"] = await _sync_loop(context)
    if name:
        return text(500, f"internal server error: {checks[name]}\n") if checks[name] else text(200, "ok")
    wanted = {check: problem for check, problem in checks.items() if check not in request.query.get("exclude", ())}
    for check, problem in wanted.items():
        metrics.HEALTH.set(not problem, check, "healthz")
        metrics.HEALTH_CHECKS.inc(check, "error" if problem else "success", "healthz")
    lines = [f"[-]{check} failed: {problem}" if problem else f"[+]{check} ok" for check, problem in wanted.items()]
    if any(wanted.values()):
        return text(500, "\n".join([*lines, "healthz check failed", ""]))
    return text(200, "\n".join([*lines, "healthz check passed", ""]) if "verbose" in request.query else "ok")


async def _sync_loop(context: Context) -> str:
    try:
        await context.ask_next("pod_workers", Ping(), SYNC_S)
    except ActorError as error:
        return f"sync loop health check failed: {error}"
    return ""


ROUTES = (
    Route("GET", "/healthz", get_healthz, read_only=True),
    Route("GET", "/healthz/{check}", get_healthz, read_only=True),
)
