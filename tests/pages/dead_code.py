"""Finds functions, methods, classes and imports that nothing uses, with vulture. Part of `make lint`.

Fields of records and constants are not looked at: they are the wire and the tables of Kubernetes.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[2]
PATHS = ("actors", "supervisor", "proto", "tests", ".ci")
GENERATED = ["*_pb2*"]
CALLED_BY = {
    "Pykka": ["on_failure", "on_receive", "_create_actor_inbox", "_start_actor_loop"],
    "the io module": ["readinto"],
    "urllib3": ["pool_classes_by_scheme"],
    "click": ["list_commands", "format_options"],
    "the monitor's table of commands, by name": ["do_*"],
    "gRPC, by the rpc's name": ["[A-Z]*"],
}
"""Names that are used without being written anywhere."""
DECORATORS = ["@handles*", "@group*", "@command*", "@click*", "@pytest*", "@rule", "@initialize", "@invariant"]
KINDS = {"function", "method", "class", "import", "property", "unreachable_code"}


def unused() -> list[str]:
    """A line for each piece of the product that nothing uses, tests included."""
    finder = Vulture(ignore_decorators=DECORATORS)
    finder.scavenge([str(ROOT / path) for path in PATHS], exclude=GENERATED)
    allowed = [pattern for patterns in CALLED_BY.values() for pattern in patterns]
    found = []
    for item in finder.get_unused_code(min_confidence=60):
        path = Path(item.filename).relative_to(ROOT)
        known = any(fnmatch(item.name, pattern) for pattern in allowed) and item.typ != "class"
        if path.parts[0] != "tests" and item.typ in KINDS and not known:
            found.append(f"{path}:{item.first_lineno}: {item.typ} {item.name} is not used; remove it")
    return sorted(found)


if __name__ == "__main__":
    lines = unused()
    print("\n".join([*lines, f"dead code: {len(lines)} pieces"]))
    sys.exit(1 if lines else 0)
