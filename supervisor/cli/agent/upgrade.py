"""`supervisor upgrade`: checks another release, hands the running agent to it, and follows the restarts."""

from __future__ import annotations

import subprocess
import time

import click
import msgspec

from proto.agent.supervisor import GetUpgrade, StartUpgrade, UpgradeState
from proto.wire.errors import ActorDead, AskTimeout
from supervisor.cli.actors.seconds import TIMEOUT
from supervisor.cli.common import connect, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.core.upgrade import facts, trust
from supervisor.core.upgrade.facts import Facts
from supervisor.core.upgrade.release import NoReleaseError, Release, at, command, own
from supervisor.sockets.client import AWAY_S, CannotReach, Client

CHECK_S = 60.0


@click.command()
@click.option("--to", metavar="PATH", help="An environment (with bin/python) or a source tree; default: the present.")
@click.option("--check", is_flag=True, help="Only say what would happen.")
@click.option("--status", is_flag=True, help="Only show the upgrade under way, or the last one.")
@click.option("--timeout", type=TIMEOUT, default=600.0, show_default=True, help="Seconds to wait for its end.")
@run_dir_option
@output_option("json")
def upgrade(to: str | None, *, check: bool, status: bool, timeout: float, run_dir: str, output: str | None) -> None:
    """Replace the running agent's code by that of PATH, without ending a pod.

    The supervisor executes its next self with the same pid; then each actor restarts and is on trial. If one fails, the
    former release comes back. Run it again with the former PATH to return by hand.
    """
    with connect(run_dir) as client:
        if status:
            _show(client.ask("supervisor", GetUpgrade()), output)
            return
        client.check_role("StartUpgrade")  # the check below executes code of the release
        release = _release(to)
        notes = _check(release)
        if check:
            actors = [row.name for row in client.actors()[2:] if not row.held]
            if output == "json":
                found = {"python": release.python, "place": release.place, "actors": actors, "notes": notes}
                render.echo(render.json_text(found))
                return
            render.echo(f"would execute {release.python} with the supervisor's pid, then restart, one by one:")
            render.echo(f"  {', '.join(actors)}")
            return
        client.ask("supervisor", StartUpgrade(python=release.python, path=release.path, place=release.place))
        state = _follow(client, release, time.monotonic() + timeout, quiet=output is not None)
    _show(state, output)
    if state.verdict != "done":
        raise CommandError(f"the upgrade {state.verdict or 'was lost: another supervisor runs'}")


def _release(to: str | None) -> Release:
    try:
        return at(to) if to is not None else own()
    except NoReleaseError as error:
        raise CommandError(f"cannot upgrade: {error}") from error


def _check(release: Release) -> list[str]:
    """Print remarks about a release, and return them. Raises CommandError when the agent cannot be handed to it.

    Executes it only if no other user could have changed it.
    """
    if found := trust.objection(release):
        raise CommandError(f"cannot upgrade to {release.place}: {found}")
    against, remarks = facts.problems(_facts(own()), _facts(release))
    for remark in remarks:
        render.echo(f"note: {remark}", err=True)
    if against:
        raise CommandError(f"cannot upgrade to {release.place}: {'; '.join(against)}")
    return remarks


def _facts(release: Release) -> Facts:
    try:
        line = command(release, "supervisor.core.upgrade.facts")
        done = subprocess.run(line, capture_output=True, timeout=CHECK_S, check=False)
        return facts.decoded(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"cannot check {release.place}: it did not answer within {CHECK_S:g} s") from error
    except OSError as error:
        raise CommandError(f"cannot execute {release.python}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise CommandError(f"cannot check {release.place}: {last[0]}; is it a release with `upgrade`?") from error


def _follow(client: Client, release: Release, deadline: float, *, quiet: bool) -> UpgradeState:
    """Print each restarted actor, until the upgrade has ended."""
    seen: set[str] = set()
    answered = time.monotonic()
    while True:
        time.sleep(0.2)
        now = time.monotonic()
        try:
            state = client.ask("supervisor", GetUpgrade(), 2.0)
            answered = now
        except (CannotReach, ActorDead, AskTimeout):
            if now > answered + AWAY_S:
                raise
            continue
        for name in state.moved:
            if name not in seen and not quiet:
                seen.add(name)
                render.echo(f"{name}: runs {state.place}{' again' if state.back else ''}")
        if not state.under_way:
            return state
        if now > deadline:
            raise CommandError(f"the upgrade to {release.place} goes on; see `supervisor upgrade --status`")


def _show(state: UpgradeState, output: str | None) -> None:
    if output == "json":
        render.echo(render.json_text(render.fields(state)))
        return
    done = "under way" if state.under_way else state.verdict or "no upgrade so far"
    more = f"; on trial: {state.trial}; waiting: {len(state.waiting)}" if state.under_way else ""
    render.echo(f"{state.place}: {done}{more}")
