"""The parameters of a node log query (KEP-2258): reading, validation, and the command line of journalctl. Pure.

Names, limits and kinds of errors are the kubelet's. `Unparsable` is answered with 400, `Invalid` with 406.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import NamedTuple

from actors.server.base.http import BadRequest

MOST_TAIL_LINES = 100_000
MOST_SERVICES = 4
LONGEST_SERVICE = 256
LONGEST_PATTERN = 4096
_UNSAFE = re.compile(r"[^a-zA-Z\-_.:0-9@]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d{1,9})?(Z|[+-]\d\d:\d\d)")
_BAD_PATTERN = "Bad pattern "
"""Begins journalctl's only line for a pattern that PCRE2 does not compile; its words follow the quoted pattern."""

Query = dict[str, list[str]]


class Invalid(Exception):
    """Parameters that are well-formed, but not allowed."""


class Unparsable(BadRequest):
    """A parameter of a wrong type."""


class LogQuery(NamedTuple):
    """The parameters. `options` of journalctl apply to services only."""

    services: tuple[str, ...]
    files: tuple[str, ...]
    since: datetime | None = None
    until: datetime | None = None
    tail_lines: int | None = None
    boot: int | None = None
    pattern: str = ""

    @property
    def has_options(self) -> bool:
        """True when something besides services and files is given."""
        return self[2:] != (None, None, None, None, "")

    def journalctl(self, services: list[str]) -> list[str]:
        """The command line for the services. Times are in UTC, and say so: journalctl's default is local time."""
        moments = (("since", self.since), ("until", self.until))
        numbers = () if self.tail_lines is None else ("--pager-end", f"--lines={self.tail_lines}")
        return [
            "journalctl", "--utc", "--no-pager", "--output=short-precise",
            *(f"--{name}={moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" for name, moment in moments if moment),
            *numbers,
            *(f"--unit={service}" for service in services),
            *([f"--grep={self.pattern}"] if self.pattern else ()),
            *(() if self.boot is None else ("--boot", str(self.boot))),
        ]  # fmt: skip


def parse(query: Query) -> LogQuery | None:
    """The parameters; None when there are none. Raises Unparsable. A name with a slash or backslash is a file's."""
    names = query.get("query", [])
    files = tuple(name for name in names if "/" in name or "\\" in name)
    services = tuple(name for name in names if name.strip() and name not in files)
    problems: list[str] = []
    if names and not files and not services:
        problems.append(_invalid("query", names, "query cannot be empty"))
    since, until = (_moment(name, query, problems) for name in ("sinceTime", "untilTime"))
    boot, tail_lines = (_number(name, query, problems) for name in ("boot", "tailLines"))
    if problems:
        raise Unparsable(_joined(problems))
    found = LogQuery(services, files, since, until, tail_lines, boot, query.get("pattern", [""])[0])
    return found if services or files or found.has_options else None


def check(query: LogQuery) -> None:
    """Raise Invalid with all that is not allowed."""
    if problems := [*_services(query.services), *_combination(query), *_ranges(query), *_pattern(query.pattern)]:
        raise Invalid(_joined(problems))


def pattern_check(pattern: str) -> list[str]:
    """The command line that compiles a pattern and reads no journal: /dev/null is none."""
    return ["journalctl", "--quiet", "--no-pager", "--file=/dev/null", f"--grep={pattern}"]


def judge_pattern(pattern: str, output: bytes) -> None:
    """Raise Invalid when the output of `pattern_check` calls the pattern bad. The kubelet also answers 406."""
    said = output.decode(errors="replace").strip()
    if said.startswith(_BAD_PATTERN):
        words = said.rpartition('": ')[2]
        raise Invalid(_invalid("pattern", pattern, f"error parsing regexp: {words}"))


def _moment(name: str, query: Query, problems: list[str]) -> datetime | None:
    value = query.get(name, [""])[0]
    if not value:
        return None
    try:
        if not _RFC_3339.fullmatch(value):
            raise ValueError
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        problems.append(_invalid(name, value, "invalid time format"))
        return None


def _number(name: str, query: Query, problems: list[str]) -> int | None:
    value = query.get(name, [""])[0]
    if not value:
        return None
    if _INTEGER.fullmatch(value):
        return int(value)
    problems.append(_invalid(name, value, f"strconv.Atoi: parsing {json.dumps(value)}: invalid syntax"))
    return None


def _services(services: tuple[str, ...]) -> list[str]:
    problems = []
    for service in services:
        if len(service) > LONGEST_SERVICE:
            problems.append(_invalid("query", service, f"length must be at most {LONGEST_SERVICE}"))
        elif _UNSAFE.search(service):
            problems.append(_invalid("query", service, "input contains unsupported characters"))
    if len(services) > MOST_SERVICES:
        problems.append(f"query: Too many: {len(services)}: must have at most {MOST_SERVICES} items")
    return problems


def _combination(query: LogQuery) -> list[str]:
    files, services = list(query.files), list(query.services)
    if not files:
        return [] if services else ["query: Required value: cannot be empty with options"]
    if services:
        return [_invalid("query", files + services, "cannot specify a file and service")]
    if len(files) > 1:
        return [_invalid("query", files, "cannot specify more than one file")]
    return [_invalid("query", files, "cannot specify file with options")] if query.has_options else []


def _ranges(query: LogQuery) -> list[str]:
    problems = []
    if query.since and query.until and query.since > query.until:
        problems.append(_invalid("untilTime", query.until.isoformat(), "must be after `sinceTime`"))
    if query.boot is not None and query.boot > 0:
        problems.append(_invalid("boot", query.boot, "must be less than 1"))
    if query.tail_lines is not None and not 0 <= query.tail_lines <= MOST_TAIL_LINES:
        problems.append(_invalid("tailLines", query.tail_lines, f"must be between 0 and {MOST_TAIL_LINES}, inclusive"))
    return problems


def _pattern(pattern: str) -> list[str]:
    """Bounds only: compiling a hostile pattern here takes seconds. journalctl judges it, within a deadline."""
    if "\0" in pattern or len(pattern) > LONGEST_PATTERN:
        return [_invalid("pattern", pattern[:60], f"must have at most {LONGEST_PATTERN} characters, none of them NUL")]
    return []


def _invalid(name: str, value: object, why: str) -> str:
    return f"{name}: Invalid value: {json.dumps(value)}: {why}"


def _joined(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
