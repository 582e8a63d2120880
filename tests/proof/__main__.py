"""`make proof`: runs the proofs, prints a table for each, and writes all rows as JSON.

A proof is a module here with `rows()`: dicts with `passed`, and figures by name. Words on the command line choose
proofs by name.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

import tests.proof


def proofs() -> dict[str, Any]:
    """The modules with `rows`, by name."""
    names = [one.name for one in pkgutil.iter_modules(tests.proof.__path__) if not one.name.startswith(("_", "test_"))]
    modules = {name: importlib.import_module(f"tests.proof.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "rows")}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned lines below their keys."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [keys, *([_cell(row.get(key, "-")) for key in keys] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(keys))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> int:
    """Run the chosen proofs; 1 when a row has not passed."""
    known = proofs()
    parser = argparse.ArgumentParser(prog="make proof", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PROOF", help=f"{', '.join(known)}; all by default")
    parser.add_argument("--json", type=Path, help="Write all rows to this file.")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - known.keys()):
        parser.error(f"no proof {unknown[0]!r}; there are: {', '.join(known)}")
    found: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.names or known:
        found[name] = known[name].rows()
        print(f"\n{name}: {(known[name].__doc__ or '').splitlines()[0]}\n{table(found[name])}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(not all(row["passed"] for rows in found.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
