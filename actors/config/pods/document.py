"""A manifest's bytes as plain values with lines, or one error that names the file.

Covers the bounds of a manifest and the error's type. The reading itself is `proto.schema.document`.
"""

from actors.config.validation.problems import ManifestError
from proto.schema import document
from proto.schema.document import Document, DocumentError, Limits
from proto.schema.fieldpath import field_text

MAX_BYTES = 3 * 1024 * 1024
"""The API server's own limit of a request body; a larger file cannot be a pod."""

_LIMITS = Limits(MAX_BYTES, "a manifest", "a Pod")


def parse(file: str, data: bytes) -> Document:
    """Return the first document of a file; raises ManifestError naming file and line."""
    try:
        return document.parse(data, _LIMITS)
    except DocumentError as error:
        raise ManifestError(file, error.line, field_text(error.path), error.problem) from error
