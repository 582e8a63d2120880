"""Directory trees that are deeper than a path may be long."""

import os
from pathlib import Path


def nest(top: Path, levels: int, name: str = "d") -> None:
    """Make this many directories inside each other in the directory `top`, and a file of 8,192 bytes in the last."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    file = os.open("end", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.close(here)
    os.write(file, b"x" * 8192)
    os.close(file)
