"""The certificates of a PEM text, without what is between and in front of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_LINE = 64


def blocks(text: str) -> Iterator[str]:
    """Yield the base64 of each certificate, in one line. A text without END is searched once, not from each BEGIN."""
    at = 0
    while (begin := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, begin + len(_BEGIN))) >= 0:
        yield "".join(text[begin + len(_BEGIN) : end].split())
        at = end + len(_END)


def encoded(found: Iterable[str]) -> str:
    """The PEM text of certificates in base64."""
    return "".join(map(_encoded, found))


def _encoded(block: str) -> str:
    lines = "\n".join(block[at : at + _LINE] for at in range(0, len(block), _LINE))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
