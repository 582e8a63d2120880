"""/metrics, /metrics/cadvisor, /metrics/resource, /metrics/probes, /metrics/slis and /stats/summary."""

from __future__ import annotations

import zlib
from typing import Literal

from actors._metrics import kubelet, process
from actors._metrics.text import CONTENT_TYPE, families_text
from actors.server.base.http import JSON, Request, Response, text
from actors.server.context import Context
from actors.server.figures.collect import FAMILIES
from actors.server.policy import Route
from proto.node.stats import GetExposition, GetSummary

STATS_S = 30.0
"""A reading takes milliseconds, and some seconds while stats walks the disks."""
PACK_S = 10.0
_AS_GZIP = 16 + zlib.MAX_WBITS


async def get_metrics(context: Context, request: Request) -> Response:
    """The merged metrics of all processes, and the metrics of the processes themselves."""
    return await _page(context, request, families_text(FAMILIES, await context.collector.samples()))


async def get_probes(context: Context, request: Request) -> Response:
    """Results and durations of probes."""
    families = (*kubelet.PROBES, *process.STARTED)
    return await _page(context, request, families_text(families, await context.collector.samples()))


async def get_slis(context: Context, request: Request) -> Response:
    """Results of the health checks that this process answered (KEP-3466)."""
    return await _page(context, request, families_text(kubelet.SLIS, kubelet.SLIS.take()))


async def reset_slis(_: Context, __: Request) -> Response:
    """Reset the health check metrics."""
    kubelet.SLIS.clear()
    return text(200, "metrics reset\n")


async def _page(context: Context, request: Request, data: bytes) -> Response:
    """The page, compressed for clients that accept gzip, as Prometheus and metrics-server do."""
    if not request.takes_gzip:
        return Response(200, data, CONTENT_TYPE)
    return Response(200, await context.blocking(PACK_S, packed, data), CONTENT_TYPE, {"Content-Encoding": "gzip"})


def packed(data: bytes) -> bytes:
    """The data as gzip; takes some 7 ms for 1 MB."""
    packer = zlib.compressobj(level=1, wbits=_AS_GZIP)
    return packer.compress(data) + packer.flush()


async def _exposition(context: Context, request: Request, page: Literal["resource", "cadvisor"]) -> Response:
    return await _page(context, request, (await context.ask_next("stats", GetExposition(page=page), STATS_S)).data)


async def get_resource(context: Context, request: Request) -> Response:
    """CPU and memory, as metrics-server reads them."""
    return await _exposition(context, request, "resource")


async def get_cadvisor(context: Context, request: Request) -> Response:
    """The usage of every cgroup, under cAdvisor's names."""
    return await _exposition(context, request, "cadvisor")


async def get_summary(context: Context, request: Request) -> Response:
    """Usage of the node, its pods and containers; with only_cpu_and_memory=true, no other figures."""
    only = request.query.get("only_cpu_and_memory") == ["true"]
    found = await context.ask_next("stats", GetSummary(only_cpu_and_memory=only), STATS_S)
    return Response(200, found.data, JSON)


ROUTES = (
    Route("GET", "/metrics", get_metrics, read_only=True),
    Route("GET", "/metrics/cadvisor", get_cadvisor, read_only=True),
    Route("GET", "/metrics/resource", get_resource, read_only=True),
    Route("GET", "/metrics/probes", get_probes, read_only=True),
    Route("GET", "/metrics/slis", get_slis, read_only=True),
    Route("DELETE", "/metrics/slis", reset_slis, read_only=True),
    Route("GET", "/stats/summary", get_summary, read_only=True),
    Route("POST", "/stats/summary", get_summary, read_only=True),
)
