"""Decides by name and content whether a value may hold a secret, so that commands can hide it."""

from __future__ import annotations

import re

HIDDEN = "<hidden>"

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_ANYWHERE = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|auth|private|cookie|bearer|api_?key|keyring|kubeconfig|environ"
    r"|annotations|stdin|headers?$|args$|command$",
    re.IGNORECASE,
)
_WORDS = frozenset({"cred", "creds", "env", "envs", "jwt", "pass", "pem", "psk", "pwd"})
"""Each of these hides as a word of its own; so does a word that ends with key or keys, and a last word data."""
_HARMLESS_ENDS = frozenset(
    {"name", "names", "count", "s", "at", "ns", "file", "files", "dir", "dirs", "path", "type", "ref", "refs"}
    | {"anonymous", "mode"}
)
_HARMLESS = frozenset({"image_pull_secrets", "token_bucket", "author", "authority"})
_SECRET_TEXT = ("PRIVATE KEY", "LS0tLS1CRUdJTi", "LS0tQkVHSU4g", "LS0tLUJFR0lOI", "eyJhbGciOi")
"""PEM, base64 of PEM at each of its three positions, and the usual start of a JSON Web Token."""
_USER_OF_URL = re.compile(r"(\w://)[^/?#\s]*@")
_URL, _QUERY, _END = re.compile(r"\w://"), re.compile(r"[?\s]"), re.compile(r"[#\s]")


def words(name: str) -> list[str]:
    """The words of a name, in lower case: it is split at all but letters, and at camel case."""
    return [word.lower() for word in _WORD.findall(name)]


def hides(name: str) -> bool:
    """True when the value of this name is not to be shown."""
    found = words(name)
    plain = "_".join(found)
    if not found or plain in _HARMLESS or (len(found) > 1 and found[-1] in _HARMLESS_ENDS):
        return False
    if found[-1] == "data" or any(word in _WORDS or word.endswith(("key", "keys")) for word in found):
        return True
    return bool(_ANYWHERE.search(name) or _ANYWHERE.search(plain))


def safe(text: str, hidden: str = HIDDEN) -> str:
    """A text of any name: without users and queries of URLs; `hidden` when it has a key, certificate or token."""
    if any(one in text for one in _SECRET_TEXT):
        return hidden
    if "://" not in text:
        return text
    return _without_queries(_USER_OF_URL.sub(rf"\1{hidden}@", text), hidden)


def _without_queries(text: str, hidden: str) -> str:
    """Replace the query of each URL. One expression for it all would search from each `://` to the end of the text."""
    parts, at = [], 0
    while (url := _URL.search(text, at)) and (stop := _QUERY.search(text, url.end())):
        end = _END.search(text, stop.end())
        after = end.start() if end is not None else len(text)
        is_query = stop.group() == "?" and after > stop.end()
        parts += [text[at : stop.end()], hidden if is_query else ""]
        at = after if is_query else stop.end()
    return "".join((*parts, text[at:]))


def redacted(value: object, name: str = "") -> object:
    """Plain values without possible secrets: by key and text, all bytes, and `value` beside a `name`."""
    if name and hides(name):
        return HIDDEN
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, dict):
        pair = set(value) == {"name", "value"}
        return {
            safe(key) if isinstance(key, str) else key: HIDDEN
            if pair and key == "value"
            else redacted(one, key if isinstance(key, str) else "")
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value
