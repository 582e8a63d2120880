"""The output of `supervisor run`: a live table on a terminal, else a line for each change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from proto.common.safe_text import one_line, shown
from proto.pods.pod_columns import Columns, columns, is_ready
from proto.v1 import Pod
from supervisor.cli.views import render
from supervisor.cli.views.pod_changes import PodChanges

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

HEADERS = ("NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP")
RIGHT = frozenset({"RESTARTS", "AGE"})
BAD = ("BackOff", "Err", "Fail", "Evicted", "Unknown", "OOM")
DONE = ("Completed", "Succeeded")
GAP = 3
STATUS_CHARS = 11
"""Minimum width of STATUS, that of `Terminating`."""


class View(Protocol):
    """An output of pods and remarks."""

    def show(self, pods: Sequence[Pod], elapsed_s: float) -> None:
        """Show the pods as they are now, `elapsed_s` after the start."""

    def say(self, text: str, *, error: bool = False) -> None:
        """Show a permanent remark."""

    def advise(self, text: str) -> None:
        """Show the advice on the pods, in place of the former advice; empty: none."""

    def close(self) -> None:
        """End the output."""


def choose() -> View:
    """The view for standard output."""
    return Screen() if render.colours() else Lines()


def is_settled(pod: Pod) -> bool:
    """True when the pod is ready or has succeeded."""
    return is_ready(pod) or pod.status.phase == "Succeeded"


def style(status: str, *, ready: bool) -> str:
    """The colour of a STATUS, with a name that Rich and click have."""
    if status in DONE or (status == "Running" and ready):
        return "green"
    return "red" if any(word in status for word in BAD) else "yellow"


def _name(line: Columns) -> str:
    return line.name if line.namespace == "default" else f"{line.namespace}/{line.name}"


class Lines:
    """A line for each change, with the seconds since the start, for files, pipes and plain terminals."""

    def __init__(self) -> None:
        self._changes = PodChanges()
        self._width = 24
        self._advice = ""

    def show(self, pods: Sequence[Pod], elapsed_s: float) -> None:
        """Print a line for each pod that changed."""
        changed, removed = self._changes.since_last(pods, time.time())
        states = [(line, f"{line.ready:<5}  {line.status:<18}  {_rest(line)}".rstrip()) for line, _ in changed]
        for line, state in [*states, *((line, "gone") for line in removed)]:
            name = _name(line)
            self._width = max(self._width, len(name))
            render.echo(f"{elapsed_s:6.1f}s  {name:<{self._width}}  {state}")

    def say(self, text: str, *, error: bool = False) -> None:
        """Print a remark."""
        render.echo(text, err=error)

    def advise(self, text: str) -> None:
        """Print new advice once."""
        if text and text != self._advice:
            render.echo(text, err=True)
        self._advice = text

    def close(self) -> None:
        """Nothing to do."""


def _rest(line: Columns) -> str:
    parts = [] if line.ip == "<none>" else [line.ip]
    if line.restarts.partition(" ")[0] != "0":
        parts.append(f"restarts {line.restarts}")
    return "  ".join(parts)


class Mute:
    """No output, after the terminal or pipe was closed."""

    def show(self, pods: Sequence[Pod], elapsed_s: float) -> None:
        """Nothing."""

    def say(self, text: str, *, error: bool = False) -> None:
        """Nothing."""

    def advise(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Screen:
    """A table that is redrawn in place, with remarks above it."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - for a terminal only
        from rich.live import Live  # noqa: PLC0415

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._advice = ""
        self._live.start()

    def show(self, pods: Sequence[Pod], elapsed_s: float) -> None:
        """Draw the table anew."""
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        self._live.transient = not pods  # the last table stays
        summary = f"{sum(map(is_settled, pods))} of {len(pods)} ready or completed, {elapsed_s:.0f} s"
        drawn = [Text(), _drawn(pods, time.time(), self._console.width), Text(summary, style="dim")]
        if self._advice:
            drawn.append(Text(shown(self._advice), style="red"))
        self._live.update(Group(*(drawn if pods else ())), refresh=True)

    def say(self, text: str, *, error: bool = False) -> None:
        """Print a remark above the table."""
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Text(shown(text), style="red" if error else ""), soft_wrap=True)

    def advise(self, text: str) -> None:
        """Show the advice below the table, from the next `show` on."""
        self._advice = text

    def close(self) -> None:
        """End the redrawing; the last table stays."""
        self._live.stop()


class Layout(NamedTuple):
    """Columns and widths of a table that fits."""

    headers: tuple[str, ...]
    gap: int
    """Spaces between columns."""
    name_chars: int
    status_chars: int


def layout(lines: Sequence[Columns], width: int) -> Layout:
    """The columns that fit into `width` characters with one line for each pod; NAME, READY and STATUS always."""
    headers = list(HEADERS)
    widest = {header: max([len(header), *(len(_cells(line)[header]) for line in lines)]) for header in headers}

    def needed(gap: int) -> int:
        return sum(widest[header] for header in headers) + gap * (len(headers) - 1)

    for expendable in ("IP", "AGE", "RESTARTS"):
        if needed(GAP) > width:
            headers.remove(expendable)
    gap = GAP if needed(GAP) <= width else 1
    status = max(min(widest["STATUS"], STATUS_CHARS), widest["STATUS"] - max(0, needed(gap) - width))
    name = widest["NAME"] - max(0, needed(gap) - width - (widest["STATUS"] - status))
    return Layout(tuple(headers), gap, max(1, name), status)


def _cells(line: Columns) -> dict[str, str]:
    return dict(zip(HEADERS, (_name(line), line.ready, line.status, line.restarts, line.age, line.ip), strict=True))


def _drawn(pods: Sequence[Pod], now: float, width: int) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    lines = [columns(pod, now) for pod in pods]
    fits = layout(lines, width)
    most = {"NAME": fits.name_chars, "STATUS": fits.status_chars}
    table = Table(box=None, pad_edge=False, padding=(0, fits.gap, 0, 0), header_style="bold")
    for header in fits.headers:
        side: JustifyMethod = "right" if header in RIGHT else "left"
        table.add_column(header, justify=side, no_wrap=True, overflow="ellipsis", max_width=most.get(header))
    for pod, line in zip(pods, lines, strict=True):
        shade = style(line.status, ready=is_settled(pod))
        cells = _cells(line)
        # As Text, because Rich interprets markup in plain strings.
        table.add_row(*(Text(one_line(cells[name]), style=shade if name == "STATUS" else "") for name in fits.headers))
    return table
