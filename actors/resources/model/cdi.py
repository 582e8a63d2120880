"""Names of CDI devices (Container Device Interface). Pure."""

from __future__ import annotations

import re

MOST_NAME = 4096
_NAME = re.compile(
    r"[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?/[A-Za-z]([-A-Za-z0-9_]*[A-Za-z0-9])?=[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?"
)


def is_cdi_name(text: str) -> bool:
    """True for a qualified name: VENDOR/CLASS=DEVICE."""
    return len(text) <= MOST_NAME and _NAME.fullmatch(text) is not None
