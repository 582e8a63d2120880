"""Finds why a subject waits: walks the waits from it down to root causes. Pure: facts in, answer out.

A root cause is a wait for nothing further that is recorded, or for a process that cannot run. Causes are ordered by how
much they explain: a stopped process before a call under way, a call before a pause.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proto.waits.chain import Answer, Cause, Link
from proto.waits.facts import Facts
from proto.waits.record import RUNNING, AskId, Wait
from proto.waits.roots import Root, actor_problem, root_of
from proto.waits.sentences import agent_gone, sentence

MOST_LINKS = 16
MOST_CAUSES = 8
MOST_PATHS = 2000
SUBJECTS = ("pod/", "volume/", "image/", "actor/")
OWNERS = {"pod/": "pod_workers", "image/": "image_pull", "volume/": "volume"}
"""The actor without which nothing happens to a subject, by the subject's prefix."""


class _Step(NamedTuple):
    actor: str
    wait: Wait


class _Path(NamedTuple):
    steps: tuple[_Step, ...]
    root: Root


def why(facts: Facts, subject: str) -> Answer:
    """The causes for which `subject` waits: pod/NAMESPACE/NAME, volume/..., image/..., actor/NAME, or node.

    Without an agent that is the only cause: the tables are of processes that ended with it.
    """
    if facts.agent_gone:
        root = Root("agent-gone", 101, facts.agent_gone)
        told = Cause(code=root.code, sentence=agent_gone(subject, root), severity=root.severity)
        return Answer(subject=subject, causes=(told,))
    paths: dict[tuple[str, str], _Path] = {}
    for count, path in enumerate(_from_subject(facts, subject, ())):
        last = path.steps[-1].wait
        key = (path.root.code, f"{last.waiter} {last.target} {last.what}")
        known = paths.get(key)
        if known is None or _rank(path) > _rank(known):
            paths[key] = path
        if count >= MOST_PATHS:
            break
    causes: dict[str, Cause] = {}
    for path in sorted(paths.values(), key=_rank, reverse=True):
        cause = _cause(facts, subject, path)
        causes.setdefault(cause.sentence, cause)  # one call that two actors record is one cause
        if len(causes) >= MOST_CAUSES:
            break
    return Answer(subject=subject, causes=tuple(causes.values()))


def _rank(path: _Path) -> tuple[int, float, int]:
    return path.root.severity, -path.steps[-1].wait.since, len(path.steps)


def _from_subject(facts: Facts, subject: str, trail: tuple[_Step, ...]) -> Iterator[_Path]:
    """All paths that go on from `trail` with the waits of a subject."""
    kind = subject[: subject.find("/") + 1]
    owner = OWNERS.get(kind, subject[6:] if kind == "actor/" else "")
    if owner and (trail == () or kind == "actor/"):
        yield from _owner(facts, subject, owner, trail)
    if subject == "node":
        for name in {**facts.tables, **facts.actors}:
            yield from _owner(facts, subject, name, trail)
        runtime = root_of(facts, "node", Wait(kind="cri", waiter=subject, target="cri", since=facts.now))
        if runtime.code != "cri":
            wait = Wait(kind="cri", waiter=subject, target="cri", what="its state", since=facts.now)
            yield _Path((*trail, _Step("node", wait)), runtime)
    for step in _waits_of(facts, subject):
        yield from _follow(facts, step, trail)


def _owner(facts: Facts, subject: str, owner: str, trail: tuple[_Step, ...]) -> Iterator[_Path]:
    """The path to an actor that cannot do its work."""
    problem = actor_problem(facts, owner)
    if problem is None:
        return
    wait = Wait(kind="condition", waiter=subject, target=f"actor/{owner}", since=problem.since or facts.now)
    if problem.running is not None:
        yield from _into_handler(facts, owner, problem.running, (*trail, _Step(owner, wait)))
    yield _Path((*trail, _Step(owner, wait)), problem.root)


def _waits_of(facts: Facts, subject: str) -> Iterator[_Step]:
    """The waits of a subject, in all actors; for a pod also those with its UID."""
    found = [_Step(name, wait) for name, wait in facts.waits()]
    uids = {step.wait.uid for step in found if step.wait.waiter == subject and step.wait.uid}
    for step in found:
        if step.wait.waiter == subject or (step.wait.uid in uids and _is_about(step.wait, subject)):
            yield step


