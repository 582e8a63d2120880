"""Writes Prometheus' text format, version 0.0.4, which the kubelet serves for any Accept header.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format. OpenMetrics would add _total to a
counter's name, so dashboards would not find `kubelet_evented_pleg_connection_error_count`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from actors._metrics.registry import Family, Labels, Numbers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SPECIAL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def escaped(value: str) -> str:
    """A label value for quotes. Surrogates, which stand for undecodable bytes, become question marks."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return value.translate(_SPECIAL)


def label_text(names: Iterable[str], values: Iterable[str]) -> str:
    """`a="1",b="2"`; empty without labels."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))


def number(value: float) -> str:
    """A value as text; whole numbers have no point."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def bound(value: float) -> str:
    """A bucket's bound as Go prints it, because queries compare it as text: 0.005, 1, 1.048576e+06."""
    digits, _, exponent = f"{value:.17e}".partition("e")
    if -4 <= int(exponent) < 6:
        return number(value)
    shortest = repr(value)
    mantissa = next(text for text in (f"{value:.{places}e}" for places in range(17)) if float(text) == float(shortest))
    digits, _, exponent = mantissa.partition("e")
    return f"{digits}e{exponent}"


def header(name: str, kind: str, help_text: str) -> str:
    """The two lines before a family's samples."""
    escaped_help = help_text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped_help}\n# TYPE {name} {kind}\n"


def family_text(family: Family, samples: Mapping[Labels, Numbers]) -> str:
    """A family with its samples, ordered by labels. A family without labels is shown before its first sample."""
    if not samples:
        if family.labels:
            return ""
        samples = {(): (0.0,) * family.width}
    lines = [header(family.name, family.kind, family.help)]
    for values, numbers in sorted(samples.items()):
        labels = label_text(family.labels, values)
        if family.kind == "histogram":
            lines.append(_histogram(family, labels, numbers))
        else:
            lines.append(f"{family.name}{_braced(labels)} {number(numbers[0])}\n")
    return "".join(lines)


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _histogram(family: Family, labels: str, numbers: Numbers) -> str:
    name, before = family.name, f"{labels}," if labels else ""
    lines, total = [], 0.0
    for upper, count in zip((*map(bound, family.bounds), "+Inf"), numbers[:-1], strict=True):
        total += count
        lines.append(f'{name}_bucket{{{before}le="{upper}"}} {number(total)}\n')
    lines.append(f"{name}_sum{_braced(labels)} {number(numbers[-1])}\n")
    lines.append(f"{name}_count{_braced(labels)} {number(total)}\n")
    return "".join(lines)


def families_text(families: Iterable[Family], samples: Mapping[str, Mapping[Labels, Numbers]]) -> bytes:
    """All families, ordered by name."""
    ordered = sorted(families, key=lambda family: family.name)
    return "".join(family_text(family, samples.get(family.name, {})) for family in ordered).encode()
