"""Lists a directory that may not exist."""

from __future__ import annotations

import os


def names(directory: str) -> list[str]:
    """Return the sorted entries of a directory; none when it does not exist. Raises OSError for other errors."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