def _is_about(wait: Wait, subject: str) -> bool:
    """True when the wait of a subject's pod is also the subject's."""
    if subject.startswith("pod/"):
        return True
    return wait.kind == "helper" and f'"{subject.rpartition("/")[2]}"' in wait.what


def _waits_in(facts: Facts, actor: str, ask: AskId) -> list[_Step]:
    """The waits in the handler of an ask."""
    table = facts.tables.get(actor)
    return [_Step(actor, wait) for wait in table.waits if wait.ask == ask] if table is not None else []


def _follow(facts: Facts, step: _Step, trail: tuple[_Step, ...]) -> Iterator[_Path]:
    """The paths through one wait."""
    if any(step.wait == earlier.wait for earlier in trail):
        cycle = (*trail, step)
        yield _Path(cycle, Root("cycle", 97))
        return
    if len(trail) >= MOST_LINKS:
        return
    on = (*trail, step)
    further = list(_further(facts, step, on))
    if further:
        yield from further
    else:
        yield _Path(on, root_of(facts, step.actor, step.wait))


def _further(facts: Facts, step: _Step, on: tuple[_Step, ...]) -> Iterator[_Path]:
    wait = step.wait
    if wait.kind == "ask":
        yield from _through_ask(facts, step, on)
    elif wait.target.startswith(SUBJECTS) and wait.target != wait.waiter:
        yield from _from_subject(facts, wait.target, on)


def _through_ask(facts: Facts, step: _Step, on: tuple[_Step, ...]) -> Iterator[_Path]:
    """Into the actor that is asked: its process, the handler of this ask, or what its mailbox waits for."""
    wait, target = step.wait, step.wait.target.removeprefix("actor/")
    problem = actor_problem(facts, target)
    if problem is not None and problem.running is None:
        yield _Path(on, problem.root)
        return
    asker = facts.tables.get(step.actor)
    ask = (step.actor, asker.incarnation if asker is not None else 0, wait.number)
    inside = _waits_in(facts, target, ask)
    for one in inside:
        if one.wait.kind != "handler" or len(inside) == 1:
            yield from _follow(facts, one, on)
    if not inside and problem is not None and problem.running is not None:
        yield from _into_handler(facts, target, problem.running, on)


def _into_handler(facts: Facts, actor: str, running: Wait, on: tuple[_Step, ...]) -> Iterator[_Path]:
    """Through the handler that keeps an actor's mailbox waiting."""
    inside = [one for one in _waits_in(facts, actor, running.ask) if one.wait.target != RUNNING] if running.ask else []
    for one in inside:
        if one.wait.kind != "handler":
            yield from _follow(facts, one, (*on, _Step(actor, running)))
    yield _Path((*on, _Step(actor, running)), root_of(facts, actor, running))


def _cause(facts: Facts, subject: str, path: _Path) -> Cause:
    links = tuple(_link(facts, step) for step in path.steps)
    if path.root.detail:
        links = (*links[:-1], _with_detail(links[-1], path.root.detail))
    return Cause(
        code=path.root.code,
        sentence=sentence(subject, path.root, links, facts),
        links=links,
        severity=path.root.severity,
    )


def _with_detail(link: Link, detail: str) -> Link:
    return Link(**{name: getattr(link, name) for name in link.__struct_fields__} | {"detail": detail})


def _link(facts: Facts, step: _Step) -> Link:
    wait, now = step.wait, facts.now
    return Link(
        actor=step.actor,
        waiter=wait.waiter,
        kind=wait.kind,
        target=wait.target,
        what=wait.what,
        age_s=round(max(0.0, now - wait.since), 1),
        first_age_s=round(max(0.0, now - wait.first), 1) if wait.first else 0.0,
        deadline_in_s=round(wait.deadline - now, 1) if wait.deadline else 0.0,
        next_try_in_s=round(max(0.0, wait.next_try - now), 1) if wait.next_try else 0.0,
        error=wait.error,
    )
