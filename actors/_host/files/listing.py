"""What is in a directory that may not be there."""

from __future__ import annotations

import os


def names(directory: str) -> list[str]:
    """Entries of a directory, sorted; none where there is no directory. Raises OSError for other reasons."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
