"""The Kubernetes records of `proto.v1` that are decoded and encoded, for tests that hold for all of them."""

from collections.abc import Iterator

from proto import v1


def _below(kind: type[v1.Record]) -> Iterator[type[v1.Record]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


RECORDS = {
    kind.__name__: kind
    for kind in _below(v1.Record)
    if kind.__module__.startswith("proto.v1.") and kind.__module__ != "proto.v1.cluster"  # which is only decoded
}
"""By class name, which is the name of the Go type."""
