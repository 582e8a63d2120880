"""Formats times as the API does: RFC 3339 in UTC, as metav1.Time, metav1.MicroTime or with nanoseconds. Reads them."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def seconds(unix_s: float) -> str:
    """A metav1.Time of Unix seconds; fractions are cut off."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


def from_nanos(unix_ns: int) -> str:
    """A metav1.Time of Unix nanoseconds, as CRI has them."""
    return seconds(unix_ns // 10**9)


def now() -> str:
    """The present metav1.Time."""
    return seconds(time.time())


def micros(moment: datetime) -> str:
    """A metav1.MicroTime: six digits after the point."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def nanos(unix_ns: int) -> str:
    """Unix nanoseconds with nine digits after the point, for the kubelet's annotation config.seen."""
    whole, fraction = divmod(unix_ns, 10**9)
    return f"{seconds(whole).removesuffix('Z')}.{fraction:09d}Z"


def seconds_of(timestamp: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp, to the microsecond."""
    parsed = datetime.fromisoformat(timestamp)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
