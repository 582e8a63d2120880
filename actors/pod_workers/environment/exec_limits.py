"""The kernel's limit on the arguments and variables of one program, see fs/exec.c. Pure.

A program beyond it can never start. So text is measured before it is made: forty variables, each twice the variable
before it, would be terabytes. The runtime meets the kernel's lower limits, such as 128 KiB for one variable. Then the
container ends with StartError, as with the kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_TOTAL_BYTES = 6 * 1024 * 1024
"""All arguments and variables together. Usual limits of the stack allow less."""
MAX_PATH_BYTES = 4095
"""PATH_MAX without the zero at the end."""


def size(text: str) -> int:
    """Bytes of a text in UTF-8. A surrogate stands for one byte."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def variable_size(name: str, value: str) -> int:
    """Bytes of `NAME=value` and the zero at its end."""
    return size(name) + size(value) + 2


def total_size(variables: Mapping[str, str]) -> int:
    """Bytes of all variables."""
    return sum(variable_size(name, value) for name, value in variables.items())
