"""The kernel's counters of disk transfers, v1 and v2."""

import pytest

from actors._cgroup.transfers import COUNTERS, MOST_DISKS, Transfers, parse_v1, parse_v2

BYTES = b"8:0 Read 5\n8:0 Write 6\n8:0 Sync 10\n8:0 Async 1\n8:0 Discard 0\n8:0 Total 11\nTotal 11\n"
REQUESTS = b"8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 3\nTotal 3\n"
IO_STAT = b"8:0 rbytes=5 wbytes=6 rios=1 wios=2 dbytes=0 dios=0\n"


@pytest.mark.parametrize("found", [parse_v1(BYTES, REQUESTS), parse_v2(IO_STAT)], ids=["v1", "v2"])
def test_both_versions_count_reads_and_writes_alike(found: tuple[Transfers, ...]) -> None:
    (disk,) = found
    assert (disk.major, disk.minor, disk.numbers) == (8, 0, "8:0")
    assert {name: value(disk) for name, _, value in COUNTERS} == {
        "fs_reads_bytes_total": 5,
        "fs_reads_total": 1,
        "fs_writes_bytes_total": 6,
        "fs_writes_total": 2,
    }


def test_v1_keeps_every_operation_of_the_kernel() -> None:
    (disk,) = parse_v1(BYTES, REQUESTS)
    assert disk.bytes == {"Read": 5, "Write": 6, "Sync": 10, "Async": 1, "Discard": 0, "Total": 11}
    assert parse_v2(IO_STAT)[0].bytes == {"Read": 5, "Write": 6}


@pytest.mark.parametrize(
    "io_stat",
    [
        b"8:16\n" + IO_STAT,  # a disk without counters
        b"8:16 " + IO_STAT,  # some kernels write no line break after one
        b"8:16 cost.vrate=100.00 cost.usage=7\n" + IO_STAT,
        IO_STAT.replace(b"\n", b" cost.usage=7\n"),
        IO_STAT + b"8:16 rbytes=1",  # the file was longer than what is read of it
        b"nonsense\n\n" + IO_STAT,
    ],
)
def test_v2_counts_only_disks_with_counters(io_stat: bytes) -> None:
    assert parse_v2(io_stat) == parse_v2(IO_STAT)


def test_line_that_was_cut_counts_nothing() -> None:
    assert parse_v1(BYTES + b"8:16 Read 12", b"") == parse_v1(BYTES, b"")
    assert parse_v1(b"", b"") == parse_v2(b"") == ()


def test_of_many_disks_the_oldest_are_kept() -> None:
    """The kernel lists the newest first: a disk that comes later takes no counter away."""
    numbers = range(MOST_DISKS + 3, 0, -1)
    wanted = [f"8:{one}" for one in range(MOST_DISKS, 0, -1)]
    v2 = b"".join(b"8:%d rbytes=1 wbytes=0 rios=1 wios=0\n" % one for one in numbers)
    assert [one.numbers for one in parse_v2(v2)] == wanted
    v1 = b"".join(b"8:%d Read 1\n8:%d Write 0\n" % (one, one) for one in numbers)
    assert [one.numbers for one in parse_v1(v1, v1)] == wanted
