"""/statusz and /flagz (KEP-4827, KEP-4828): text, and objects of config.k8s.io where Accept asks for them."""

from __future__ import annotations

import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from actors.server.base.http import JSON, Request, Response, text
from actors.server.context import Context
from actors.server.policy import Route
from proto.common import rfc3339, untrusted

READ_S = 5.0
STARTED = time.time()
VERSION = "1.36.2"
GROUP = "config.k8s.io"
VERSIONS = ("v1beta1", "v1alpha1")
"""The first is the newest; answers in an older one carry a warning."""
WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only.\n"
)
_TEXT = ("*/*", "text/*", "text/plain")


class _InForce(msgspec.Struct):
    flags: dict[str, str]


def version_of(accept: str, kind: str) -> str | None:
    """The version of `kind` that an Accept header asks for first; empty for text; None: nothing that is served."""
    for one in accept.split(",") if accept.strip() else ["*/*"]:
        media, *parameters = (part.strip() for part in one.split(";"))
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media.lower() in _TEXT and given.get("charset", "utf-8").lower() == "utf-8":
            return ""
        version = given.get("v", "")
        if media.lower() == JSON and (given.get("g"), given.get("as")) == (GROUP, kind) and version in VERSIONS:
            return version
    return None


def _answer(request: Request, kind: str, shown: str, fields: dict[str, Any]) -> Response:
    version = version_of(request.headers.get("accept", ""), kind)
    if version is None:
        offers = ", ".join(f"{JSON};v={one};g={GROUP};as={kind}" for one in VERSIONS)
        return text(406, f"this path serves text/plain, {offers}\n")
    if not version:
        return text(200, f"\nkubelet {kind.lower()}\n{WARNING}\n{shown}")
    found = {"kind": kind, "apiVersion": f"{GROUP}/{version}", "metadata": {"name": "kubelet"}, **fields}
    newest = VERSIONS[0]
    old = {} if version == newest else {"Warning": f'299 - "{GROUP}/{version} is deprecated; use {GROUP}/{newest}"'}
    return Response(200, msgspec.json.encode(found), JSON, old)


async def get_statusz(context: Context, request: Request) -> Response:
    """Start time, versions and paths of this server."""
    seconds = int(time.time() - STARTED)
    minutes = seconds // 60
    emulated, python = VERSION.rpartition(".")[0], platform.python_version()
    started = datetime.fromtimestamp(STARTED, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    shown = (
        f"Started: {started}\nUp: {minutes // 60} hr {minutes % 60:02d} min {seconds % 60:02d} sec\n"
        f"Python version: {python}\nBinary version: {VERSION}\nEmulation version: {emulated}\n"
        f"Paths: {' '.join(context.paths)}\n"
    )
    fields = {
        "startTime": rfc3339.seconds(STARTED),
        "uptimeSeconds": seconds,
        "goVersion": f"python{python}",
        "binaryVersion": VERSION,
        "emulationVersion": emulated,
        "paths": list(context.paths),
    }
    return _answer(request, "Statusz", shown, fields)


async def get_flagz(context: Context, request: Request) -> Response:
    """Every flag of the command line with its value in force: of the line, the files or the defaults."""
    path = Path(context.settings.run_dir, "configuration.json")
    try:
        flags = untrusted.decode_json(await context.blocking(READ_S, path.read_bytes), _InForce).flags
    except (OSError, msgspec.DecodeError) as error:
        return text(503, f"the flags cannot be read in the run directory: {error}\n")
    shown = "".join(f"{name}={value}\n" for name, value in sorted(flags.items()))
    return _answer(request, "Flagz", shown, {"flags": flags})


ROUTES = (Route("GET", "/statusz", get_statusz), Route("GET", "/flagz", get_flagz))
