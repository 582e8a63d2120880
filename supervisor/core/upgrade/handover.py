"""The state that a supervisor hands to its next self across exec: processes with pidfds, lock, and the upgrade."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any

import msgspec

from proto.agent import registry
from proto.agent.settings import Settings
from proto.common import untrusted
from supervisor.core.upgrade.release import Release
from supervisor.supervision import specs
from supervisor.supervision.specs import ChildSpec

VERSION = 1
PROBLEM = "NODEVISOR_UPGRADE_PROBLEM"
"""Variable with the reason why a next self did not start."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP)
"""Blocked from before exec until the next self handles them."""

committed = False
"""True once this process has taken the handover: from then on it does not go back by itself."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A child of the supervisor. Times are monotonic. Without a pid the next self starts it."""

    name: str
    incarnation: int
    pid: int = 0
    pidfd: int = -1
    ready: float = 0.0
    starts: int = 0
    deaths: int = 0
    last_death: str = ""
    held: bool = False
    """An operator has stopped it."""


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade under way. `moved`: actors that have run the release of `to`; only these restart on the way back."""

    origin: Release
    to: Release
    back: bool = False
    problem: str = ""
    moved: tuple[str, ...] = ()


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the next self takes over."""

    version: int = VERSION
    children: tuple[Held, ...] = ()
    lock: int = -1
    """Descriptor of the run directory's lock."""
    listeners: tuple[int, ...] = ()
    started: float = 0.0
    """Monotonic start of the first supervisor of this pid."""
    known: tuple[str, ...] = ()
    """Every actor that the former release knows."""
    journey: Journey | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Every descriptor in it."""
        return (*(child.pidfd for child in self.children if child.pidfd >= 0), self.lock, *self.listeners)


def take(given: Handover) -> None:
    """Keep the descriptors from children of this process."""
    for descriptor in given.descriptors:
        os.set_inheritable(descriptor, False)


def adapted(given: Iterable[ChildSpec], handover: Handover, settings: Settings) -> tuple[ChildSpec, ...]:
    """The specs of the former release, without actors that this one lacks, and with its new ones."""
    kept = tuple(spec for spec in given if spec.name in registry.NAMES)
    new = registry.NAMES - set(handover.known)
    parts = specs.parts_of(settings)
    added = [spec for spec in specs.builtin(settings.heartbeat_period_s, parts) if spec.name in new]
    names = [spec.name for spec in (*kept, *added)]
    return specs.validate(specs.select((*kept, *added), names))


def tolerant(content: bytes) -> bytes:
    """A plan without settings that this release does not have: the former one may be newer."""
    plain = untrusted.decode_json(content)
    start = plain.get("reload") or {}
    for place in (plain, start.get("candidate"), start.get("good")):
        if isinstance(place, dict) and isinstance(place.get("settings"), dict):
            place["settings"] = _known(place["settings"])
    return msgspec.json.encode(plain)


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in Settings.__struct_fields__}
