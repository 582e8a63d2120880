"""Chooses the configuration of a starting agent: its files, or the last known good one when they cannot be used.

`supervisor start` and the process that reads changed files use it. It loads YAML, so the agent's parent never does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from proto.agent.settings import Settings
from proto.common import untrusted
from supervisor.config.flags.parser import Given
from supervisor.config.reload import look, store
from supervisor.config.reload.candidate import Candidate, Entry, Resolved
from supervisor.config.reload.start import Start
from supervisor.host import unprivileged

if TYPE_CHECKING:
    from supervisor.config.configuration import Effective

_ATTEMPTS = 5


class Loader(NamedTuple):
    """Functions that turn a command line into a configuration and settings (`cli.agent.start`).

    `configuration` and `settings` raise click.ClickException, with a message for people. `missing` gives a line for
    each file that is not there and without which no pod starts.
    """

    configuration: Callable[[Given], Effective]
    settings: Callable[[Effective, Given], Settings]
    encoded: Callable[[Effective, Given], msgspec.Raw]
    missing: Callable[[Effective], list[str]]


class Choice(NamedTuple):
    """The chosen configuration. `start` is None when there are no files that could change."""

    effective: Effective
    settings: Settings
    start: Start | None


def choose(given: Given, loader: Loader) -> Choice:
    """Load the files' configuration, or the last known good one of these flags when that cannot be used.

    Raises click.ClickException as the loader does.
    """
    config, config_dir = given.values.get("config", ""), given.values.get("config-dir", "")
    if not (config or config_dir):
        effective = loader.configuration(given)
        return Choice(effective, loader.settings(effective, given), None)
    flags = hashlib.sha256(json.dumps(given.line).encode()).hexdigest()
    saved = store.load(unprivileged.root_dir(given.values.get("root-dir", "")), flags)
    seen = look.stat_files(config, config_dir)
    try:
        effective, result = read(given, loader)
        why = _unusable(result.digest, saved)
    except click.ClickException as error:
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
    """The reason to refuse a valid configuration; empty when it is accepted."""
    if saved.good is None or found == saved.good.digest:
        return ""
    if found in saved.bad:
        return "the configuration in the files has failed before; change the files to retry"
    if found == saved.trial:
        return "the supervisor was killed during the trial of the files; change the files to retry"
    return ""


def read(given: Given, loader: Loader) -> tuple[Effective, Resolved]:
    """Read all files as of one moment. Raises click.ClickException."""
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
        configuration=loader.encoded(effective, given),
        digest=before,
        missing=tuple(loader.missing(effective)),
    )
    notes = (*effective.remarks, *effective.notes, *candidate.missing)
    return effective, Resolved(digest=before, candidate=candidate, notes=notes)


def digest(config: str, config_dir: str) -> str:
    """SHA-256 of the names and contents of all configuration files; a read error counts as content."""
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
    from supervisor.config.kubeletconfig.mapping import EFFECTIVE  # noqa: PLC0415
    from supervisor.config.kubeletconfig.typed import encode  # noqa: PLC0415
    from supervisor.config.kubeletconfig.verdicts import verdicts  # noqa: PLC0415

    names = [name for name, found in verdicts().items() if found.kind == "effective" and name not in EFFECTIVE]
    return {name: encode.leaf(effective.config, name) for name in names}


def _effective(good: Candidate) -> Effective:
    from supervisor.config.configuration import Effective  # noqa: PLC0415
    from supervisor.config.kubeletconfig import defaults  # noqa: PLC0415
    from supervisor.config.kubeletconfig.problems import Origin  # noqa: PLC0415
    from supervisor.config.kubeletconfig.typed import decode  # noqa: PLC0415

    plain: dict[str, Any] = untrusted.decode_json(good.configuration)
    config = defaults.apply(decode.decode(plain["configuration"] | plain.get("secrets", {})).config)
    return Effective(config, {field: Origin(text) for field, text in plain["sources"].items()}, ())
