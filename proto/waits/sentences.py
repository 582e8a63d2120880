"""The sentence for a root cause: what is wrong, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable

from proto.waits.chain import Link, named, seconds, shown
from proto.waits.facts import Facts
from proto.waits.remedies import remedy
from proto.waits.roots import Root

_ENDS = ("DeadlineExceeded", "Evicted", "Preempting", "Terminated")
"""Reasons of the node for ending a pod that it had admitted."""


def sentence(subject: str, root: Root, links: tuple[Link, ...], facts: Facts) -> str:
    """One line. `links` is not empty; the last one is the root's."""
    last = links[-1]
    text = _TEXTS.get(root.code, _plain)(last, root, facts) + _image(subject, root, links)
    if subject == f"actor/{_actor(last)}":
        text = text.removeprefix(f"waits for {_actor(last)}, which ").replace(
            f"waits for {_actor(last)}, whose", "has a"
        )
    return f"{named(subject)} {text}".replace("\n", " ")


def agent_gone(subject: str, root: Root) -> str:
    """The sentence without an agent."""
    return f"{named(subject)} waits for the agent, which is not running ({root.detail}): start it; pods go on meanwhile"


def _image(subject: str, root: Root, links: tuple[Link, ...]) -> str:
    """The image whose pull is under way, with its registry."""
    images = [link.waiter for link in links if link.waiter.startswith("image/") and link.waiter != subject]
    return f" ({shown(images[-1])})" if root.code in ("cri", "runtime-stopped") and images else ""


def _for(link: Link) -> str:
    return f"for {seconds(link.age_s)}"


def _actor(link: Link) -> str:
    return link.target.removeprefix("actor/") if link.target.startswith("actor/") else link.actor


def _first_line(root: Root) -> str:
    return root.detail.partition("\n")[0]


def _cycle(link: Link, _root: Root, _facts: Facts) -> str:
    return f"is in a cycle of waits that ends at {shown(link.target or link.waiter)}: restart one of its actors"


def _actor_stopped(link: Link, root: Root, facts: Facts) -> str:
    name = _actor(link)
    pid = facts.tables[name].pid if name in facts.tables else 0
    return (
        f"waits for {name}, which is stopped by a signal ({_first_line(root)}): `kill -CONT {pid}`, "
        f"or `supervisor restart {name}`"
    )


def _actor_gone(link: Link, root: Root, _facts: Facts) -> str:
    name = _actor(link)
    return f"waits for {name}, which is not in service ({_first_line(root)}): see `supervisor deaths {name}`"


def _actor_held(link: Link, _root: Root, _facts: Facts) -> str:
    name = _actor(link)
    return f"waits for {name}, which is kept stopped by an operator: `supervisor start {name}` starts it"


def _actor_sleeps(link: Link, root: Root, _facts: Facts) -> str:
    return (
        f"waits for {_actor(link)}, which the kernel does not let go ({_first_line(root)}): look at that disk or mount"
    )


def _actor_busy(link: Link, _root: Root, _facts: Facts) -> str:
    name = _actor(link)
    return (
        f"waits for {name}, whose handler of {link.what or 'a message'} does not return {_for(link)}: "
        "the supervisor replaces it if it stays so"
    )


def _runtime_down(_link: Link, root: Root, _facts: Facts) -> str:
    return f"waits for the container runtime, which does not listen ({_first_line(root)}): start it"


def _runtime_stopped(link: Link, root: Root, facts: Facts) -> str:
    pid = facts.runtime.pid
    return (
        f"waits for {link.what} of the container runtime, which does not run ({_first_line(root)}): `kill -CONT {pid}`"
    )


def _cri(link: Link, _root: Root, facts: Facts) -> str:
    left = f", which gives up in {seconds(link.deadline_in_s)}" if link.deadline_in_s > 0 else ""
    where = f" at {facts.runtime.endpoint}" if facts.runtime.endpoint else ""
    return f"waits for the container runtime{where}: {link.what} is under way {_for(link)}{left}"


def _http(link: Link, _root: Root, _facts: Facts) -> str:
    return f"waits for {link.target.removeprefix('host/')}, which has not answered {link.what} {_for(link)}"


