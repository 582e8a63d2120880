"""Names of files that are not UTF-8, in the evidence of a hung process and in the log of deaths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from supervisor.process import death_log, samples
from supervisor.process.death_log import Death
from tests.harness import wait_for

READS = "import os, sys; os.read(os.open(os.fsencode(sys.argv[1]), os.O_RDWR), 1)"


def test_file_name_that_is_not_utf8_is_escaped_in_a_sample(tmp_path: Path) -> None:
    fifo = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")
    os.mkfifo(fifo)
    process = subprocess.Popen([sys.executable, "-c", READS, fifo])
    try:
        expected = f"{tmp_path}/a\\xff"[:200]
        wait_for(lambda: expected in samples.take(process.pid).files.values(), 20, "it reads the FIFO")
    finally:
        process.kill()
        process.wait()


def test_death_with_such_a_name_is_in_the_log(tmp_path: Path) -> None:
    death_log.append(tmp_path, Death(time=1.5, actor="volume", incarnation=1, cause="hung", reason="reads /a\udcff"))
    assert [one.reason for one in death_log.read(tmp_path)] == ["reads /a\\udcff"]
