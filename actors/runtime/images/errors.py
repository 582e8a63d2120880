"""Errors of images and of the store, by which callers decide what to do."""

import errno

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of OSErrors for a disk or a quota without room."""


class ImageError(Exception):
    """An image cannot be used. The message names the part of it, and the error."""


class BadImage(ImageError):
    """Corrupt or hostile content. The image is refused; a retry gives the same result."""


class NoSuchImage(ImageError):
    """No image has the name."""


class StoreFull(ImageError):
    """The disk has no room. Unpacked files are removed again."""

    missing_bytes = 0
    """Bytes that would have to be free besides; 0 when the disk is at its reserve."""


class RegistryError(ImageError):
    """The registry, or the connection to it, fails now; a retry may succeed."""


class Denied(RegistryError):
    """The registry refuses the credentials."""
