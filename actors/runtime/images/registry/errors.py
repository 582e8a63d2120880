"""What can be wrong with an image, or with the store, that a caller acts on."""


class ImageError(Exception):
    """An image cannot be had as it is. The message says which part of it, and what is wrong with it."""


class BadImage(ImageError):
    """Corrupt or hostile content: it is refused whole, and trying again gives the same."""


class NoSuchImage(ImageError):
    """The name leads to nothing."""


class StoreFull(ImageError):
    """The disk has no room for it. What had been unpacked is removed again."""
