"""Hints in a short notation for tables: "0+ 01-" is node 0 preferred, nodes 0 and 1 not preferred; "*" is any node."""

from collections.abc import Coroutine

from actors.resources.model.hints import Hint, Hints


def hint(text: str) -> Hint:
    nodes, preferred = text[:-1], text[-1] == "+"
    return Hint(None if nodes == "*" else frozenset(map(int, nodes)), preferred)


def hints(text: str) -> list[Hint]:
    return [hint(part) for part in text.split()]


def provider(**resources: str | None) -> Hints:
    return {name: None if text is None else hints(text) for name, text in resources.items()}


def finish(coroutine: Coroutine[None, None, None]) -> None:
    """Run a coroutine that waits for nothing, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("the coroutine waits for something")
