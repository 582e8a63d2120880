"""The command line that starts another Python process of this installation."""

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
