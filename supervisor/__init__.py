"""The parent process: the supervised process tree, its control socket, the command line and the console."""

import sys as _sys


def _import_msgspec() -> None:
    # msgspec takes typing_extensions where it is installed, and needs nothing of it that Python 3.11 has not: 0.5 MB
    # that the agent would keep. Here, because whatever of the package is imported first, this is before it.
    if "typing_extensions" in _sys.modules or "msgspec" in _sys.modules:
        return
    modules: dict[str, object] = _sys.modules  # type: ignore[assignment]  # None: an ImportError for who imports it
    modules["typing_extensions"] = None
    try:
        import msgspec  # noqa: F401, PLC0415 - under that condition
    finally:
        del modules["typing_extensions"]


_import_msgspec()
