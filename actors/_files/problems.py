"""The error of an unusable file, with its place, for the person who corrects the file."""

from typing import ClassVar


class FileError(Exception):
    """A file that cannot be used: `file`, `line` (from 1, 0 if unknown), `field` ("" for the whole), `problem`.

    `others` lists further problems of the same file, each as "line N: field: problem".
    """

    what: ClassVar[str] = "file"
    """The word for the file in messages."""

    def __init__(self, file: str, line: int, field: str, problem: str, others: tuple[str, ...] = ()) -> None:
        super().__init__(file, line, field, problem, others)
        self.file = file
        self.line = line
        self.field = field
        self.problem = problem
        self.others = others

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        field = f"{self.field}: " if self.field else ""
        return f"cannot use {self.what} {place}: {field}{self.problem}{self.more()}"

    def more(self) -> str:
        """The further problems, in brackets; empty without any."""
        return f" (and {len(self.others)} more: {'; '.join(self.others)})" if self.others else ""
