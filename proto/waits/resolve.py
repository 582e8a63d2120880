"""Finds the subject that a person means: from pod/web to pod/default/web, from volume/data to its pod. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from proto.waits.facts import Facts

KINDS = ("pod", "actor", "image", "volume", "node")


class UnknownSubjectError(Exception):
    """The text names nothing, or several things; the message says which."""


def subject_of(text: str, facts: Facts, pods: Iterable[str] = ()) -> str:
    """The subject for `pod/X`, `actor/X`, `image/X`, `volume/X` or `node`. `pods`: NAMESPACE/NAME of known pods.

    Raises UnknownSubjectError.
    """
    kind, _, name = text.partition("/")
    if text == "node":
        return text
    if kind not in KINDS or not name:
        raise UnknownSubjectError(
            f"cannot ask why {text!r}: write pod/NAME, actor/NAME, image/NAME, volume/NAME or node"
        )
    waiters = sorted({wait.waiter for _, wait in facts.waits()} | {wait.target for _, wait in facts.waits()})
    known = [one for one in waiters if one.startswith(f"{kind}/")]
    if kind == "pod":
        known = sorted({*known, *(f"pod/{one}" for one in pods)})
    elif kind == "actor":
        known = [f"actor/{one}" for one in {**facts.tables, **facts.actors}]
    return _chosen(text, kind, name, known)


def _chosen(text: str, kind: str, name: str, known: list[str]) -> str:
    if text in known:
        return text
    found = [one for one in known if one.endswith(f"/{name}")]
    if kind == "image":
        found = found or [one for one in known if one.partition("/")[2].removesuffix(":latest").endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownSubjectError(f"cannot choose {text!r}: there are {', '.join(found)}")
    if kind == "pod" and name.count("/") == 1:
        return text
    raise UnknownSubjectError(
        f"cannot find {text!r} among what is waited for" if kind != "actor" else _no_actor(name, known)
    )


def _no_actor(name: str, known: list[str]) -> str:
    return f"cannot find actor {name!r}; there are {', '.join(sorted(one[6:] for one in known))}"
