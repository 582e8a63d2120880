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
"""One reading takes milliseconds; a node whose disks are being walked, some seconds."""
PACK_S = 10.0
_AS_GZIP = 16 + zlib.MAX_WBITS
TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""What Go's strconv.ParseBool takes for yes."""


async def get_metrics(context: Context, request: Request) -> Response:
    """Every process's metrics, merged, and what is said of them."""
    return await _page(context, request, families_text(FAMILIES, await context.collector.samples()))


async def get_probes(context: Context, request: Request) -> Response:
    """Results and durations of probes."""
    families = (*kubelet.PROBES, *process.STARTED)
    return await _page(context, request, families_text(families, await context.collector.samples()))


async def get_slis(context: Context, request: Request) -> Response:
    """How health checks turned out, of those that this process was asked for."""
    return await _page(context, request, families_text(kubelet.SLIS, kubelet.SLIS.take()))


async def reset_slis(_: Context, __: Request) -> Response:
    """Count anew."""
    kubelet.SLIS.clear()
    return text(200, "metrics reset\n")


async def _page(context: Context, request: Request, data: bytes) -> Response:
    """Packed for those who take gzip, as the kubelet does: Prometheus and metrics-server do."""
    if not request.takes_gzip:
        return Response(200, data, CONTENT_TYPE)
    return Response(200, await context.blocking(PACK_S, packed, data), CONTENT_TYPE, {"Content-Encoding": "gzip"})


def packed(data: bytes) -> bytes:
    """As gzip, in some 7 ms for 1 MB."""
    packer = zlib.compressobj(level=1, wbits=_AS_GZIP)
    return packer.compress(data) + packer.flush()


async def _exposition(context: Context, request: Request, page: Literal["resource", "cadvisor"]) -> Response:
    return await _page(context, request, (await context.ask("stats", GetExposition(page=page), STATS_S)).data)


async def get_resource(context: Context, request: Request) -> Response:
    """CPU and memory, as metrics-server reads them."""
    return await _exposition(context, request, "resource")


async def get_cadvisor(context: Context, request: Request) -> Response:
    """Every cgroup's figures."""
    return await _exposition(context, request, "cadvisor")


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
    Route("GET", "/metrics/slis", get_slis, read_only=True),
    Route("DELETE", "/metrics/slis", reset_slis, read_only=True),
    Route("GET", "/stats/summary", get_summary, read_only=True),
    Route("POST", "/stats/summary", get_summary, read_only=True),
)
