"""The ownership check of `supervisor start`, before it changes the host: take locks, collect facts, decide."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from actors._cgroup.hierarchy import Hierarchy, hierarchy
from proto.agent.settings import Settings
from proto.common import logs
from supervisor.host import last_start
from supervisor.ownership import facts, places, pods, ports
from supervisor.ownership.claims import Claims
from supervisor.ownership.held_claims import HeldClaim
from supervisor.ownership.policy import Own, RuntimeFacts, decide

log = logging.getLogger(__name__)


class OwnershipError(Exception):
    """The agent may not start. The text names the other agent, its places and a remedy."""


def ports_of(settings: Settings, healthz_address: str, healthz_port: int) -> list[ports.Wanted]:
    """The ports in the settings. Port 0 means none."""
    own = {"--page-address": settings.page_address, "--console-address": settings.console_address}
    found = [
        ports.Wanted("--port", settings.server_address, settings.server_port),
        ports.Wanted("--read-only-port", settings.server_address, settings.read_only_port),
        ports.Wanted("--healthz-port", healthz_address, healthz_port),
        *(_wanted(flag, place) for flag, place in own.items()),
    ]
    return [one for one in found if one.number]


def _wanted(flag: str, place: str) -> ports.Wanted:
    address, _, number = place.rpartition(":")
    return ports.Wanted(flag, address.strip("[]") or "127.0.0.1", int(number or 0))


def runtime_facts(settings: Settings) -> RuntimeFacts:
    """The container runtime of the last start, and if pods of ours run. Raises OwnershipError."""
    try:
        found = facts.last_runtime(settings, _tree())
    except OSError as error:
        raise OwnershipError(f"cannot start: cannot find out if pods of ours run: {error}; try again") from error
    if found.damaged:
        log.warning("%s; the last start's container runtime is %s", found.damaged, found.former or "not known")
    return found


def _tree() -> Hierarchy:
    try:
        return hierarchy()
    except (OSError, ValueError, IndexError) as error:
        log.warning("cannot read where cgroups are mounted: %s; the cgroup of the pods is not claimed", error)
        return Hierarchy(unified=False, mounts={})


def claim(settings: Settings, wanted: Sequence[ports.Wanted], *, take_over: bool) -> tuple[HeldClaim, ...]:
    """Lock everything that the agent owns, for as long as it runs. Raises OwnershipError."""
    tree = _tree()
    claims = Claims()
    try:
        claims.take(places.places(settings, tree))
        seen = facts.collect(settings, tree, claims, wanted)
        endpoint = last_start.endpoint_of(settings)
        own = Own(os.geteuid(), os.path.realpath(settings.run_dir), settings.root_dir, take_over, endpoint)
        decision = decide(seen, own)
        for warning in decision.warnings:
            log.warning("%s", warning)
        if decision.refusal:
            raise OwnershipError(decision.refusal)
        if decision.adopted:
            pods.adopt(settings.root_dir, decision.adopted)
            log.log(logs.NOTICE, "took over %d pods of another agent: %s", len(seen.pods), ", ".join(decision.adopted))
    except OwnershipError:
        claims.release()
        raise
    except Exception as error:  # the input is other processes'; without a decision the agent must not start
        claims.release()
        raise OwnershipError(
            f"cannot start: cannot find out if another agent serves this machine: {error!r}; try again, and "
            "report this if it persists"
        ) from error
    return tuple(HeldClaim(one.place.path, one.descriptor, one.place.cgroup) for one in claims.taken)
