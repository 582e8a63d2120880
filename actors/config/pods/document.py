"""Parses a manifest's bytes into plain values with line numbers, within the bounds of a manifest.

`proto.schema.document` is the parser.
"""

from actors.config.validation.problems import ManifestError
from proto.schema import document
from proto.schema.document import Document, DocumentError, Limits
from proto.schema.fieldpath import field_text

MAX_BYTES = 3 * 1024 * 1024
"""The API server's limit of a request body: no larger file can be a pod."""

_LIMITS = Limits(MAX_BYTES, "a manifest", "a Pod")


def parse(file: str, data: bytes) -> Document:
    """Return the first document of a file. Raises ManifestError with file and line."""
    try:
        return document.parse(data, _LIMITS)
    except DocumentError as error:
        raise ManifestError(file, error.line, field_text(error.path), error.problem) from error
