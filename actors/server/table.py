"""The route table of each port; routes that the configuration disables answer 405."""

from __future__ import annotations

from actors.server import pods
from actors.server.base.http import Request, Response, text
from actors.server.context import Context, Handler
from actors.server.policy import Route, Table
from actors.server.routes import checkpoint, containerlogs, debug, health, metrics, page, pictures, systemlogs, zpages
from actors.server.streaming import streams
from proto.agent.settings import Settings

OPEN_ROUTES = (
    *health.ROUTES,
    *(route for route in pods.ROUTES if route.read_only),
    *metrics.ROUTES,
    *pictures.ROUTES,
    *page.ROUTES,
)
_ALL = ("GET", "POST", "PUT")


def secure_table(settings: Settings) -> Table:
    """The routes of the authenticated port."""
    if not settings.enable_debugging_handlers:
        off = ("run", "exec", "attach", "portForward", "containerLogs", "runningpods", "debug/pprof", "logs")
        return Table((*OPEN_ROUTES, *(route for name in off for route in _off(name, "Debug endpoints are disabled."))))
    return Table(
        (
            *OPEN_ROUTES,
            *(route for route in pods.ROUTES if not route.read_only),
            *containerlogs.ROUTES,
            *streams.ROUTES,
            *checkpoint.ROUTES,
            *debug.GENERAL,
            *zpages.ROUTES,
            *(systemlogs.ROUTES if settings.enable_system_log_handler else _off("logs", "logs endpoint is disabled.")),
            *(
                debug.PROFILES
                if settings.enable_profiling_handler
                else _off("debug/pprof", "profiling endpoint is disabled.")
            ),
            *(
                debug.FLAGS
                if settings.enable_debug_flags_handler
                else _off("debug/flags/v", "flags endpoint is disabled.")
            ),
        )
    )


def read_only_table() -> Table:
    """The routes of the read-only port."""
    return Table(OPEN_ROUTES)


def page_table() -> Table:
    """The routes of the page's port: page and metrics. No /pods, because a pod's environment may have secrets."""
    return Table((*health.ROUTES, *metrics.ROUTES, *pictures.ROUTES, *page.ROUTES))


def _off(name: str, why: str) -> tuple[Route, ...]:
    handler = _saying(why)
    return tuple(Route(method, pattern, handler) for method in _ALL for pattern in (f"/{name}", f"/{name}/{{rest:*}}"))


def _saying(why: str) -> Handler:
    async def say(_: Context, __: Request) -> Response:
        return text(405, f"{why}\n")

    return say
