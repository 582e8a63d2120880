"""The path of a field in a document, and its text in Kubernetes' notation."""

import re

Path = tuple[str | int, ...]
"""Mapping keys (JSON names) and list indices, from the top."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_]+")


def field_text(path: Path) -> str:
    """Return the path as Kubernetes writes it: `spec.containers[0].image`, `metadata.labels[example.com/x]`."""
    text = ""
    for part in path:
        if isinstance(part, int) or not _PLAIN_KEY.fullmatch(part):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
