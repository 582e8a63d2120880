"""An answer as lines for people, for the command `why` and the web page. Pure."""

from __future__ import annotations

from proto.common.safe_text import one_line
from proto.v1 import Pod
from proto.waits.chain import Answer, Cause, Link, named, seconds, shown


def lines(answer: Answer, *, detail: bool = True) -> list[str]:
    """The waits below the answer's first sentence, each of one line. `detail`: with stacks and process states."""
    return [
        line for number, cause in enumerate(answer.causes) for line in _lines(cause, also=number > 0, detail=detail)
    ]


def unmet(subject: str, pod: Pod) -> str:
    """A sentence from the pod's own conditions: it waits inside itself, as for a probe."""
    conditions = [one for one in pod.status.conditions if one.status != "True" and one.message]
    phase = f"{named(subject)} is {pod.status.phase or 'Pending'}"
    return (
        f"{phase}: {conditions[0].type}: {conditions[0].message}" if conditions else f"{phase} and waits for nothing."
    )


def _lines(cause: Cause, *, also: bool, detail: bool) -> list[str]:
    head = [f"also: {cause.sentence}"] if also else []
    links = [f"  {'  ' * depth}{_line(link)}" for depth, link in enumerate(cause.links)]
    return [one_line(line) for line in (*head, *links, *(_detail(cause.links[-1]) if detail else ()))]


def _line(link: Link) -> str:
    parts = [f"{shown(link.waiter)} waits for {_target(link)}, {seconds(link.age_s)}"]
    if link.deadline_in_s:
        parts.append(f"deadline in {seconds(link.deadline_in_s)}")
    if link.next_try_in_s:
        parts.append(f"next try in {seconds(link.next_try_in_s)}")
    if link.error:
        parts.append(f"last error: {link.error}")
    return f"{', '.join(parts)} [{link.kind}, recorded by {link.actor}]"


def _target(link: Link) -> str:
    what = f" {link.what}" if link.what else ""
    return f"{shown(link.target)}{what}".strip() if link.target else link.what or "?"


def _detail(link: Link) -> list[str]:
    return [f"      {line}" for line in link.detail.splitlines()]
