"""Parts of pages that come from the code: the actors from the registry, the states from the transition table.

A page has them between `<!-- NAME: generated ... -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from proto.agent import registry
from supervisor.supervision.transitions import TRANSITIONS

ROOT = Path(__file__).parents[2]


def actors() -> str:
    """A table row for each actor."""
    rows = [f"| `{entry.name}` | {entry.purpose} |" for entry in registry.ACTORS]
    return "\n".join(["| process | purpose |", "|---|---|", *rows])


def states() -> str:
    """The states of a supervised process as a diagram."""
    moves = [f"  {one.value} --> {other.value}" for one, to in TRANSITIONS.items() for other in sorted(to, key=str)]
    return "\n".join(["```mermaid", "stateDiagram-v2", "  [*] --> stopped", *moves, "```"])


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "actors": ("README.md", actors),
    "states": ("ARCHITECTURE.md", states),
}
"""Page and content of each part, by name."""


def with_part(text: str, name: str, content: str) -> str:
    """`text` with `content` in the part `name`. Raises ValueError when the page has no such part."""
    part = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- end -->)", re.DOTALL)
    if len(part.findall(text)) != 1:
        raise ValueError(
            f"cannot find the part {name!r} exactly once; mark it with <!-- {name}: ... --> and <!-- end -->"
        )
    return part.sub(lambda found: f"{found[1]}\n{content}\n\n{found[2]}", text)


def write() -> None:
    """Bring all parts up to date."""
    for name, (page, content) in PARTS.items():
        path = ROOT / page
        path.write_text(with_part(path.read_text(encoding="utf-8"), name, content()), encoding="utf-8")
