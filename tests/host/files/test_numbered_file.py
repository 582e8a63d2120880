"""A file that is replaced as a whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from actors._host.files.numbered_file import NumberedFile


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_mode_is_the_one_asked_for_under_any_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        NumberedFile(str(tmp_path / "state"), 4, mode=mode).write(1, b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == mode


def test_content_that_no_reader_accepts_is_not_written(tmp_path: Path) -> None:
    file = NumberedFile(str(tmp_path / "state"), 4)
    file.write(1, b"1234")
    with pytest.raises(OSError, match="5 bytes are more than 4") as caught:
        file.write(2, b"12345")
    assert caught.value.errno == errno.EFBIG
    assert (tmp_path / "state").read_bytes() == b"1234"
    file.write(2, b"12")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"12"]
