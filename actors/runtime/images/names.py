"""Names of images in the store: always in full, as docker.io/library/busybox:latest.

The grammar is actors._cri.image_reference's; here it is what a name means to a runtime.
"""

from __future__ import annotations

import re

from actors._cri.image_reference import InvalidImageName, parse

HOST = "docker.io/library/host:latest"
"""The name `host`, in full: the machine's own root file system, no image."""
_ID = re.compile(r"(sha256:)?[0-9a-f]{64}")


def full(name: str) -> str:
    """The name in full. Raises InvalidImageName."""
    reference = parse(name)
    rest = name.rpartition("@")[2] if "@" in name else reference.image.rpartition(":")[2]
    return f"{reference.repository}{'@' if '@' in name else ':'}{rest}"


def repository(name: str) -> str:
    """Of a full name, what comes before tag or digest."""
    return name.rpartition("@" if "@" in name else ":")[0]


def is_id(name: str) -> bool:
    """Whether this is an image's ID rather than a name."""
    return _ID.fullmatch(name) is not None


def is_name(text: str) -> bool:
    """Whether a name can be made of it."""
    try:
        full(text)
    except InvalidImageName:
        return False
    return True


def is_digest(name: str) -> bool:
    """Whether a full name ends in a digest."""
    return "@" in name
