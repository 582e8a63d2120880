"""Chooses the container runtime of a start: the configured one, that of the running pods, or one found here."""

from __future__ import annotations

import logging
import os
import time

import msgspec

from proto.agent.settings import Settings
from proto.common import logs
from proto.node import runtime
from supervisor.cli.errors import CommandError
from supervisor.host import endpoint, last_start
from supervisor.ownership.policy import RuntimeFacts, lost_runtime

log = logging.getLogger(__name__)

PATIENCE_S = 20.0
"""A runtime of the last start that is away gets this time to answer, before another one is chosen. After a reboot both
start beside each other."""
_POLL_S = 0.5


def with_runtime(settings: Settings) -> Settings:
    """The settings with a runtime endpoint: the configured one, which the agent waits for, or one found here.

    Without a configured one, pods that run keep their runtime, also while it does not answer. Raises CommandError.
    """
    configured = settings.container_runtime_endpoint
    if configured == runtime.EMBEDDED:
        return _with_embedded_runtime(settings, "as configured")
    if configured:
        return _with_socket(settings, socket_url(configured), "as configured")
    from supervisor.ownership import starting  # noqa: PLC0415 - a configured runtime does not need it

    try:
        last = starting.runtime_facts(settings)
    except starting.OwnershipError as error:
        raise CommandError(str(error)) from error
    if last.alive and last.former == runtime.EMBEDDED:
        return _with_embedded_runtime(settings, f"it runs pods of the last start: {last.alive}")
    if last.alive and last.former:
        return _with_socket(settings, last.former, f"it runs pods of the last start: {last.alive}")
    if last.alive and last.damaged:
        raise CommandError(f"cannot start: {lost_runtime(last)}")
    return _with_found(settings, last)


def _with_found(settings: Settings, last: RuntimeFacts) -> Settings:
    """The settings with the last start's runtime if it answers, else with the first usual one, else the embedded."""
    try:
        found = _answering_again(last.former) or endpoint.find()
    except endpoint.NoRuntime as error:
        if last.alive:
            raise CommandError(f"cannot start: {lost_runtime(last)}") from error
        if isinstance(error, endpoint.SearchFailed):
            log.warning("%s", error)
            return _with_embedded_runtime(settings, "the search for another one failed")
        log.debug("%s", error)
        return _with_embedded_runtime(settings, "none of the usual endpoints answers; -v=4 logs their errors")
    how = "as at the last start" if found.endpoint == last.former else "the first of the usual endpoints that answers"
    log.log(logs.NOTICE, "container runtime: %s (%s %s, CRI %s), %s", *found[:4], how)
    return _with_driver(
        msgspec.structs.replace(settings, container_runtime_endpoint=found.endpoint), found.cgroup_driver
    )


def _answering_again(former: str) -> endpoint.Runtime | None:
    """The last start's runtime, once it answers; None without it, and after `PATIENCE_S`."""
    if former in ("", runtime.EMBEDDED):
        return None
    path, deadline, said = former.removeprefix("unix://"), time.monotonic() + PATIENCE_S, False
    while True:
        if os.path.exists(path):
            try:
                return endpoint.find(former)
            except endpoint.NoRuntime as error:
                log.debug("%s", error)
        if time.monotonic() >= deadline:
            log.warning("container runtime %s of the last start does not answer; no pod runs, choosing anew", former)
            return None
        if not said:
            said = True
            log.log(logs.NOTICE, "waiting %g s for %s, the container runtime of the last start", PATIENCE_S, former)
        time.sleep(_POLL_S)


def _with_socket(settings: Settings, url: str, why: str) -> Settings:
    """The settings with a runtime that need not answer yet, and its driver."""
    log.log(logs.NOTICE, "container runtime: %s, %s", url, why)
    settings = msgspec.structs.replace(settings, container_runtime_endpoint=url)
    return _with_driver(settings, _driver_of(url))


def _driver_of(url: str) -> str | None:
    """The cgroup driver of a runtime with a known endpoint; empty when it has no name for it, None without answer."""
    if not os.path.exists(url.removeprefix("unix://")):
        return None  # no wait: the agent starts without its runtime, too
    try:
        return endpoint.find(url).cgroup_driver
    except endpoint.NoRuntime as error:
        log.warning("cannot ask the container runtime for its cgroup driver: %s", error)
        return None


def _with_driver(settings: Settings, driver: str | None) -> Settings:
    """The settings with the runtime's cgroup driver, which wins over the configuration (KEP-4033).

    Without an answer in time the driver counts that this runtime told last. pod_workers starts no pod before the
    runtime has confirmed it. Else an agent that ends for the right driver might take the wrong one again.
    """
    if driver is None:
        driver = _last_driver(settings)
    if driver in ("", settings.cgroup_driver):
        return settings
    log.log(
        logs.NOTICE, "cgroup driver: %s, the container runtime's, not %s (cgroupDriver)", driver, settings.cgroup_driver
    )
    return msgspec.structs.replace(settings, cgroup_driver=driver)


def _last_driver(settings: Settings) -> str:
    try:
        last = last_start.read(settings.root_dir)
    except last_start.DamagedError:
        return ""  # the look at the runtime of running pods reports it
    return last.cgroup_driver if last is not None and last.endpoint == last_start.endpoint_of(settings) else ""


def _with_embedded_runtime(settings: Settings, why: str) -> Settings:
    """The settings with the embedded runtime's endpoint, for which plan_of then adds an actor."""
    found = runtime.endpoint(settings.run_dir)
    log.log(logs.NOTICE, "container runtime: embedded, at %s (%s)", found, why)
    return msgspec.structs.replace(settings, container_runtime_endpoint=found)


def socket_url(endpoint: str) -> str:
    """The endpoint as unix:///PATH, also from unix:/PATH and a bare path, as in the kubelet. Raises CommandError."""
    path = endpoint.removeprefix("unix:").removeprefix("//") if endpoint.startswith("unix:") else endpoint
    if not path.startswith("/") or path == "/":
        raise CommandError(f"cannot use container runtime endpoint {endpoint!r}: write unix:///PATH/TO/SOCKET")
    return f"unix://{path}"


def remember(settings: Settings) -> None:
    """Keep this start's choices for the next one, before any pod starts. Raises CommandError.

    A file that names another runtime, or is damaged, must not stay: the next start would choose wrongly.
    """
    try:
        last_start.keep(settings)
    except OSError as error:
        text = f"cannot write {last_start.path(settings.root_dir)}, which names the container runtime: {error.strerror}"
        if not _harmless(settings):
            raise CommandError(f"cannot start: {text}; free space there") from error
        log.error("%s; free space there: without it the next start may choose another runtime", text)


def _harmless(settings: Settings) -> bool:
    """True when the file that stays is not there, or names the same runtime."""
    try:
        last = last_start.read(settings.root_dir)
    except last_start.DamagedError:
        return False
    return last is None or last.endpoint == last_start.endpoint_of(settings)


def note_renamed(settings: Settings, *, chosen: bool) -> None:
    """Warn of another node name than at the last start. `chosen`: the operator gave it."""
    try:
        last = last_start.read(settings.root_dir)
    except last_start.DamagedError:
        return
    if last is None or chosen or last.node_name in ("", settings.node_name):
        return
    log.warning(
        "by the host's name the node is %s; the pods of %s, its last name, are ended; to keep them, start with "
        "--hostname-override=%s",
        settings.node_name,
        last.node_name,
        last.node_name,
    )
