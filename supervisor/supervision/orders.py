"""Requests about one actor: restart, stop, start and kill. Part of the state machine in `process_tree`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proto.wire.errors import Refused
from supervisor.supervision import transitions
from supervisor.supervision.child import Child
from supervisor.supervision.transitions import State

if TYPE_CHECKING:
    from supervisor.supervision.process_tree import ProcessTree

ON_REQUEST = "started on request"


def carry_out(tree: ProcessTree, event: transitions.RestartAsked | transitions.ActorOrdered) -> None:
    """Carry out a request, or refuse it."""
    order = event.order if isinstance(event, transitions.ActorOrdered) else "restart"
    child = tree.children.get(event.name)
    if child is None:
        known = ", ".join(tree.children)
        problem = f"cannot {order} {event.name!r}: no such actor; there are: {known}"
        tree.answer(event.asker, Refused("NotFound", problem, retry=False))
    elif tree.stopping:
        tree.answer(event.asker, Refused("Stopping", "the agent is stopping", retry=False))
    elif isinstance(event, transitions.RestartAsked):
        _restart(tree, child, event)
    elif order == "stop":
        _stop(tree, child, event.asker)
    elif order == "start":
        _start(tree, child, event.asker)
    else:
        _kill(tree, child, event.asker)


def _restart(tree: ProcessTree, child: Child, event: transitions.RestartAsked) -> None:
    if child.held and event.asker is None:
        return  # changed settings: it gets them when an operator starts it
    _end_hold(tree, child)
    child.askers.append(event.asker)
    if not child.alive:
        tree.start(child)
        return
    if event.end_within_s is not None:
        child.end_within_s = event.end_within_s
        if child.deadline is not None:
            child.deadline = min(child.deadline, tree.now + event.end_within_s)
    tree.stop(child)
    child.again = True


def _stop(tree: ProcessTree, child: Child, asker: object) -> None:
    child.held, child.again = True, False
    tree.refuse_askers(child, "an operator has stopped it")
    child.stop_askers.append(asker)
    if child.alive:
        tree.stop(child)
        return
    child.deadline = None
    stopped(tree, child)
    tree.tried(child)


def stopped(tree: ProcessTree, child: Child) -> None:
    """Note that a child that an operator stops has ended, and answer the requests for it. It stays stopped."""
    if child.state is not State.STOPPED:
        tree.transition(child, State.STOPPED)
        text = f"stopped by an operator; `supervisor start {child.name}` starts it"
        tree.note("warning", "Stopped", child, text)
    askers, child.stop_askers = child.stop_askers, []
    for asker in askers:
        tree.answer(asker, child.row(tree.now))


def _start(tree: ProcessTree, child: Child, asker: object) -> None:
    _end_hold(tree, child)
    if child.state is State.READY:
        tree.answer(asker, child.row(tree.now))
        return
    child.askers.append(asker)
    if child.state is State.STOPPING:
        child.again = True
    elif child.state is not State.STARTING:
        tree.start(child)


def _end_hold(tree: ProcessTree, child: Child) -> None:
    child.held = False
    if not child.alive:
        tree.forgive(child, ON_REQUEST)
    drop_stop_askers(tree, child)


def drop_stop_askers(tree: ProcessTree, child: Child) -> None:
    """Answer the requests that wait for the child's end: it goes on, or the whole agent ends."""
    askers, child.stop_askers = child.stop_askers, []
    for asker in askers:
        tree.answer(asker, Refused("Superseded", f"a later request about {child.name} or the agent is carried out"))


def _kill(tree: ProcessTree, child: Child, asker: object) -> None:
    if not child.pid:
        problem = f"cannot kill {child.name}: it has no process, its state is {child.state.value}"
        tree.answer(asker, Refused("NotRunning", problem))
        return
    tree.answer(asker, child.row(tree.now))
    tree.send(transitions.Kill(child.name, child.incarnation))
