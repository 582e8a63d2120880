"""The configuration an agent starts with: what its files say, or the last known good one when they cannot be used.

Covers `supervisor start` and, for changes later, the process that resolves them. Loads YAML; no part of the agent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from proto.agent.settings import Settings
from proto.common import untrusted
from supervisor.config.flags.parser import Given
from supervisor.config.reload import store, watch
from supervisor.config.reload.candidate import Candidate, Entry, Resolved
from supervisor.config.reload.start import Start

if TYPE_CHECKING:
    from supervisor.config.configuration import Effective

_ATTEMPTS = 5


class Loader(NamedTuple):
    """How a command line becomes a configuration and settings (`cli.start`). Both raise CommandError."""

    configuration: Callable[[Given], Effective]
    settings: Callable[[Effective, Given], Settings]
    encoded: Callable[[Effective], msgspec.Raw]


class Choice(NamedTuple):
    """What to start with. `start` is None when there are no files that could change."""

    effective: Effective
    settings: Settings
    start: Start | None


def choose(given: Given, loader: Loader) -> Choice:
    """The files' configuration, unless it cannot be used and a last known good one of these flags can.

    Raises CommandError as the loader does.
    """
    from supervisor.cli import CommandError  # noqa: PLC0415 - the command line loads this module

    config, config_dir = given.values.get("config", ""), given.values.get("config-dir", "")
    if not (config or config_dir):
        effective = loader.configuration(given)
        return Choice(effective, loader.settings(effective, given), None)
    flags = hashlib.sha256(json.dumps(given.line).encode()).hexdigest()
    root_dir = given.values.get("root-dir") or Settings().root_dir
    saved = store.load(root_dir, flags)
    seen = watch.look(config, config_dir)
    try:
        effective, result = read(given, loader)
        why = _unusable(result.digest, saved)
    except CommandError as error:
        if saved.good is None:
            raise
        result, why = Resolved(digest=digest(config, config_dir)), error.format_message()
    bad = saved.bad
    if saved.trial and saved.good is not None and saved.trial not in (saved.good.digest, *bad):
        bad = (*bad, saved.trial)
    candidate = result.candidate or saved.good
    assert candidate is not None
    start = Start(
        arguments=given.line,
        flags=flags,
        config=config,
        config_dir=config_dir,
        seen=seen,
        candidate=candidate,
        good=saved.good,
        bad=bad,
    )
    if why:
        return _with_good(start, given, loader, result.digest, why)
    return Choice(effective, start.candidate.settings, start)


def _with_good(start: Start, given: Given, loader: Loader, refused: str, why: str) -> Choice:
    assert start.good is not None
    effective = _effective(start.good)
    candidate = msgspec.structs.replace(start.good, settings=loader.settings(effective, given))
    entry = Entry(verdict="last known good", message=f"started with the last known good configuration: {why}")
    start = msgspec.structs.replace(start, candidate=candidate, good=candidate, refused=refused, entries=(entry,))
    return Choice(effective, candidate.settings, start)


def _unusable(found: str, saved: store.Saved) -> str:
    """Why a configuration that is valid is not taken; empty when it is."""
    if saved.good is None or found == saved.good.digest:
        return ""
    if found in saved.bad:
        return "that of the files has failed before; change them to have it tried again"
    if found == saved.trial:
        return "the supervisor was killed while that of the files was on trial; change them to have it tried again"
    return ""


def read(given: Given, loader: Loader) -> tuple[Effective, Resolved]:
    """The configuration of the files, of one moment for all of them. Raises CommandError."""
    config, config_dir = given.values.get("config", ""), given.values.get("config-dir", "")
    for _ in range(_ATTEMPTS):
        before = digest(config, config_dir)
        effective = loader.configuration(given)
        if digest(config, config_dir) == before:
            break
    settings = loader.settings(effective, given)
    candidate = Candidate(
        settings=settings,
        at_start=_at_start(effective),
        configuration=loader.encoded(effective),
        digest=before,
    )
    return effective, Resolved(digest=before, candidate=candidate, notes=effective.notes)


def digest(config: str, config_dir: str) -> str:
    """Of the names and contents of all files that count; what cannot be read counts as such."""
    from supervisor.config.configuration import drop_ins  # noqa: PLC0415 - loads YAML
    from supervisor.config.kubeletconfig import loading  # noqa: PLC0415

    names = [config] if config else []
    if config_dir:
        try:
            names += drop_ins(config_dir)[0]
        except OSError as error:
            names.append(f"{config_dir}: {error.strerror}")
    found = hashlib.sha256()
    for name in names:
        try:
            content = loading.read(name)
        except loading.ReadError as error:
            content = str(error).encode(errors="replace")
        found.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
        found.update(content)
    return found.hexdigest()


def _at_start(effective: Effective) -> dict[str, Any]:
    """Fields that take effect while the agent starts."""
    from supervisor.config.kubeletconfig.mapping import EFFECTIVE  # noqa: PLC0415
    from supervisor.config.kubeletconfig.typed import encode  # noqa: PLC0415
    from supervisor.config.kubeletconfig.verdicts import verdicts  # noqa: PLC0415

    names = [name for name, found in verdicts().items() if found.kind == "effective" and name not in EFFECTIVE]
    return {name: encode.leaf(effective.config, name) for name in names}


def _effective(good: Candidate) -> Effective:
    """A saved configuration as it was when it passed the rules."""
    from supervisor.config.configuration import Effective  # noqa: PLC0415
    from supervisor.config.kubeletconfig import defaults  # noqa: PLC0415
    from supervisor.config.kubeletconfig.problems import Origin  # noqa: PLC0415
    from supervisor.config.kubeletconfig.typed import decode  # noqa: PLC0415

    plain: dict[str, Any] = untrusted.decode_json(good.configuration)
    config = defaults.apply(decode.decode(plain["configuration"]).config)
    return Effective(config, {field: Origin(text) for field, text in plain["sources"].items()}, ())
