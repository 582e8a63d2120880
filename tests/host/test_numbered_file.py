"""A file that is replaced as a whole."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from actors._host.files.numbered_file import NumberedFile


def test_content_that_no_reader_accepts_is_not_written(tmp_path: Path) -> None:
    file = NumberedFile(str(tmp_path / "state"), 4)
    file.write(1, b"1234")
    with pytest.raises(OSError, match="5 bytes are more than 4") as caught:
        file.write(2, b"12345")
    assert caught.value.errno == errno.EFBIG
    assert (tmp_path / "state").read_bytes() == b"1234"
    file.write(2, b"12")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"12"]
