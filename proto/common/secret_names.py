"""Decides by its name whether a field or key may hold a secret, so that commands can hide its value."""

from __future__ import annotations

import re

HIDDEN = "<hidden>"

_SECRET = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|auth|private|cookie|bearer|api_?key|keyring|\bkey\b|kubeconfig"
    r"|^_?(binary_?|string_?)?data$|^_?envs?$|environ|headers?$|annotations|stdin|args$|command$",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"(_names?|_count|_s|_at|_ns|_files?|_dirs?|_path|_bytes|_type|_ref|_refs|_anonymous|_mode)$"
    r"|^(image_pull_secrets|token_bucket|author(ity)?)$",
    re.IGNORECASE,
)


def hides(name: str) -> bool:
    """True when the value of this name is not to be shown."""
    return bool(_SECRET.search(name)) and not _HARMLESS.search(name)


def redacted(value: object, name: str = "") -> object:
    """Plain values without possible secrets: by their key, all bytes, and `value` beside a `name`."""
    if name and hides(name):
        return HIDDEN
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, dict):
        pair = set(value) == {"name", "value"}
        return {
            key: HIDDEN if pair and key == "value" else redacted(one, key if isinstance(key, str) else "")
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value
