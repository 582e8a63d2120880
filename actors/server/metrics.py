"""/metrics, /metrics/cadvisor, /metrics/resource, /metrics/probes and /stats/summary."""

from __future__ import annotations

from typing import Literal

from actors._metrics import kubelet, process
from actors._metrics.text import CONTENT_TYPE, families_text
from actors.server.collect import FAMILIES, Collector
from actors.server.http import JSON, Context, Request, Response
from actors.server.policy import Route
from proto.stats import GetExposition, GetSummary

STATS_S = 30.0
"""One reading takes milliseconds; a node whose disks are being walked, some seconds."""
TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""What Go's strconv.ParseBool takes for yes."""


def collector(context: Context) -> Collector:
    """The one of this server."""
    found: Collector = context.services["collector"]
    return found


async def get_metrics(context: Context, _: Request) -> Response:
    """Every process's metrics, merged, and what is said of them."""
    return Response(200, families_text(FAMILIES, await collector(context).samples()), CONTENT_TYPE)


async def get_probes(context: Context, _: Request) -> Response:
    """Results and durations of probes."""
    families = (*kubelet.PROBES, *process.STARTED)
    return Response(200, families_text(families, await collector(context).samples()), CONTENT_TYPE)


async def _exposition(context: Context, page: Literal["resource", "cadvisor"]) -> Response:
    found = await context.ask("stats", GetExposition(page=page), STATS_S)
    return Response(200, found.data, CONTENT_TYPE)


async def get_resource(context: Context, _: Request) -> Response:
    """CPU and memory, as metrics-server reads them."""
    return await _exposition(context, "resource")


async def get_cadvisor(context: Context, _: Request) -> Response:
    """Every cgroup's figures."""
    return await _exposition(context, "cadvisor")


async def get_summary(context: Context, request: Request) -> Response:
    """The node, its pods and their containers. With only_cpu_and_memory=true, those two alone."""
    only = request.first("only_cpu_and_memory") in TRUE
    found = await context.ask("stats", GetSummary(only_cpu_and_memory=only), STATS_S)
    return Response(200, found.data, JSON)


ROUTES = (
    Route("GET", "/metrics", get_metrics, read_only=True),
    Route("GET", "/metrics/cadvisor", get_cadvisor, read_only=True),
    Route("GET", "/metrics/resource", get_resource, read_only=True),
    Route("GET", "/metrics/probes", get_probes, read_only=True),
    Route("GET", "/stats/summary", get_summary, read_only=True),
    Route("POST", "/stats/summary", get_summary, read_only=True),
)
