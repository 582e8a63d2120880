"""The facts about a release that decide whether the present one can hand over to it: printed as JSON by `main`.

It runs in the next release, in a process of its own, and imports every actor. So an upgrade to a release that cannot
start is refused before anything changes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import msgspec

from proto.agent import registry
from proto.agent.settings import Settings
from proto.common import untrusted
from proto.wire import envelope
from supervisor.core.upgrade import handover

_CHECKPOINTS = ("CHECKPOINT_VERSION", "VERSION")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One release."""

    place: str = ""
    handover: int
    protocol: int
    actors: tuple[str, ...]
    settings: tuple[str, ...]
    """Names of the settings that it knows."""
    checkpoints: dict[str, int] = {}
    """Version of the checkpoint format that each module reads."""
    broken: dict[str, str] = {}
    """Actors that cannot be imported, each with the error."""


def here() -> Facts:
    """The facts about the release of this process."""
    broken = {}
    for name in sorted(registry.NAMES):
        try:
            importlib.import_module(f"actors.{name}.actor")
        except Exception as error:
            broken[name] = f"{type(error).__name__}: {error}"
    versions = {
        name: version
        for name, module in sorted(sys.modules.items())
        if name.startswith("actors.") and hasattr(module, "checkpoint") | hasattr(module, "CheckpointFile")
        for key in _CHECKPOINTS
        if isinstance(version := getattr(module, key, None), int)
    }
    return Facts(
        handover=handover.VERSION,
        protocol=envelope.VERSION,
        actors=tuple(sorted(registry.NAMES)),
        settings=Settings.__struct_fields__,
        checkpoints=versions,
        broken=broken,
    )


def problems(present: Facts, following: Facts) -> tuple[list[str], list[str]]:
    """The reasons against an upgrade, and remarks."""
    against = [f"actor {name} cannot be imported: {error}" for name, error in following.broken.items()]
    if following.handover != present.handover:
        against.append(f"it takes over by format {following.handover}, this release hands over by {present.handover}")
    if following.protocol != present.protocol:
        against.append(f"its actors speak protocol {following.protocol}, those of this release {present.protocol}")
    remarks = [
        f"{module} would start without its checkpoints of version {version}: it reads {following.checkpoints[module]}"
        for module, version in present.checkpoints.items()
        if following.checkpoints.get(module, version) < version
    ]
    for what, names in {
        "it does not have the actors": set(present.actors) - set(following.actors),
        "it has the new actors": set(following.actors) - set(present.actors),
        "it does not know the settings": set(present.settings) - set(following.settings),
    }.items():
        if names:
            remarks.append(f"{what} {', '.join(sorted(names))}")
    return against, remarks


def decoded(content: bytes) -> Facts:
    """The facts that another release has printed. Raises msgspec.DecodeError."""
    return untrusted.decode_json(content, Facts)


def main(_: Sequence[str]) -> int:
    """Print the facts."""
    sys.stdout.buffer.write(msgspec.json.encode(here()) + b"\n")
    return 0
