"""`supervisor run`: run an agent on copies of some manifests in the foreground, and end the pods with it.

A session has its own directory and an agent as a child process, which is an unchanged `supervisor start`. The module
shows the pods through `view`. At the end it ends the pods and the agent, and removes the directory.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from proto.v1 import Event, Pod
from proto.waits.obstacles import Tool
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.common import list_pods
from supervisor.cli.errors import INTERRUPTED
from supervisor.cli.run import advice, leftovers, session, sources, view
from supervisor.cli.run.agent import START, Agent, Interrupts
from supervisor.sockets.client import Client

POLL_S = 0.25
ADVISE_S = 1.0
"""Period of the search for obstacles of pods."""
GONE_FOR_S = 0.5
"""Time without any pod at the end. A manifest that was read just before its removal becomes a pod later."""
GRACE_MARGIN_S = 60.0
"""Time for a pod to end, in addition to its grace period. Stopping sandboxes is slow on a busy machine."""
DEFAULT_GRACE_S = 30


@click.command()
@click.argument("manifests", metavar="[MANIFEST]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--objects-dir",
    metavar="DIR",
    type=click.Path(exists=True, path_type=Path),
    help="As in `supervisor start`: ConfigMaps, Secrets and other objects for the pods. They are copied too.",
)
@click.option(
    "--images-dir",
    metavar="DIR",
    type=click.Path(exists=True, path_type=Path),
    help="As in `supervisor start`: OCI layouts and archives for the embedded runtime.",
)
@click.option("--container-runtime-endpoint", metavar="ENDPOINT", help="As in `supervisor start`.")
@click.option("--hostname-override", metavar="NAME", help="As in `supervisor start`.")
def run(
    manifests: tuple[Path, ...],
    objects_dir: Path | None,
    images_dir: Path | None,
    container_runtime_endpoint: str | None,
    hostname_override: str | None,
) -> None:
    """Run an agent on copies of the MANIFESTs (files, pipes, or directories) and show its pods, until Ctrl-C.

    The agent has its own directories, which are removed at the end. Ctrl-C ends the pods within their grace periods,
    then the agent. A second Ctrl-C ends the agent at once and leaves the pods.
    """
    given = {
        "--container-runtime-endpoint": container_runtime_endpoint,
        "--hostname-override": hostname_override,
        "--images-dir": images_dir and images_dir.resolve(),
    }
    flags = [f"{flag}={value}" for flag, value in given.items() if value]
    sys.exit(Session(manifests, flags, objects=objects_dir).run())


class Session:
    """One run, from the creation of its directory to the removal."""

    def __init__(
        self,
        manifests: Sequence[Path],
        flags: Sequence[str],
        start: Sequence[str] = START,
        objects: Path | None = None,
    ) -> None:
        """`start` is the agent's command line. The flags of the session's directories and `flags` are added."""
        found, found_objects = sources.read(manifests), sources.read([objects] if objects is not None else [])
        self._empty = (*found.empty, *found_objects.empty)
        self.directory = Path(tempfile.mkdtemp(prefix="nodevisor-"))
        self.manifests = self.directory / "manifests"
        self.run_dir = self.directory / "run"
        self._expected = sources.write(found.copies, self.manifests)
        self._objects = sources.write(found_objects.copies, self.directory / "objects") if objects is not None else 0
        self._cgroup_root = session.cgroup_root(self.directory)
        self._flags = [*self._directory_flags(), *flags]
        command = [*start, *self._flags]
        self._claim = session.Claim.take(self.directory, command, self._cgroup_root)
        self._agent = Agent(command, self.directory / "agent.log")
        self._client = Client(self.run_dir)
        self._interrupts = Interrupts()
        self._pods: tuple[Pod, ...] = ()
        self._announced = False
        self._advice = advice.NOTHING
        self._advise_at = 0.0
        self._view: view.View = view.choose()

    def _directory_flags(self) -> list[str]:
        return [
            f"--run-dir={self.run_dir}",
            f"--root-dir={self.directory}/root",
            f"--pod-manifest-path={self.manifests}",
            *([f"--objects-dir={self.directory}/objects"] if self._objects else []),
            f"--pod-logs-dir={self.directory}/pods",
            f"--container-logs-dir={self.directory}/containers",
            f"--cert-dir={self.directory}/pki",
            *([f"--cgroup-root={self._cgroup_root}"] if self._cgroup_root else []),
            "--keep-images",  # other users of the machine's runtime need its images
            "--healthz-port=0",  # another agent may have the port
            "--tune-kernel=false",  # a session makes no lasting change of the machine
        ]

    def run(self) -> int:
        """Start the agent, show its pods until interrupted, end both, and return the exit code."""
        with self._interrupts, self._client:
            for dead in leftovers.dead_sessions():
                self._clear(dead)
            self._agent.start()
            try:
                self._print_introduction()
                return self._follow()
            finally:
                self._show(lambda view: view.close())

    def _clear(self, dead: session.Claim) -> None:
        """Clear a dead session. An error is reported, and does not end this session."""
        try:
            leftovers.clear(dead, self._say)
        except OSError as error:
            dead.release()
            text = f"Cannot clear {dead.record.directory} of an earlier session: {error}; the next session tries again."
            self._say(text, error=True)

    def _say(self, text: str, *, error: bool = False) -> None:
        self._show(lambda view: view.say(text, error=error))

    def _show(self, act: Callable[[view.View], None]) -> None:
        """Show something. A closed terminal or pipe counts as an interrupt."""
        try:
            act(self._view)
        except OSError:
            self._view = view.Mute()
            self._interrupts.count = max(1, self._interrupts.count)

    def _print_introduction(self) -> None:
        for directory in self._empty:
            self._say(f"There is no file in {directory}; hidden files and sub-directories are not read.", error=True)
        manifests = f"{self._expected} manifest{'' if self._expected == 1 else 's'}"
        self._say(f"The agent runs with pid {self._agent.pid} on {manifests}, in {self.directory}:")
        self._say("  manifests/  copies to edit, add to and remove while it runs")
        if self._objects:
            self._say("  objects/    the same of the objects they use")
        self._say("  pods/       the containers' logs")
        self._say("  agent.log   its own")
        self._say(f"Look inside from another terminal: {own_name()} console --run-dir {self.run_dir}")
        self._say("Ctrl-C ends the pods, then the agent.")

    # While it runs

    def _follow(self) -> int:
        while not self._interrupts.count:
            if not self._refresh():
                return self._agent_died()
            self._interrupts.wait(POLL_S, self._agent.pidfd)
        return self._end()

    def _refresh(self) -> bool:
        """Show new warnings and pods; False when the agent has ended."""
        alive = self._agent.alive()
        for line in self._agent.new_warnings():
            if not advice.repeats_advice(line):
                self._say(line, error=True)
        found = self._list() if alive else None
        if found is not None:
            self._pods = found
            self._show(lambda view: view.show(found, self._agent.age_s()))
            self._announce()
            self._advise()
        return alive

    def _list(self) -> tuple[Pod, ...] | None:
        """Every pod; None while the agent does not answer because it or an actor starts."""
        try:
            return list_pods(self._client, 1.0)
        except (ActorError, ProtocolError):
            return None

    def _announce(self) -> None:
        """Report once that every pod is ready or completed."""
        if self._announced or not self._pods or len(self._pods) < self._expected:
            return
        if all(map(view.is_settled, self._pods)):
            self._announced = True
            self._say(f"All pods are ready or completed after {self._agent.age_s():.1f} s.")

    def _advise(self) -> None:
        """Show the present obstacle of the pods, if any."""
        if self._interrupts.count:
            return
        if all(map(view.is_settled, self._pods)):
            self._advice = advice.NOTHING
        elif time.monotonic() > self._advise_at:
            tool = Tool(own_name(), str(self.run_dir))
            self._advice = advice.find(self._pods, self._events(), time.time(), tool)
            self._advise_at = time.monotonic() + ADVISE_S
        self._show(lambda view: view.advise(self._advice.line()))

    def _events(self) -> tuple[Event, ...]:
        """All events; none when the events actor does not answer."""
        from proto.pods.events import ListEvents  # noqa: PLC0415 - for slow pods only

        try:
            return self._client.ask("events", ListEvents(), 1.0).events
        except (ActorError, ProtocolError):
            return ()

    # The ends

    def _end(self) -> int:
        """End pods and agent, and repeat the advice, which may have scrolled by."""
        self._show(lambda view: view.advise(""))
        code = self._end_pods()
        if self._advice.what:
            self._say(f"Not all pods got ready: {self._advice.what}.", error=True)
        return code

    def _end_pods(self) -> int:
        self._say("Ending the pods, each within its grace period (Ctrl-C again leaves them running).")
        session.remove_manifests(self.manifests)
        graces = [pod.spec.termination_grace_period_seconds for pod in self._pods]
        allowed_s = max((DEFAULT_GRACE_S if g is None else g for g in graces), default=0) + GRACE_MARGIN_S
        deadline = time.monotonic() + allowed_s
        empty_since = None
        while empty_since is None or time.monotonic() < empty_since + GONE_FOR_S:
            self._interrupts.wait(POLL_S, self._agent.pidfd)
            if self._interrupts.count > 1:
                return self._leave()
            if not self._refresh():
                return self._agent_died()
            if time.monotonic() > deadline:
                return self._overdue(allowed_s)
            empty_since = (empty_since or time.monotonic()) if self._is_empty() else None
        self._agent.end()
        self._remove_directory()
        self._say("The pods and the agent have ended.")
        return 0

    def _is_empty(self) -> bool:
        """True when neither status nor pod_workers has a pod; status alone may not show all of them."""
        from proto.pods.pod_workers import ListPodWorkers  # noqa: PLC0415 - needed at the end only

        if self._list() != ():
            return False
        try:
            return not self._client.ask("pod_workers", ListPodWorkers(), 1.0).pods
        except (ActorError, ProtocolError):
            return False

    def _leave(self) -> int:
        self._agent.end()
        self._keep()
        self._say("The agent has ended at once; pods that had not ended stay.", error=True)
        self._print_how_to_clear()
        return INTERRUPTED

    def _overdue(self, allowed_s: float) -> int:
        names = ", ".join(pod.metadata.name for pod in self._pods)
        self._agent.end()
        self._keep()
        self._say(f"The agent has ended, but after {allowed_s:.0f} s these pods had not: {names}.", error=True)
        self._print_how_to_clear()
        return 1

    def _agent_died(self) -> int:
        text = f"The agent ended by itself ({self._agent.exit_text()})."
        tail = self._agent.last_lines()
        self._say(f"{text} The end of its log:\n{tail}" if tail else text, error=True)
        if self._pods:
            self._keep()
            self._print_how_to_clear()
        else:
            self._remove_directory()
        return 1

    def _print_how_to_clear(self) -> None:
        command = shlex.join([own_name(), "start", *self._flags])
        self._say(
            f"Their files stay in {self.directory}. An agent started as this one was takes the pods over again; with "
            f"no manifest left in {self.manifests} it ends them:\n  {command}",
            error=True,
        )

    def _keep(self) -> None:
        """Remove the record, so that no later session ends the pods, which the user was told of."""
        if self._claim is not None:
            self._claim.forget()

    def _remove_directory(self) -> None:
        """Remove the session's directory and cgroups."""

        def say(text: str) -> None:
            self._say(text, error=True)

        if not session.remove_cgroups(self._cgroup_root):
            say(f"The cgroup {self._cgroup_root} stays: something still runs in it.")
        if session.remove_directory(self.directory, say) and self._claim is not None:
            self._claim.forget()


def own_name() -> str:
    """The name of this program in commands that users are told to run."""
    called = sys.argv[0]
    if Path(called).name != "supervisor" or shutil.which("supervisor") == called:
        return "supervisor"
    return called
