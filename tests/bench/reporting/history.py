"""Figures of a run by name, the history of kept runs, and a picture of each figure over the commits.

The history is a line of JSON for each kept run (`etc/bench/history.jsonl`), oldest first. A run is compared with the
last one of it. The picture (`etc/bench/figures.svg`) has a small chart for each figure.
"""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.bench.measurements.latency import percentile

Figures = Mapping[str, Sequence[float]]
"""By name, such as `100 pods up, by bare CRI`: the value of each round."""

DIRECTORY = Path(__file__).resolve().parents[3] / "etc/bench"
COLUMNS, WIDTH, HEIGHT, GAP = 3, 320, 110, 20
"""Charts in a row; pixels of a chart and between two."""


@dataclass(frozen=True)
class Entry:
    """One kept run."""

    commit: str
    date: str
    """YYYY-MM-DD."""
    medians: dict[str, float]
    """By name of the figure."""


def load(path: Path) -> list[Entry]:
    """The kept runs, oldest first; none without the file."""
    if not path.exists():
        return []
    return [Entry(**json.loads(line)) for line in path.read_text().splitlines()]


def entry(commit: str, date: str, figures: Figures) -> Entry:
    """The kept part of a run."""
    return Entry(commit, date, {name: round(statistics.median(values), 4) for name, values in figures.items()})


def append(path: Path, new: Entry) -> None:
    """Keep a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(new)) + "\n")


def compared(figures: Figures, last: Entry | None) -> Iterator[tuple[str, float, float, float | None, str]]:
    """Rows of name, median, p99 (the worst of few rounds), the last kept median, and the change."""
    for name, values in figures.items():
        median, worst = statistics.median(values), percentile(values, 0.99) or 0.0
        before = last.medians.get(name) if last is not None else None
        yield name, median, worst, before, _change(median, before)


def _change(now: float, before: float | None) -> str:
    return f"{100 * (now / before - 1):+.0f} %" if before else ""


def picture(entries: Sequence[Entry]) -> str:
    """The charts of all figures as SVG. Figures `X: a` and `X: b` are thin lines in the chart of `X`."""
    charts = families(name for one in entries for name in one.medians)
    rows = -(-len(charts) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    drawn = "".join(_chart(names, entries, number) for number, names in enumerate(charts.values()))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="#fff"/>{drawn}</svg>\n'
    )


def families(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by what is before their colon, each once."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        found.setdefault(name.partition(": ")[0], []).append(name)
    return found


def _chart(names: Sequence[str], entries: Sequence[Entry], number: int) -> str:
    left = GAP + number % COLUMNS * (WIDTH + GAP)
    top = GAP + number // COLUMNS * (HEIGHT + GAP)
    shown = [one for one in entries if not one.medians.keys().isdisjoint(names)]
    most = max((one.medians[name] for one in shown for name in names if _is_drawn(one, name)), default=0.0) or 1.0
    step = WIDTH / max(1, len(shown) - 1)
    lines = ""
    for name in sorted(names, key=len, reverse=True):  # the figure of all of them is on top
        points = [
            Point(left + index * step, top + HEIGHT - (HEIGHT - 30) * one.medians[name] / most, one.commit, one.medians)
            for index, one in enumerate(shown)
            if _is_drawn(one, name)
        ]
        lines += _line(name, points, thin=": " in name)
    return (
        f'<text x="{left}" y="{top + 12}">{escape(_title(names, shown[-1]))}</text>'
        f'<path d="M{left} {top + HEIGHT}h{WIDTH}" stroke="#bbb"/>{lines}'
    )


class Point(NamedTuple):
    """A kept value in a chart."""

    x: float
    y: float
    commit: str
    medians: Mapping[str, float]


def _is_drawn(one: Entry, name: str) -> bool:
    return math.isfinite(one.medians.get(name, math.inf))  # infinite: it did not come in time


def _line(name: str, points: Sequence[Point], *, thin: bool) -> str:
    line = " ".join(f"{point.x:.0f},{point.y:.0f}" for point in points)
    if thin:
        return f'<polyline points="{line}" fill="none" stroke="#ccc"><title>{escape(name)}</title></polyline>'
    dots = "".join(
        f'<circle cx="{point.x:.0f}" cy="{point.y:.0f}" r="3" fill="#06c">'
        f"<title>{escape(point.commit)}: {point.medians[name]:g}</title></circle>"
        for point in points
    )
    return f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="1.5"/>{dots}'


def _title(names: Sequence[str], last: Entry) -> str:
    """Name and last value, and the range of the members' ones."""
    shown = [short(last.medians[name]) for name in names if ": " not in name and name in last.medians]
    members = [last.medians[name] for name in names if ": " in name and name in last.medians]
    shown += [f"({short(min(members))} to {short(max(members))})"] if members else []
    return f"{names[0].partition(': ')[0]}: {' '.join(shown)}"


def short(value: float) -> str:
    """Three digits, or as many as a whole number has."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
