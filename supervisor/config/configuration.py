"""Assembles the configuration from flags, --config, --config-dir and defaults, in the kubelet's precedence.

A flag wins over a drop-in, a drop-in over the file, the file over the default. Maps of files merge by key. Lists and
a flag's maps replace. Feature gates always merge. The source of each value is recorded. The module only reads files,
and loads YAML for that.

There are five differences to the kubelet. Without --config, the file's defaults apply, because the flags' defaults
would allow anonymous requests. The default thresholds of evictionHard apply without a file too. They also apply when
a drop-in sets evictionHard to null; the kubelet then has none. A drop-in may switch off a gate that a default depends
on; the kubelet then refuses its own default. And a drop-in may repeat a key, with a note; the kubelet refuses that
drop-in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from supervisor.config.flags import table
from supervisor.config.kubeletconfig import defaults, loading, validation
from supervisor.config.kubeletconfig.fields import without_effect
from supervisor.config.kubeletconfig.problems import ConfigurationError, Origin, Problem, file_name, located
from supervisor.config.kubeletconfig.typed import decode, schema
from supervisor.config.kubeletconfig.typed.scalars import ConversionError
from supervisor.config.kubeletconfig.typed.types import API_VERSION, KIND, KubeletConfiguration
from supervisor.config.kubeletconfig.validation import eviction, network
from supervisor.config.layers import EMPTY, Layer, merge, of_file, replaced, within

EXTENSION = ".conf"


class Effective(NamedTuple):
    """A configuration that has passed every rule."""

    config: KubeletConfiguration
    """The configuration with every default."""
    sources: dict[str, Origin]
    """The source of each value by its field, in Kubernetes' notation. Fields without a source have defaults."""
    notes: tuple[str, ...]
    """Warnings of values and fields without effect."""
    remarks: tuple[str, ...] = ()
    """The kubelet's warnings of values that have their effect."""

    def origins(self) -> dict[str, str]:
        """The sources as text, `FILE:LINE` or `--flag`."""
        return {field: str(origin) for field, origin in self.sources.items()}

    def source(self, field: str) -> Origin | None:
        """The source of a field's value; None for a default."""
        return self.sources.get(field)


def assemble(flags: Mapping[str, Any], config: str = "", config_dir: str = "", *, strict: bool = False) -> Effective:
    """The configuration of plain flag values by field, a file and a directory of drop-ins.

    Unknown fields and repeated keys are notes; when `strict`, they are errors. Repeated keys of a drop-in always are.
    Raises ConfigurationError with all errors: first those of single files, and without such, those of the whole.
    """
    files, notes = _files(config, config_dir)
    errors = [problem for loaded in files for problem in (loaded.problems() if strict else loaded.errors)]
    notes += [str(problem) for loaded in files for problem in (() if strict else loaded.ignored)]
    notes += [str(problem) for loaded in files for problem in loaded.warnings]
    if errors:
        raise ConfigurationError(errors)
    base, patches = (files[0], files[1:]) if config else (None, files)
    layer = _with_thresholds(merge(EMPTY, of_file(base)) if base else EMPTY)
    notes += [note for loaded in patches for note in _unmerged_thresholds(loaded)]
    if patches:
        layer = _with_defaults(layer, base.config if base else KubeletConfiguration())
    for loaded in patches:
        layer = merge(layer, of_file(loaded))
    decoded = decode.decode({"apiVersion": API_VERSION, "kind": KIND, **layer.value})
    written = _written(decoded.config, layer.sources)
    effective, problems = _with_flags(defaults.apply(decoded.config, flags.get("featureGates")), written, flags)
    problems = [*decoded.problems, *problems, *validation.validate(effective.config)]
    if problems:
        raise ConfigurationError(located(problems, effective.sources))
    notes += [*layer.notes, *effective.notes]
    found = [*validation.warnings(effective.config), *without_effect(effective.config)]
    found = located(found, effective.sources)
    config_now = msgspec.structs.replace(
        effective.config,
        eviction_hard=eviction.hard(effective.config),
        healthz_bind_address=network.healthz_ip(effective.config),
    )
    return effective._replace(
        config=config_now,
        notes=(*notes, *(str(one) for one in found if not one.is_remark)),
        remarks=tuple(str(one) for one in found if one.is_remark),
    )


