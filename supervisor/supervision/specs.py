"""Child specs: the actors to run and how each is supervised, as data that is checked before anything starts.

The terms are those of OTP's `supervisor`. Has the built-in list and the rules; `specfile` reads changes from a file.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable

import msgspec

from proto.agent import registry
from proto.agent.settings import Settings
from proto.common.backoff import Backoff
from proto.common.until import Until

_START_DEADLINE_S = 30.0
_START_DEADLINES_S = {"runtime": 130.0}
"""Of single actors. The embedded runtime removes what a kill left before it serves, for up to 120 s."""


class Restart(enum.Enum):
    """The ends of a child that lead to a restart."""

    PERMANENT = "permanent"
    """Every end."""
    TRANSIENT = "transient"
    """Every end except a normal exit (status 0)."""
    TEMPORARY = "temporary"
    """No end."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The supervision of one actor. Durations are seconds, with `_s` in the name."""

    name: str
    """Names its address and its package `actors/NAME`, too."""
    restart: Restart = Restart.PERMANENT
    period_s: float = 0.0
    """The shortest time between two starts."""
    jitter_factor: float = 0.1
    """Up to this fraction is added to a delay, so that children which died together do not restart together."""
    backoff_initial_s: float = 0.005
    """Delay of the second restart in a row; the first is immediate."""
    backoff_factor: float = 2.0
    backoff_cap_s: float = 10.0
    """The longest delay, and the delay while degraded."""
    reset_after_s: float = 1.0
    """An incarnation that was ready for this long was stable: the next restart is immediate again."""
    max_restarts: int = 10
    """More restarts than this within `intensity_period_s` make the actor degraded, even if it was stable in between."""
    intensity_period_s: float = 30.0
    """Degraded ends after this long in service without a death."""
    start_deadline_s: float = _START_DEADLINE_S
    """From the fork to Ready."""
    shutdown_s: float = 5.0
    """From Stop to SIGKILL."""
    heartbeat_period_s: float = 5.0
    """Between two looks at the child, with a Ping unless it is idle (`hangs`); 0 for no watchdog."""
    heartbeat_deadline_s: float = 10.0
    """From a Ping to its Pong, through the mailbox."""
    suspected_deadline_s: float = 5.0
    """The same after another actor waited in vain for its answer; 0 for no difference."""
    stopped_deadline_s: float = 0.5
    """From a signal that stops the process (SIGSTOP) to its replacement, unless SIGCONT comes; 0 leaves it to the
    watchdog."""
    memory_ceiling_mib: int = 1024
    """Anonymous memory past which the actor is replaced in a quiet moment; 0 for no ceiling. Needs the watchdog."""
    memory_patience_s: float = 300.0
    """The longest wait for that moment, while the actor has work under way."""
    depends_on: tuple[str, ...] = ()
    """Actors that must have started, or failed to, before this one's first start. No effect on restarts."""

    @property
    def until(self) -> Until:
        """The period between starts."""
        return Until(self.period_s, self.jitter_factor, sliding=False)

    @property
    def backoff(self) -> Backoff:
        """The delays of repeated restarts. `policy` resets them after a stable incarnation."""
        return Backoff(self.backoff_initial_s, self.backoff_factor, self.backoff_cap_s, self.jitter_factor)


class SpecError(ValueError):
    """An invalid list of specs.

    `name` is the actor's name or empty, `key` the field, `where` the file and line or empty.
    """

    def __init__(self, name: str, key: str, problem: str, where: str = "") -> None:
        parts = (where, f"actor {name}" if name else "", key, problem)
        super().__init__("cannot use the child specs: " + ": ".join(part for part in parts if part))
        self.name = name
        self.key = key
        self.problem = problem


_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_RESERVED = frozenset({"supervisor", "forkserver", "console", "control", "world"})
"""Other addresses in the run directory and other senders."""
_AT_LEAST_ONE_MS = ("intensity_period_s", "start_deadline_s", "heartbeat_deadline_s")
_MAX_SECONDS = 86_400.0 * 365


def builtin(heartbeat_period_s: float = 5.0, parts: Collection[str] = ("objects",)) -> tuple[ChildSpec, ...]:
    """The actors of an agent with these optional `parts` (`parts_of`, and "runtime"), in start order."""
    present = {entry.name: entry for entry in registry.ACTORS if not entry.needs or entry.needs in parts}
    return tuple(
        ChildSpec(
            name=entry.name,
            depends_on=tuple(name for name in entry.after if name in present),
            heartbeat_period_s=heartbeat_period_s,
            start_deadline_s=_START_DEADLINES_S.get(entry.name, _START_DEADLINE_S),
        )
        for entry in present.values()
    )


