"""Figures of a run by name, the history of kept runs, and a picture of each figure over the commits.

The history is a line of JSON for each kept run (`etc/bench/history.jsonl`), oldest first. A run is compared with the
last one of it. The picture (`etc/bench/figures.svg`) has a small chart for each figure.
"""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.bench.latency import percentile

Figures = Mapping[str, Sequence[float]]
"""By name, such as `100 pods up, by bare CRI`: the value of each round."""

DIRECTORY = Path(__file__).resolve().parents[2] / "etc/bench"
COLUMNS, WIDTH, HEIGHT, GAP = 3, 300, 110, 20
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
    """What is kept of a run."""
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
    """The charts of all figures as SVG."""
    names = list(dict.fromkeys(name for one in entries for name in one.medians))
    rows = -(-len(names) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    charts = "".join(_chart(name, entries, number) for number, name in enumerate(names))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="#fff"/>{charts}</svg>\n'
    )


def _chart(name: str, entries: Sequence[Entry], number: int) -> str:
    left = GAP + number % COLUMNS * (WIDTH + GAP)
    top = GAP + number // COLUMNS * (HEIGHT + GAP)
    shown = [(one.commit, one.medians[name]) for one in entries if name in one.medians]
    most = max(value for _, value in shown) or 1.0
    step = WIDTH / max(1, len(shown) - 1)
    points = [
        (left + index * step, top + HEIGHT - (HEIGHT - 30) * value / most, commit, value)
        for index, (commit, value) in enumerate(shown)
    ]
    line = " ".join(f"{x:.0f},{y:.0f}" for x, y, _, _ in points)
    dots = "".join(
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="#06c"><title>{escape(commit)}: {value:g}</title></circle>'
        for x, y, commit, value in points
    )
    return (
        f'<text x="{left}" y="{top + 12}">{escape(name)}: {shown[-1][1]:g}</text>'
        f'<path d="M{left} {top + HEIGHT}h{WIDTH}" stroke="#bbb"/>'
        f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="1.5"/>{dots}'
    )
