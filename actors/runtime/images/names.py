"""Names of images in the store, always in full: docker.io/library/busybox:latest.

actors._cri.image_reference parses names; this module resolves them for the store.
"""

from __future__ import annotations

import re

from actors._cri.image_reference import InvalidImageName, parse

HOST = "docker.io/library/host:latest"
"""The full name of the image `host`, which stands for the machine's own root file system."""
_ID = re.compile(r"(sha256:)?[0-9a-f]{64}")
_SHORT_ID = re.compile(r"(sha256:)?[0-9a-f]{3,63}")
"""From CRI-O's least length on (containers/storage); crictl shows 13 digits."""


def full(name: str) -> str:
    """The name in full. Raises InvalidImageName."""
    reference = parse(name)
    rest = name.rpartition("@")[2] if "@" in name else reference.image.rpartition(":")[2]
    return f"{reference.repository}{'@' if '@' in name else ':'}{rest}"


def repository(name: str) -> str:
    """The part of a full name before its tag or digest."""
    return name.rpartition("@" if "@" in name else ":")[0]


def is_id(name: str) -> bool:
    """Return True for an image's ID, False for a name."""
    return _ID.fullmatch(name) is not None


def is_short_id(text: str) -> bool:
    """Return True when the text may be a shortened ID. It is a valid name, too."""
    return _SHORT_ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return True when the text is a valid name."""
    try:
        full(text)
    except InvalidImageName:
        return False
    return True


def is_digest(name: str) -> bool:
    """Return True when a full name ends in a digest."""
    return "@" in name
