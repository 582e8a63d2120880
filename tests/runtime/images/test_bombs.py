"""Images that need far more resources than their size: each goes to a process with little memory and time."""

import io
import json
import resource
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from actors.runtime.images.errors import ImageError
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.stack import Stack
from actors.runtime.images.local.unpack import unpack
from actors.runtime.images.manifest import parse, parse_config
from tests.harness import PATIENCE

MORE_BYTES = 96 * 1024 * 1024
"""Memory for a bomb, besides the process's own."""
SECONDS = 20.0 * PATIENCE
MEGABYTE = 1024 * 1024


def header(kind: bytes, size: int, name: bytes = b"n", extra: bytes = b"") -> bytes:
    """A tar header as bytes; `extra` follows its first 345 bytes, in GNU's format."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136] = b"\x80" + size.to_bytes(11, "big") if size >= 8**11 else b"%011o\0" % size
    block[136:148], block[156:157], block[257:265] = b"00000000000\0", kind, b"ustar  \0"
    block[345 : 345 + len(extra)] = extra
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def pax(content: bytes, kind: bytes = b"x") -> bytes:
    return header(kind, len(content)) + padded(content)


def sparse_chain() -> Iterator[bytes]:
    yield header(b"S", 0, extra=bytes(41) + b"\0" * 96 + b"\1")
    block = (struct.pack(">24s", b"%011o\0%011o\0" % (512, 512)) * 21).ljust(504, b"\0") + b"\1" + bytes(7)
    for _ in range(2000):
        yield block * 100


def sparse_numbers() -> Iterator[bytes]:
    told = record(b"GNU.sparse.major", b"1") + record(b"GNU.sparse.minor", b"0")
    yield pax(told + record(b"GNU.sparse.realsize", b"1") + record(b"GNU.sparse.name", b"s"))
    yield header(b"0", 64 * MEGABYTE)
    yield b"30000000\n"
    for _ in range(64):
        yield b"0\n" * (MEGABYTE // 2)


def sparse_size() -> Iterator[bytes]:
    """A file of 60 GB without data."""
    size = 60 * 1024**3
    extra = bytes(41) + bytes(96) + b"\0" + b"%011o\0" % (size & 0o77777777777)
    yield header(b"S", 0, extra=extra[:138] + b"\x80" + size.to_bytes(11, "big"))
    yield bytes(1024)


def chained_names() -> Iterator[bytes]:
    for _ in range(900):
        yield header(b"L", MEGABYTE) + b"n" * MEGABYTE


def chained_pax() -> Iterator[bytes]:
    one = pax(record(b"comment", b"c" * (MEGABYTE - 100)))
    for _ in range(900):
        yield one


def global_headers() -> Iterator[bytes]:
    for number in range(600):
        yield pax(record(b"comment%d" % number, b"c" * (MEGABYTE - 100)), b"g") + header(b"5", 0, b"d")


def many_global_keys() -> Iterator[bytes]:
    yield pax(b"".join(record(b"k%d" % number, b"") for number in range(60_000)), b"g")
    for number in range(3000):
        yield header(b"5", 0, b"d%d" % number)


def digits() -> Iterator[bytes]:
    yield pax(b"1" * (MEGABYTE - 100))


def records_without_an_end() -> Iterator[bytes]:
    yield pax(b"4 a\n" * (MEGABYTE // 4 - 10) + b"=\n")


def replaced_directories() -> Iterator[bytes]:
    for number in range(12_000):
        yield header(b"5", 0, b"kept%d/" % number)
    for _ in range(12_000):
        yield header(b"5", 0, b"d/") + header(b"0", 0, b"d")


def replaced_below_whiteouts() -> Iterator[bytes]:
    for number in range(12_000):
        yield header(b"0", 0, b".wh.gone%d" % number)
    for _ in range(12_000):
        yield header(b"5", 0, b"d/") + header(b"0", 0, b"d")


def long_ways() -> Iterator[bytes]:
    """Links of a thousand steps each, which every further entry follows."""
    deep = b"/".join([b"d"] * 200)
    yield header(b"L", len(deep)) + padded(deep) + header(b"5", 0, b"d")
    way = (b"d/" * 200 + b"../" * 200) * 2 + b"d"
    for number in range(30):
        target = way + (b"/../l%d" % (number + 1) if number < 29 else b"")
        yield header(b"K", len(target)) + padded(target) + header(b"2", 0, b"l%d" % number)
    for number in range(20_000):
        yield header(b"0", 0, b"l0/f%d/x" % number)


def long_directories() -> Iterator[bytes]:
    """Directories with names of 3,600 bytes."""
    above = b"/".join([b"x" * 240] * 15)
    for number in range(20_000):
        name = b"%s/%d/" % (above, number)
        yield header(b"L", len(name)) + padded(name) + header(b"5", 0, b"d")


def long_whiteouts() -> Iterator[bytes]:
    above = b"/".join([b"x" * 240] * 14)
    for number in range(60_000):
        name = b"%s/.wh.%d" % (above, number)
        yield header(b"L", len(name)) + padded(name) + header(b"0", 0, b"w")


LAYERS: dict[str, Callable[[], Iterable[bytes]]] = {
    made.__name__: made
    for made in (
        *(sparse_chain, sparse_numbers, sparse_size, chained_names, chained_pax, global_headers, many_global_keys),
        *(digits, records_without_an_end, replaced_directories, replaced_below_whiteouts, long_ways),
        *(long_directories, long_whiteouts),
    )
}


class Stream(io.RawIOBase):
    """A layer that is generated while it is read, so that the process needs no memory for it."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size and (part := next(self._parts, None)) is not None:
            self._left += part
        chunk, self._left = self._left[:size], self._left[size:]
        return chunk


