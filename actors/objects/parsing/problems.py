"""The error of a file of objects."""

from actors._files.problems import FileError


class ObjectsError(FileError):
    """A file of objects that cannot be used."""

    what = "objects file"
