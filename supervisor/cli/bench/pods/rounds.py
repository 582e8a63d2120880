"""Pods up and gone through the agent, between two rounds of the same pods by calls of the runtime alone."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from proto.agent.settings import Settings
from supervisor.cli.bench.figures import Figure
from supervisor.cli.bench.pods import plan as plans
from supervisor.cli.bench.pods.bare import BarePods, sandboxes
from supervisor.cli.bench.pods.ending import POLL_S, Ending
from supervisor.cli.bench.pods.manifests import Manifests
from supervisor.cli.bench.pods.of_agent import AgentPods
from supervisor.cli.bench.pods.plan import Plan
from supervisor.cli.common import list_pods
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from actors._cri.client import Cri

Say = Callable[[str], None]


class Wanted(NamedTuple):
    """The options of the command."""

    pods: int
    image: str
    command: tuple[str, ...]


class Prepared(NamedTuple):
    """Pods that can be started, as far as can be known before."""

    client: Client
    cri: Cri
    manifests: Manifests
    plan: Plan


@contextlib.contextmanager
def prepare(client: Client, cri: Cri, settings: Settings, wanted: Wanted) -> Iterator[Prepared]:
    """Check that the agent and its runtime can start the pods. Changes nothing. Raises CommandError with the reason."""
    _reference(wanted.image)
    plans.check_room(wanted.pods, list_pods(client), settings.max_pods)
    with Manifests(settings.pod_manifest_path) as manifests:
        others = [*manifests.of_another(), *sandboxes(cri, plans.FLOOR_LABEL)]
        if others:
            raise CommandError(
                f"cannot start pods: another benchmark runs or was killed: {', '.join(others)}; wait for its end, "
                "or remove files with rm and sandboxes with crictl rmp -f"
            )
        parent = plans.SYSTEMD_PARENT if settings.cgroup_driver == "systemd" else ""
        plan = Plan(secrets.token_hex(4), wanted.pods, wanted.image, wanted.command, parent)
        yield Prepared(client, cri, manifests, plan)


def measure(prepared: Prepared, say: Say) -> list[Figure]:
    """Figures of the pods. What was started is removed again, also after an error or a signal.

    Raises CommandError, and KeyboardInterrupt after a signal.
    """
    client, cri, manifests, plan = prepared
    with Ending() as ending:
        bare = BarePods(cri, plan, _image(cri, plan.image, ending, say), ending)
        of_agent = AgentPods(client, cri, manifests, plan, ending)
        try:
            found = _rounds(bare, of_agent, plan.pods, say)
        finally:
            say("removing what is left of the pods")
            all_gone = _clear(of_agent, bare)
            say("")
        if not all_gone:
            raise CommandError("cannot end the benchmark: not all that it made is removed; see above")
        return found


def _clear(*parts: AgentPods | BarePods) -> bool:
    """Clear each part, also after an exception in another one. Print a line for each thing that stays."""
    left: list[str] = []

    def clear(part: AgentPods | BarePods) -> None:
        for line in part.clear():
            render.echo(f"supervisor: {line}", err=True)
            left.append(line)

    with contextlib.ExitStack() as stack:
        for part in parts:
            stack.callback(clear, part)
    return not left


def _rounds(bare: BarePods, of_agent: AgentPods, count: int, say: Say) -> list[Figure]:
    say("pods without the agent, before")
    before = bare.start(), bare.stop()
    say("pods of the agent")
    up_s, gone_s = of_agent.measure()
    say("pods without the agent, after")
    after = bare.start(), bare.stop()
    floor_up_s, floor_gone_s = (sum(both) / 2 for both in zip(before, after, strict=True))
    pods = f"{count} pod{'s' if count > 1 else ''}"
    return [
        Figure(f"{pods} up", "s", up_s, floor=floor_up_s),
        Figure(f"{pods} gone", "s", gone_s, floor=floor_gone_s),
    ]


def _reference(image: str) -> str:
    """The image's name for the runtime, as the agent asks for it. Raises CommandError."""
    from actors._cri.image_reference import InvalidImageName, parse  # noqa: PLC0415

    try:
        return parse(image).image
    except InvalidImageName as error:
        raise CommandError(f"cannot use --image {image}: {error}") from error


def _image(cri: Cri, image: str, ending: Ending, say: Say) -> str:
    """The image's ID. It is pulled, and stays, when the runtime does not have it. Raises CommandError."""
    from actors._cri.errors import CriError  # noqa: PLC0415

    name = _reference(image)
    try:
        if (found := cri.image_status(name).result()) is None:
            say(f"pulling {image}")
            _pull(cri.pull_image(name), ending)
            say("")
            render.echo(f"pulled {image}; `supervisor images remove {image}` removes it", err=True)
            found = cri.image_status(name).result()
    except CriError as error:
        raise CommandError(f"cannot pull --image {image}: {error}") from error
    if found is None:
        raise CommandError(f"cannot use --image {image}: the runtime has pulled it and does not list it")
    return str(found.id)


def _pull(call: Any, ending: Ending) -> None:
    try:
        while not call.done():
            ending.check()
            time.sleep(POLL_S)
        call.result()
    finally:
        call.cancel()
