"""The events file: a torn or damaged line costs that line alone."""

from __future__ import annotations

import zlib

import pytest

from actors.events import journal
from actors.events.journal import Changed, Life
from tests.events.pure.test_policy import entry

LINES = [Life(agent="1:2", incarnation=3), *(Changed(entry=entry(n, f"ä{n}")) for n in range(3))]


def test_written_lines_are_read(tmp_path):
    path = str(tmp_path / "made" / "events.log")
    assert journal.read(path) == ([], True)
    journal.rewrite(path, journal.encode(LINES[:2]))
    journal.append(path, journal.encode(LINES[2:]))
    assert journal.read(path) == (LINES, True)
    journal.rewrite(path, journal.encode(LINES[1:]))
    assert journal.read(path) == (LINES[1:], True)


def test_a_torn_end_costs_the_torn_line_only(tmp_path):
    path = tmp_path / "events.log"
    whole = journal.encode(LINES)
    last = len(journal.encode(LINES[-1:]))
    for cut in range(1, last):
        path.write_bytes(whole[:-cut])
        assert journal.read(str(path)) == (LINES[:-1], False)


@pytest.mark.parametrize("byte", [0x00, 0x41, 0xFF])
def test_a_damaged_line_costs_that_line_only(tmp_path, byte):
    path = tmp_path / "events.log"
    before, line = len(journal.encode(LINES[:1])), len(journal.encode(LINES[1:2]))
    for at in range(before, before + line - 1):
        content = bytearray(journal.encode(LINES))
        if content[at] == byte:
            continue
        content[at] = byte
        path.write_bytes(content)
        found, whole = journal.read(str(path))
        assert ([one for one in found if one != LINES[1]], whole) == ([LINES[0], *LINES[2:]], False)


def test_annotations_are_written_and_read(tmp_path):
    path = str(tmp_path / "events.log")
    lines = [Changed(entry=entry(annotations={"starved_resource": "pids"}))]
    journal.rewrite(path, journal.encode(lines))
    assert journal.read(path) == (lines, True)


def test_line_of_the_release_before_has_no_annotations(tmp_path):
    path = tmp_path / "events.log"
    body = (
        b'{"type":"event","entry":{"name":"p.1","involved":{"kind":"Pod"},"type":"Normal",'
        b'"reason":"Pulled","message":"m","first_ns":1,"last_ns":1}}'
    )
    path.write_bytes(b"%08x %s\n" % (zlib.crc32(body), body))
    ((line,), whole) = journal.read(str(path))
    assert (line.entry.annotations, whole) == ({}, True)


def test_a_file_of_something_else_is_an_empty_one(tmp_path):
    path = tmp_path / "events.log"
    path.write_bytes(b'{"version": 1}\n\n\x00\x00' * 10)
    assert journal.read(str(path)) == ([], False)