def parts_of(settings: Settings) -> frozenset[str]:
    """The optional parts of an agent, by `needs` of the registry. The embedded runtime's is chosen at a start."""
    cluster = bool(settings.kubeconfig)
    renews = settings.bootstrap_kubeconfig or settings.rotate_certificates or settings.server_tls_bootstrap
    wanted = {
        "objects": cluster or settings.objects_dir,
        "node": cluster or settings.shutdown_grace or settings.pod_cidr or settings.make_iptables_util_chains,
        "certificates": cluster and renews,
        "server": serves_its_api(settings),
        "tracing": settings.tracing_endpoint,
        "remote_console": settings.console_address,
    }
    return frozenset(part for part, present in wanted.items() if present)


def serves_its_api(settings: Settings) -> bool:
    """True when a client could use the kubelet's API, the read-only port or the page; else no server process starts."""
    if settings.read_only_port or settings.page_address:
        return True
    return settings.enable_server and not why_no_api(settings)


def why_no_api(settings: Settings) -> str:
    """The reason why no client could use the configured API port; empty when clients can, or it is not configured.

    Without an API server, clients need AlwaysAllow, and a client CA or anonymous requests. A kubelet with unusable
    settings does not start.
    """
    if not settings.enable_server or settings.kubeconfig:
        return ""
    if settings.authorization_mode != "AlwaysAllow":
        return "authorization.mode is Webhook, and without --kubeconfig there is no API server to ask: set AlwaysAllow"
    if not (settings.client_ca_file or settings.anonymous_auth):
        return "clients cannot authenticate: set authentication.x509.clientCAFile"
    return ""


def known() -> frozenset[str]:
    """The names of all actors. A specs file may name actors that this agent does not run."""
    return registry.NAMES


def load(path: str | None, heartbeat_period_s: float = 5.0) -> tuple[ChildSpec, ...]:
    """The specs to run, in start order: the built-in ones with the file's changes. Raises SpecError."""
    if not path:
        return validate(builtin(heartbeat_period_s))
    from supervisor.supervision import specfile  # noqa: PLC0415

    return specfile.load(path, builtin(heartbeat_period_s))


def select(specs: Iterable[ChildSpec], names: Iterable[str]) -> tuple[ChildSpec, ...]:
    """The specs of these names. Dependencies on other actors are dropped. Raises SpecError for an unknown name."""
    wanted = tuple(names)
    all_specs = tuple(specs)
    names_known = known() | {spec.name for spec in all_specs}
    for name in wanted:
        if name not in names_known:
            raise SpecError("", "actors", f"no actor {name!r}; known: {', '.join(sorted(names_known))}")
    return tuple(
        msgspec.structs.replace(spec, depends_on=tuple(name for name in spec.depends_on if name in wanted))
        for spec in all_specs
        if spec.name in wanted
    )


def validate(specs: Iterable[ChildSpec]) -> tuple[ChildSpec, ...]:
    """Check the specs and return them in start order: dependencies first, otherwise as given. Raises SpecError."""
    given = tuple(specs)
    by_name: dict[str, ChildSpec] = {}
    for spec in given:
        if spec.name in by_name:
            raise SpecError(spec.name, "name", "is declared twice")
        by_name[spec.name] = spec
    if not by_name:
        raise SpecError("", "actors", "no actor at all")
    for spec in given:
        _check_values(spec)
        for other in spec.depends_on:
            if other not in by_name:
                raise SpecError(spec.name, "depends_on", f"no actor {other!r}; known: {', '.join(sorted(by_name))}")
    return _start_order(by_name)


def _check_values(spec: ChildSpec) -> None:
    if not _NAME.fullmatch(spec.name) or spec.name in _RESERVED:
        raise SpecError(spec.name, "name", "must be 1-32 of a-z, 0-9, _, starting with a letter, and no reserved name")
    for key in spec.__struct_fields__:
        value = getattr(spec, key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not 0 <= value <= _MAX_SECONDS:  # false for NaN too
            raise SpecError(spec.name, key, f"must be from 0 to {_MAX_SECONDS:.0f}, is {value:g}")
        if key in _AT_LEAST_ONE_MS and value < 0.001:
            raise SpecError(spec.name, key, f"must be at least 0.001, is {value:g}")
    if spec.backoff_factor < 1.0:
        raise SpecError(spec.name, "backoff_factor", f"must be at least 1, is {spec.backoff_factor:g}")
    if spec.backoff_initial_s > spec.backoff_cap_s:
        raise SpecError(spec.name, "backoff_initial_s", f"is more than backoff_cap_s, {spec.backoff_cap_s:g}")


def _start_order(by_name: dict[str, ChildSpec]) -> tuple[ChildSpec, ...]:
    order: dict[str, ChildSpec] = {}

    def visit(spec: ChildSpec, path: tuple[str, ...]) -> None:
        if spec.name in path:
            circle = " -> ".join((*path[path.index(spec.name) :], spec.name))
            raise SpecError(spec.name, "depends_on", f"goes in a circle: {circle}")
        if spec.name not in order:
            for other in spec.depends_on:
                visit(by_name[other], (*path, spec.name))
            order[spec.name] = spec

    for spec in by_name.values():
        visit(spec, ())
    return tuple(order.values())
