"""Random changes of valid inputs: the same seed gives the same inputs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from tests.fuzz.target import Target

MOST_BYTES = 64 * 1024
NUMBERS = (
    b"0", b"-1", b"-5", b"1e999", b"0x7fffffff", b"4294967296", b"18446744073709551616", b"9" * 5000, b"NaN", b"1.5",
)  # fmt: skip
TEXTS = (
    b"\0", b"\xff", b"\xc3\x28", b"\r\n", b"\n", b"\x1b[2J", b"../", b"/", b"%s", b"{", b"[", b"]", b"}", b'"', b"'",
    b"\xed\xa0\x80", b"[" * 3000, b'{"a":' * 3000, b"A" * 5000,
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+")


def mutations(target: Target, seed: int) -> Iterator[bytes]:
    """Inputs without end: each is one of the target's, changed one to four times."""
    source = random.Random(seed)
    mutator = Mutator(source, target)
    inputs = target.inputs()
    while True:
        data = source.choice(inputs)
        for _ in range(source.randint(1, 4)):
            data = mutator.change(data)[:MOST_BYTES]
        yield data


class Mutator:
    """Applies one random change at a time."""

    def __init__(self, source: random.Random, target: Target) -> None:
        self._source = source
        self._others = target.inputs()
        self._words = (*target.tokens, *TEXTS)
        self._changes: tuple[Callable[[bytes], bytes], ...] = (
            self._flip, self._delete, self._repeat, self._insert, self._replace_number, self._splice, self._swap,
        )  # fmt: skip

    def change(self, data: bytes) -> bytes:
        """The input with one change."""
        return self._source.choice(self._changes)(data)

    def _slice(self, data: bytes) -> tuple[int, int]:
        start = self._source.randint(0, len(data))
        return start, min(len(data), start + int(self._source.expovariate(1 / 12)) + 1)

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self._source.randrange(len(data))
        return data[:at] + bytes([self._source.randrange(256)]) + data[at + 1 :]

    def _delete(self, data: bytes) -> bytes:
        start, end = self._slice(data)
        return data[:start] + data[end:]

    def _repeat(self, data: bytes) -> bytes:
        start, end = self._slice(data)
        return data[:end] + data[start:end] * self._source.choice((1, 2, 10, 200)) + data[end:]

    def _insert(self, data: bytes) -> bytes:
        at = self._source.randint(0, len(data))
        return data[:at] + self._source.choice(self._words) + data[at:]

    def _replace_number(self, data: bytes) -> bytes:
        found = list(_NUMBER.finditer(data))
        if not found:
            return self._insert(data)
        number = self._source.choice(found)
        return data[: number.start()] + self._source.choice(NUMBERS) + data[number.end() :]

    def _splice(self, data: bytes) -> bytes:
        other = self._source.choice(self._others)
        return data[: self._slice(data)[0]] + other[self._slice(other)[0] :]

    def _swap(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        if len(lines) < 3:
            return self._repeat(data)
        first, second = self._source.randrange(len(lines)), self._source.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
        return b"\n".join(lines)