def offer(name: str, directory: str) -> str:
    """The outcome of the import."""
    try:
        if name in DOCUMENTS:
            DOCUMENTS[name]()
        else:
            limits = Limits(reserve_bytes=0, steps=500_000)
            unpack(Stream(LAYERS[name]()), f"{directory}/layer", Stack([]), Budget(limits, directory))
    except ImageError as error:
        return f"refused: {error}"
    return "taken"


def nested() -> None:
    parse(b'{"schemaVersion": 2, "layers": ' + b"[" * 2_000_000)


def nested_volumes() -> None:
    parse_config(b'{"config": {"Volumes": {"v": ' + b"[" * 2_000_000, 0)


def many_lists() -> None:
    parse_config(b'{"config": {"Volumes": {"v": [' + b"[]," * 1_300_000 + b"0]}}}", 0)


def many_manifests() -> None:
    one = b'{"digest": "sha256:%s", "size": 1},' % (b"0" * 64)
    parse(b'{"schemaVersion": 2, "manifests": [' + (one * (4 * MEGABYTE // len(one)))[:-1] + b"]}")


DOCUMENTS = {made.__name__: made for made in (nested, nested_volumes, many_lists, many_manifests)}


@pytest.mark.parametrize("name", [*LAYERS, *DOCUMENTS])
def test_a_bomb_costs_little_memory_and_time(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.runtime.images.test_bombs", name, str(tmp_path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=120 * PATIENCE, check=False, cwd=Path(__file__).parents[3]
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout)
    assert told["seconds"] < SECONDS, told
    assert told["more_bytes"] < MORE_BYTES, told
    assert told["disk_bytes"] < MORE_BYTES, told


def main() -> None:
    name, directory = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3))
    resource.setrlimit(resource.RLIMIT_CPU, (round(60 * PATIENCE),) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65 * 1024**3, 65 * 1024**3))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    outcome = offer(name, directory)
    seconds = time.process_time() - began
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    files = [one for path in Path(directory).rglob("*") if stat.S_ISREG((one := path.lstat()).st_mode)]
    blocks = sum(one.st_blocks * 512 for one in files)
    print(json.dumps({"outcome": outcome[:200], "seconds": seconds, "more_bytes": more, "disk_bytes": blocks}))


if __name__ == "__main__":
    main()
