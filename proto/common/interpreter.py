"""The Python interpreter: the command line of another one of this installation, and its cache of attributes."""

from __future__ import annotations

import json
import sys


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a new interpreter that exits with `module.main(arguments)`.

    It imports from the same places as this interpreter. With `python -m`, a directory named `proto` in the working
    directory would replace ours.
    """
    boot = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {module} import main; sys.exit(main(sys.argv[2:]))"
    )
    return [sys.executable, "-P", "-c", boot, json.dumps(sys.path), *arguments]


def clear_type_cache() -> None:
    """Drop the references that the cache of looked-up attributes holds. Python 3.13 has another name for it."""
    clear = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
    clear()
