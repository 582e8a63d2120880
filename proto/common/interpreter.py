"""Command lines of further Python processes of this installation."""

from __future__ import annotations

import json
import sys


def command(module: str, *arguments: str) -> list[str]:
    """A new interpreter that exits with `module.main(arguments)`.

    It imports from where this one does and from nowhere else: with `python -m` a directory named `proto` in the
    present working directory would be taken for ours.
    """
    boot = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {module} import main; sys.exit(main(sys.argv[2:]))"
    )
    return [sys.executable, "-P", "-c", boot, json.dumps(sys.path), *arguments]