def _helper(link: Link, root: Root, _facts: Facts) -> str:
    state = f" ({_first_line(root)})" if root.detail else ""
    hint = {
        "helper-sleeps": ": the file system or its server does not answer",
        "helper-stopped": f": `kill -CONT {link.target.partition('/')[2]}`",
    }.get(root.code, "")
    return f"waits for the helper process that does {link.what} {_for(link)}{state}{hint}"


def _blocking(link: Link, root: Root, _facts: Facts) -> str:
    state = f" ({_first_line(root)})" if root.detail else ""
    return f"waits for {link.what} in a thread of {link.actor}, which has not returned {_for(link)}{state}"


def _retry(link: Link, _root: Root, _facts: Facts) -> str:
    when = f"; next try in {seconds(link.next_try_in_s)}" if link.next_try_in_s else ""
    what = f"{link.what}: " if link.what else ""
    since = f"for {seconds(link.first_age_s)}" if link.first_age_s else _for(link)
    return f"cannot go on {since}: {what}{link.error or 'no error'}{when}{_do(link)}"


def _object(link: Link, _root: Root, _facts: Facts) -> str:
    kind, _, name = link.target.removeprefix("object/").partition("/")
    what = f"{kind} {name}" if name else link.what
    return f"waits for {what}, which does not exist: create it{_because(link)}"


def _admission(link: Link, _root: Root, _facts: Facts) -> str:
    """A pod that ran before has a reason of its end in the same record."""
    ended = link.what.partition(": ")[0] in _ENDS
    state = f"was ended by the node {seconds(link.age_s)} ago" if ended else f"is not admitted {_for(link)}"
    return f"{state}: {link.what.rstrip('. ')}{_because(link)}{_do(link)}"


def _hook(link: Link, _root: Root, _facts: Facts) -> str:
    """For the end of a container the runtime has a deadline: the grace period, after which it sends SIGKILL."""
    kills = link.deadline_in_s > 0 and not link.what.startswith("preStop")
    left = f", and SIGKILL ends it in {seconds(link.deadline_in_s)}" if kills else ""
    why = f"; it is killed: {link.error}" if link.error else ""
    return f"waits {_for(link)} for {link.what}{left}{why}{_do(link)}"


def _ask(link: Link, _root: Root, _facts: Facts) -> str:
    return f"waits for {_actor(link)}, which has not answered {link.what} {_for(link)}"


def _queue(link: Link, _root: Root, _facts: Facts) -> str:
    return f"waits {_for(link)} for its turn: {link.what or shown(link.target)}"


def _handler(link: Link, _root: Root, _facts: Facts) -> str:
    return f"waits for {link.actor}, which has worked on {link.what} {_for(link)}"


def _plain(link: Link, _root: Root, _facts: Facts) -> str:
    return f"waits {_for(link)} for {link.what or shown(link.target)}{_because(link)}{_do(link)}"


def _do(link: Link) -> str:
    advice = remedy(link)
    return f"; {advice}" if advice else ""


def _because(link: Link) -> str:
    when = f"; next try in {seconds(link.next_try_in_s)}" if link.next_try_in_s else ""
    return (f": {link.error}" if link.error else "") + when


_TEXTS: dict[str, Callable[[Link, Root, Facts], str]] = {
    "cycle": _cycle,
    "actor-stopped": _actor_stopped,
    "actor-gone": _actor_gone,
    "actor-held": _actor_held,
    "actor-sleeps": _actor_sleeps,
    "actor-busy": _actor_busy,
    "runtime-down": _runtime_down,
    "runtime-stopped": _runtime_stopped,
    "cri": _cri,
    "http": _http,
    "helper": _helper,
    "helper-sleeps": _helper,
    "helper-stopped": _helper,
    "blocking": _blocking,
    "thread-sleeps": _blocking,
    "retry": _retry,
    "object": _object,
    "admission": _admission,
    "hook": _hook,
    "ask": _ask,
    "queue": _queue,
    "lock": _queue,
    "handler": _handler,
}
