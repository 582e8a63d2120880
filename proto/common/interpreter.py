"""The Python interpreter: the command line of another one of this installation, and its cache of attributes."""

from __future__ import annotations

import json
import os
import sys

UTF8 = ("-X", "utf8")
"""Options of every interpreter of the agent: paths are UTF-8 in each locale, as in Go, and so is the log.

Not the variable PYTHONUTF8: `-I` ignores it, and plugins would inherit it.
"""


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a new interpreter that exits with `module.main(arguments)`.

    It imports from the same places as this interpreter. With `python -m`, a directory named `proto` in the working
    directory would replace ours.
    """
    boot = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {module} import main; sys.exit(main(sys.argv[2:]))"
    )
    return [sys.executable, *UTF8, "-P", "-c", boot, json.dumps(sys.path), *arguments]


def enter_utf8_mode() -> None:
    """Execute this process's command line again with UTF8, unless paths are UTF-8 already. Raises OSError.

    The process keeps its pid, its environment and its open files. In that mode paths are UTF-8, so there is no third
    time. The arguments are the kernel's bytes: Python does not encode each text as the C library decoded it.
    """
    if sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8":
        return
    with open("/proc/self/cmdline", "rb") as file:
        _, *arguments = file.read().split(b"\0")[:-1]
    line: list[str | bytes] = [sys.executable, *UTF8, *arguments]
    os.execv(sys.executable, line)


def clear_type_cache() -> None:
    """Drop the references that the cache of looked-up attributes holds. Python 3.13 has another name for it."""
    clear = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
    clear()
