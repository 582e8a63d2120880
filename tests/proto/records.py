"""Every Kubernetes record of `proto.v1`, for tests that hold for all of them."""

from collections.abc import Iterator

from proto import v1
from proto.v1 import cluster  # noqa: F401 - defines records that `proto.v1` does not import


def _below(kind: type[v1.Record]) -> Iterator[type[v1.Record]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


RECORDS = {kind.__name__: kind for kind in _below(v1.Record) if kind.__module__.startswith("proto.v1.")}
"""By class name, which is the name of the Go type."""
