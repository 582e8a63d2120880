"""An answer as lines for people, for the command `why` and the web page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proto.common.safe_text import one_line
from proto.v1 import Pod
from proto.waits.chain import Answer, Cause, Link, named, seconds, shown
from proto.waits.obstacles import (
    BACK_OFF,
    CRASH_LOOP,
    KILLED,
    Look,
    crash,
    obstacle,
    recent,
    restarts,
    taken_ports,
    wanted_labels,
)

MOST_RECENT = 3
"""Most past events that an answer names for a pod that waits for nothing."""


def lines(answer: Answer, *, detail: bool = True) -> list[str]:
    """The waits below the answer's first sentence, each of one line. `detail`: with stacks and process states."""
    return [
        line for number, cause in enumerate(answer.causes) for line in _lines(cause, also=number > 0, detail=detail)
    ]


def of_status(subject: str, pod: Pod, look: Look) -> Answer:
    """The answer from the pod's status and `look`, for a pod of which no wait is recorded."""
    found = obstacle(pod, look)
    if found is not None:
        return _one(subject, "status", f"{named(subject)} {found.what}; {found.do}")
    phase = f"{named(subject)} is {pod.status.phase or 'Pending'}"
    conditions = [one for one in pod.status.conditions if one.status != "True" and one.message]
    if conditions and pod.status.phase != "Succeeded":
        return _one(subject, "status", f"{phase}: {conditions[0].type}: {conditions[0].message}")
    past = "; ".join(recent(pod, look)[:MOST_RECENT])
    return Answer(subject=subject, state=f"{phase} and waits for nothing{f'; but lately: {past}' if past else ''}.")


def unmet(subject: str, pod: Pod, now: float) -> str:
    """The sentence of the same, from the status alone. `now`: Unix time."""
    return of_status(subject, pod, Look(now=now)).sentence


def crash_loop(subject: str, pod: Pod, cause: Cause, look: Look) -> Cause:
    """A back-off of a container with the container's last end from the pod's status. Any other cause stays."""
    link = cause.links[-1] if cause.links else None
    part, _, reason = link.what.partition(": ") if link is not None and link.kind == "retry" else ("", "", "")
    if link is None or reason != CRASH_LOOP:
        return cause
    told = link.error.rpartition(BACK_OFF)[0] or link.error  # a record of a long error is cut
    killed = told.removeprefix(KILLED) if told.startswith(KILLED) else ""
    found = crash(pod, part.removeprefix("container "), look, killed)
    if found is None:
        return cause
    when = f"; next start in {seconds(link.next_try_in_s)}" if link.next_try_in_s else ""
    count = restarts(pod, part.removeprefix("container "))
    so_far = f"; {count} restart{'s' if count > 1 else ''} so far" if count else ""
    age = f"; its restart loop began {seconds(link.first_age_s)} ago" if link.first_age_s else ""
    return msgspec.structs.replace(cause, sentence=f"{named(subject)} {found.what}{so_far}{age}{when}; {found.do}")


def rejected(pod: Pod, cause: Cause, pods: Iterable[Pod]) -> Cause:
    """A rejection with what the pod asks for: the taken port and the pod that has it, or the labels of a node."""
    reason = cause.links[-1].what.partition(": ")[0] if cause.links else ""
    found = taken_ports(pod, pods) if reason == "NodePorts" else wanted_labels(pod) if reason == "NodeAffinity" else []
    return msgspec.structs.replace(cause, sentence=f"{cause.sentence} ({'; '.join(found)})") if found else cause


def refused(subject: str, problems: Sequence[str]) -> Answer:
    """The answer for a pod that does not exist because its manifest is refused. `problems`: FILE:LINE: FIELD: TEXT."""
    said = f"{named(subject)} waits for its manifest, which is refused: {'; '.join(problems)}; correct it"
    return _one(subject, "manifest", said)


def _one(subject: str, code: str, sentence: str) -> Answer:
    return Answer(subject=subject, causes=(Cause(code=code, sentence=sentence, severity=60),))


def _lines(cause: Cause, *, also: bool, detail: bool) -> list[str]:
    head = [f"also: {cause.sentence}"] if also else []
    links = [f"  {'  ' * depth}{_line(link)}" for depth, link in enumerate(cause.links)]
    return [one_line(line) for line in (*head, *links, *(_detail(cause.links[-1]) if detail and cause.links else ()))]


def _line(link: Link) -> str:
    parts = [f"{shown(link.waiter)} waits for {_target(link)}, {seconds(link.age_s)}"]
    if link.first_age_s:
        parts.append(f"first {seconds(link.first_age_s)} ago")
    if link.deadline_in_s:
        left = link.deadline_in_s
        parts.append(f"deadline in {seconds(left)}" if left > 0 else f"deadline {seconds(-left)} ago")
    if link.next_try_in_s:
        parts.append(f"next try in {seconds(link.next_try_in_s)}")
    if link.error:
        parts.append(f"last error: {link.error}")
    return f"{', '.join(parts)} [{link.kind}, recorded by {link.actor}]"


def _target(link: Link) -> str:
    what = f" {link.what}" if link.what else ""
    nothing = "its next try" if link.kind == "retry" else "?"
    return f"{shown(link.target)}{what}".strip() if link.target else link.what or nothing


def _detail(link: Link) -> list[str]:
    return [f"      {line}" for line in link.detail.splitlines()]
