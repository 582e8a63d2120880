"""Finds the subject that a person means: from pod/web to pod/default/web, from volume/data to its pod. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from proto.waits.facts import Facts

KINDS = ("pod", "actor", "image", "volume", "node")


class UnknownSubjectError(Exception):
    """The text names nothing, or several things; the message says which."""


class AmbiguousSubjectError(UnknownSubjectError):
    """The text names several things."""


def subject_of(text: str, facts: Facts, pods: Iterable[str] = (), node_name: str = "") -> str:
    """The subject for `pod/X`, `actor/X`, `image/X`, `volume/X` or `node`. `pods`: NAMESPACE/NAME of known pods.

    With `node_name`, a static pod is found without `-NODENAME`, too. An exact name wins, so `pods` has to be complete.
    Without an agent nothing is known, and the text stays as it is. Raises UnknownSubjectError.
    """
    kind, _, name = text.partition("/")
    if text == "node":
        return text
    if kind not in KINDS or not name:
        raise UnknownSubjectError(
            f"cannot ask why {text!r}: write pod/NAME, actor/NAME, image/NAME, volume/NAME or node"
        )
    if facts.agent_gone:
        return text
    waiters = sorted({wait.waiter for _, wait in facts.waits()} | {wait.target for _, wait in facts.waits()})
    known = [one for one in waiters if one.startswith(f"{kind}/")]
    if kind == "pod":
        known = sorted({*known, *(f"pod/{one}" for one in pods)})
    elif kind == "actor":
        known = [f"actor/{one}" for one in {**facts.tables, **facts.actors}]
    return _chosen(text, known, node_name)


def _chosen(text: str, known: list[str], node_name: str) -> str:
    kind, _, name = text.partition("/")
    if text in known:
        return text
    found = [one for one in known if one.endswith(f"/{name}")]
    if kind == "image":
        found = found or [one for one in known if one.partition("/")[2].removesuffix(":latest").endswith(f"/{name}")]
    if kind == "pod" and node_name:
        found = found or [one for one in known if one.endswith(f"/{name}-{node_name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousSubjectError(f"cannot choose {text!r}: there are {', '.join(found)}; name one of them")
    if kind == "pod" and name.count("/") == 1:
        return text
    raise UnknownSubjectError(_unknown(text, known))


def _unknown(text: str, known: list[str]) -> str:
    kind, _, name = text.partition("/")
    if kind == "pod":
        return f"cannot find pod {name!r}; `supervisor pods` lists all pods"
    if kind == "actor":
        return f"cannot find actor {name!r}; there are {', '.join(sorted(one[6:] for one in known))}"
    return f"cannot find {text!r} among what is waited for"
