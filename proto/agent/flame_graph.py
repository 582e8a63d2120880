"""A profile's samples as a flame graph: a tree of frames, as text and as SVG.

The input is `Samples` of `proto.agent.actor`: counts of stacks, `THREAD;OUTERMOST;...;INNERMOST`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

WIDTH, ROW = 1200, 18
LEAST_SHARE = 0.002
"""Frames below this share of all samples are left out."""
MOST_FRAMES = 4000
TEXT_SHARE = 0.01
_CHARACTER = 6.6
_WAITING = frozenset(
    {"wait", "poll", "get", "select", "accept", "_wait_for_tstate_lock", "_worker", "_serve", "recv_fds"}
)
_WAITING_FILES = (
    "python3", "sugar/", "concurrent/", "futures/", "grpc/", "messaging/loop.py", "process/thread_pool.py",
)  # fmt: skip
"""Last two parts of a file's path: the standard library, pyzmq, and where an actor's threads wait."""


class Frame:
    """A function in one place of the stacks, with the samples that went through it."""

    __slots__ = ("children", "count", "name")

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0
        self.children: dict[str, Frame] = {}


def tree(samples: Mapping[str, int]) -> Frame:
    """The root of all stacks; its count is the number of samples."""
    root = Frame("all")
    for stack, count in samples.items():
        root.count += count
        at = root
        for name in stack.split(";"):
            at = at.children.setdefault(name, Frame(name))
            at.count += count
    return root


def busy(samples: Mapping[str, int]) -> dict[str, int]:
    """The samples of threads that do not wait: their innermost frame is none of a lock, queue, poll or sleep."""
    return {stack: count for stack, count in samples.items() if not _waits(stack.rpartition(";")[2])}


def _waits(frame: str) -> bool:
    name, _, place = frame.partition(" (")
    function = name.rpartition(".")[2]
    return function in _WAITING and place.startswith(_WAITING_FILES)


def text(samples: Mapping[str, int], least_share: float = TEXT_SHARE) -> list[str]:
    """The tree as indented lines: share, own share and frame, the largest first."""
    root = tree(samples)
    return ["  TOTAL    SELF  FRAME", *(_line(root, frame, depth) for frame, depth in _walk(root, least_share))]


def _line(root: Frame, frame: Frame, depth: int) -> str:
    own = frame.count - sum(child.count for child in frame.children.values())
    total = max(1, root.count)
    return f"{100 * frame.count / total:6.1f}% {100 * own / total:6.1f}%  {'  ' * depth}{frame.name}"


def _walk(root: Frame, least_share: float) -> Iterator[tuple[Frame, int]]:
    waiting = [(root, 0)]
    while waiting:
        frame, depth = waiting.pop()
        yield frame, depth
        kept = [child for child in frame.children.values() if child.count >= least_share * root.count]
        waiting += [(child, depth + 1) for child in sorted(kept, key=lambda one: one.count)]


def svg(samples: Mapping[str, int], title: str) -> str:
    """The flame graph as an SVG document without script: tooltips show each frame's share."""
    root = tree(samples)
    boxes = list(_boxes(root))
    rows = max((row for _, row, _ in boxes), default=0) + 1
    height = (rows + 2) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="monospace" font-size="11"><rect width="100%" height="100%" fill="#fffdf8"/>'
        f'<text x="8" y="15" font-size="13">{escape(title)}</text>'
    ]
    parts += [_box(root, frame, row, x) for frame, row, x in boxes]
    return "".join([*parts, "</svg>\n"])


def _boxes(root: Frame) -> Iterator[tuple[Frame, int, float]]:
    scale = WIDTH / max(1, root.count)
    waiting: list[tuple[Frame, int, float]] = [(root, 0, 0.0)]
    left = MOST_FRAMES
    while waiting and left:
        frame, row, x = waiting.pop()
        left -= 1
        yield frame, row, x
        for child in sorted(frame.children.values(), key=lambda one: one.name):
            if child.count >= LEAST_SHARE * root.count:
                waiting.append((child, row + 1, x))
            x += child.count * scale


def _box(root: Frame, frame: Frame, row: int, x: float) -> str:
    width = WIDTH * frame.count / max(1, root.count)
    share = f"{frame.name}: {frame.count} samples, {100 * frame.count / max(1, root.count):.1f} %"
    y = (row + 1.3) * ROW
    shown = frame.name[: max(0, int((width - 6) / _CHARACTER))]
    label = f'<text x="{x + 3:.1f}" y="{y + 13:.1f}">{escape(shown)}</text>' if len(shown) > 2 else ""
    return (
        f'<g><title>{escape(share)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{max(0.3, width - 0.4):.1f}" '
        f'height="{ROW - 1}" rx="2" fill={quoteattr(_colour(frame.name))}/>{label}</g>'
    )


def _colour(name: str) -> str:
    """A warm colour that depends on the function only, so that two graphs can be compared."""
    number = zlib.crc32(name.partition(" (")[0].encode())
    return f"hsl({10 + number % 45} 85% {58 + number // 64 % 14}%)"