def _files(config: str, config_dir: str) -> tuple[list[loading.Loaded], list[str]]:
    files = [loading.load(config)] if config else []
    if not config_dir:
        return files, []
    try:
        names, others = drop_ins(config_dir)
    except OSError as error:
        problem = Problem(
            "", f"cannot be read: {error.strerror}; give a directory with --config-dir", file_name(config_dir)
        )
        raise ConfigurationError([*(files[0].errors if files else ()), problem]) from error
    notes = [f"{file_name(name)}: ignored, a drop-in has to end in {EXTENSION}" for name in others]
    return files + [loading.load(name, drop_in=True) for name in names], notes


def drop_ins(directory: str) -> tuple[list[str], list[str]]:
    """The drop-ins below a directory in their order, and the other files. Raises OSError.

    The order is lexical, with a directory's files at the place of its name. Names that begin with two dots are left
    out, because in a ConfigMap volume the files are links into such a directory.
    """
    names: list[str] = []
    others: list[str] = []
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        if entry.name.startswith(".."):
            continue
        if entry.is_dir(follow_symlinks=False):
            inner_names, inner_others = drop_ins(entry.path)
            names += inner_names
            others += inner_others
        else:
            (names if os.path.splitext(entry.name)[1] == EXTENSION else others).append(entry.path)
    return names, others


def _with_defaults(layer: Layer, config: KubeletConfiguration) -> Layer:
    """Add the defaults that drop-ins find, as the kubelet does.

    Those are defaults that depend on other fields: a drop-in that sets such a field does not change them.
    """
    settled = defaults.before_drop_ins(config)
    # A written zero means the default, and has no source then.
    sources = {field: origin for field, origin in layer.sources.items() if field not in settled}
    return layer._replace(value=layer.value | settled, sources=sources)


def _with_thresholds(layer: Layer) -> Layer:
    """Settle the hard thresholds of the --config file. Drop-ins add to them or remove some; a flag replaces them."""
    merged = bool(layer.value.get("mergeDefaultEvictionSettings"))
    hard = eviction.in_file(layer.value.get("evictionHard"), merged=merged)
    return layer._replace(value=layer.value | {"evictionHard": hard})


def _unmerged_thresholds(drop_in: loading.Loaded) -> Iterator[str]:
    field = "mergeDefaultEvictionSettings"
    if drop_in.value.get(field):
        origin = drop_in.sources.get(field, drop_in.file)
        yield f"{origin}: {field}: has no effect in a drop-in; set it in the --config file"


def _written(config: KubeletConfiguration, sources: Mapping[str, Origin]) -> dict[str, Origin]:
    """The sources without fields whose written zero means the default."""
    absent = {field for field in sources if field in schema.leaves() and defaults.is_absent(config, field)}
    return {field: origin for field, origin in sources.items() if field not in absent}


def _with_flags(
    config: KubeletConfiguration, sources: Mapping[str, Origin], flags: Mapping[str, Any]
) -> tuple[Effective, list[Problem]]:
    """Apply flags to a configuration with defaults. An explicit zero of a flag stays zero."""
    problems, notes = [], []
    sources_now = dict(sources)
    by_field = table.by_field()
    for field, plain in flags.items():
        origin = Origin(f"--{by_field[field].name}")
        try:
            value = decode.convert(field, plain)
        except ConversionError as error:
            problems.append(Problem(field, str(error), origin.file))
            continue
        if field == "seccompDefault" and not value:
            continue  # either the flag or the field enables it; neither disables it
        if field == "featureGates":
            value = (config.feature_gates or {}) | value
            sources_now |= {f"{field}.{name}": origin for name in plain}
        elif field == "logging.vmodule":
            # The kubelet parses the flag over the file's list, and the flag appends (logs/api/v1/pflags.go).
            value = (*(config.logging.vmodule or ()), *(value or ()))
        else:
            if field in sources_now and isinstance(value, tuple | dict) and value != schema.get(config, field):
                notes.append(replaced(field, sources_now[field], origin))
            sources_now = {at: there for at, there in sources_now.items() if not within(at, field)}
        sources_now[field] = origin
        config = schema.replace(config, field, value)
    return Effective(config, sources_now, tuple(notes)), problems
