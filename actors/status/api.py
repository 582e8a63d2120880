"""The API server's side of status: what this node says of its pods gets there, mirror pods with it.

Imported only with a kubeconfig. Level-triggered: whatever changes on either side marks its pod, and what is to be done
about it is decided when it is its turn (`duties.py`, `turns.py`). Nothing is kept on disk: after a kill pod_workers
and config tell both sides again, and what is the same on both is not written.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import TimerHandle
from actors._base.messaging.tasks import first_of
from actors._host.node.critical import is_static
from actors._kube.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    ServerTrouble,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from actors._metrics import kubelet as metrics
from actors.status import own_part as parts
from actors.status.api_view import ApiView, Seen, full_name
from actors.status.calls import Calls
from actors.status.duties import (
    CreateMirror,
    DeleteObject,
    Duty,
    Known,
    Order,
    WriteStatus,
    Written,
    mirror_duty,
    order_of,
    status_duty,
)
from actors.status.policy import shortened
from actors.status.turns import CAP_S, GATHER_S, REFUSED_CAP_S, THROTTLED_S, Turns
from proto.pods.status import Stage
from proto.v1 import Pod

if TYPE_CHECKING:
    from actors.status.actor import Status

log = logging.getLogger(__name__)

MUCH_BYTES = 512 * 1024
"""etcd takes 1.5 MiB, all of the pod."""
ALL_AGAIN = 6
"""Looks of which one is at everything."""
ELSEWHERE_S = 10.0
"""After an answer that the view does not explain yet: config is to say what there is."""


class ApiSide:
    """State: the pods by UID as pod_workers has told them in this incarnation, and the API server's view of them."""

    def __init__(self, actor: Status) -> None:
        self._actor = actor
        self.view = ApiView()
        self.complete = False
        """pod_workers has told of every pod there is."""
        self._known: dict[str, Known] = {}
        self._static: dict[str, str] = {}
        """NAMESPACE/NAME of a static pod to its UID."""
        self._written: dict[str, Written] = {}
        """By the API server's UID."""
        self._too_large: set[str] = set()
        self._overwritten: set[str] = set()
        """Keys to be compared with what the API server has now."""
        self._suspects: set[str] = set()
        """Those that are to be, at the next look."""
        self._looks = 0
        self._turns = Turns()
        self._calls = Calls(actor)
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        self._drained: list[Future[None]] = []
        self._errors: dict[str, str] = {}
        self._trouble = ""
        self._done = {"written": 0, "deleted": 0, "mirrors_created": 0}

    # What changes

    def told(self, pod: Pod, stage: Stage) -> None:
        """A pod, or its status, is new."""
        uid, known = pod.metadata.uid, Known(pod, stage)
        if self._known.get(uid) == known:
            return
        self._known[uid] = known
        if is_static(pod):
            self._static[full_name(pod)] = uid
        self._mark(_key(pod))
        self._pump()

    def forgotten(self, uid: str) -> None:
        """Nothing of the pod is left here."""
        known = self._known.pop(uid, None)
        if known is None:
            return
        key = _key(known.pod)
        if self._static.get(key) == uid:
            del self._static[key]
        self._too_large.discard(uid)
        self._errors.pop(key, None)
        self._mark(key)
        self._pump()

    def all_told(self) -> None:
        """pod_workers has told of every pod: mirrors of others are leftovers."""
        self.complete = True
        for name in self._leftovers():
            self._mark(name)
        self._pump()

    def seen(self, pods: Iterable[Pod], *, full: bool) -> None:
        """What the API server has, from config."""
        first = full and not self.view.complete
        changed = self.view.replace(pods) if full else self.view.change(pods)
        if first:
            changed |= {_key(known.pod) for known in self._known.values()}
        if full:
            self._written = {uid: one for uid, one in self._written.items() if uid in self.view.pods}
        self._view_changed(changed)

    def gone(self, uids: Iterable[str]) -> None:
        """The API server has these no more."""
        gone = tuple(uids)
        for uid in gone:
            self._written.pop(uid, None)
        self._view_changed(self.view.remove(gone))

    def _view_changed(self, keys: Iterable[str]) -> None:
        self._turns.answers()
        for key in keys:
            self._suspects.add(key)
            self._mark(key, fresh=True)
        self._pump()

    def look_again(self) -> None:
        """The net: every LOOK_AGAIN_S at what has changed at the API server since, and now and then at everything."""
        metrics.MIRROR_PODS.replace([((), len(self._static))])
        self._looks += 1
        keys, self._suspects = self._suspects, set()
        if self._looks % ALL_AGAIN == 0:
            keys |= {*(_key(known.pod) for known in self._known.values()), *self._leftovers()}
        self._overwritten |= keys
        for key in keys:
            self._mark(key, gather=False)
        self._pump()

    def _leftovers(self) -> list[str]:
        mirrors = [one.name for one in self.view.pods.values() if one.mirror_of is not None]
        return [name for name in mirrors if name not in self._static]

    # Turns

    def _mark(self, key: str, *, fresh: bool = False, gather: bool = True) -> None:
        order = self._order(key)
        gather_s = GATHER_S if gather and order == Order.REST else 0.0
        self._turns.mark(key, order, time.monotonic(), gather_s=gather_s, fresh=fresh)

    def _order(self, key: str) -> Order:
        known = self._known.get(self._static.get(key, key))
        return order_of(known, self._there(key))

    def _there(self, key: str) -> Seen | None:
        return self.view.mirror(key) if "/" in key else self.view.pods.get(key)

    def _pump(self) -> None:
        now = time.monotonic()
        while (key := self._turns.take(now)) is not None:
            duty = self._duty(key)
            self._overwritten.discard(key)
            if duty is None:
                self._turns.nothing(key)
                self._errors.pop(key, None)
            else:
                self._actor.spawn(self._do(key, duty), f"api {key}")
        self._set_timer(now)
        if not len(self._turns):
            self._all_said()

    def _all_said(self) -> None:
        self._turns.all_said()
        self._trouble = ""
        drained, self._drained = self._drained, []
        for one in drained:
            one.set(None)

    def _set_timer(self, now: float) -> None:
        wait_s = self._turns.wait_s(now)
        if wait_s is None or (self._timer is not None and self._timer_at <= now + wait_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = now + wait_s
        self._timer = self._actor.after(wait_s, self._timer_over)

    def _timer_over(self) -> None:
        self._timer = None
        self._pump()

    def _duty(self, key: str) -> Duty | None:
        known = self._known.get(self._static.get(key, key))
        if "/" in key:
            found = mirror_duty(known, key, self.view, complete=self.complete)
            if not isinstance(found, Seen):
                return found
            there: Seen | None = found
        else:
            there = self.view.pods.get(key)
        if known is None or there is None:
            return None
        if there.uid not in self._written:
            known = self._adopt(known, there)
        if known.pod.metadata.uid in self._too_large:
            known = known._replace(pod=msgspec.structs.replace(known.pod, status=shortened(known.pod.status)))
        return status_duty(known, there, self._written.get(there.uid), overwritten=key in self._overwritten)

    def _adopt(self, known: Known, there: Seen) -> Known:
        """What the API server knows the times of has them."""
        status = parts.adopted(known.pod.status, there.status)
        if status == known.pod.status:
            return known
        pod = msgspec.structs.replace(known.pod, status=status)
        self._known[pod.metadata.uid] = known._replace(pod=pod)
        self._actor.adopt(pod)
        return self._known[pod.metadata.uid]

    async def flush(self, timeout_s: float) -> int:
        """Wait until everything is said; of how many pods it is not by then."""
        if len(self._turns):
            drained: Future[None] = Future()
            self._drained.append(drained)
            await first_of(drained, self._actor.sleep(timeout_s))
        return len(self._turns)

    # Deeds

    async def _do(self, key: str, duty: Duty) -> None:
        since = self._turns.since(key)
        try:
            await self._carry_out(duty)
        except ApiError as error:
            self._failed(key, duty, error)
        else:
            if isinstance(duty, WriteStatus):
                metrics.STATUS_SYNC_SECONDS.observe(time.monotonic() - since)
            self._turns.done(key, self._order(key), time.monotonic())
            self._errors.pop(key, None)
            if self._trouble:
                log.warning("the API server takes what is said of pods again")
            self._trouble = ""
        self._pump()

    async def _carry_out(self, duty: Duty) -> None:
        match duty:
            case DeleteObject():
                left = await self._calls.delete(duty)
                if left is None:
                    self.view.deleted_by_us(duty.seen.uid)
                    self._written.pop(duty.seen.uid, None)
                self._take(left)
                self._done["deleted"] += 1
            case CreateMirror():
                self._take(await self._calls.create_mirror(duty))
                self._done["mirrors_created"] += 1
            case _:
                stored = await self._calls.write(duty)
                self._take(stored)
                after = parts.same_part(stored.status if stored is not None else duty.own, duty.own)
                self._written[duty.seen.uid] = Written(parts.digest(duty.own), parts.digest(after))
                self._done["written"] += 1

    def _take(self, answered: Pod | None) -> None:
        if answered is not None:
            self.view.change((answered,))

    # Failures

    def _failed(self, key: str, duty: Duty, error: ApiError) -> None:
        now, order = time.monotonic(), self._order(key)
        text = f"{type(error).__name__}: {error}"
        throttled = isinstance(error, TooManyRequests) or (
            isinstance(error, ServerTrouble) and error.retry_after_s is not None
        )
        if throttled or isinstance(error, Unauthorized | Unreachable):
            retry_after_s = (error.retry_after_s or THROTTLED_S) if throttled else None
            if type(error).__name__ != self._trouble.partition(":")[0]:  # the rest names the pod that tried
                log.warning("the API server takes nothing that is said of pods: %s; tried again", text)
            self._trouble = text
            if isinstance(error, Unreachable):
                self._calls.rebuild()
            self._turns.trouble(key, order, now, random.random(), retry_after_s)
            return
        if self._errors.get(key) != text:
            log.warning("cannot %s: %s; tried again", _words(duty), text)
        self._errors[key] = text
        cap_s = REFUSED_CAP_S if isinstance(error, Forbidden | Invalid) else CAP_S
        self._turns.failed(key, order, now, self._wait_s(key, duty, error), cap_s)

    def _wait_s(self, key: str, duty: Duty, error: ApiError) -> float | None:
        """How long to leave it after that refusal; None: longer each time."""
        uid = self._static.get(key, key)
        if isinstance(duty, WriteStatus):
            if isinstance(error, NotFound):
                return ELSEWHERE_S
            if _is_too_large(duty, error) and uid not in self._too_large:
                self._too_large.add(uid)  # in fewer words from now on
                return 0.0
        return ELSEWHERE_S if isinstance(error, AlreadyExists) else None

    def describe(self) -> dict[str, Any]:
        """For a console."""
        return {
            "seen": len(self.view.pods) if self.view.complete else None,
            "to_say": len(self._turns),
            "held_s": round(self._turns.held_s(time.monotonic()), 1),
            "trouble": self._trouble,
            "refused": dict(self._errors),
            **self._done,
        }


def _key(pod: Pod) -> str:
    """Under what it is dealt with: a static pod by the name it shares with its mirror, any other by its UID."""
    return full_name(pod) if is_static(pod) else pod.metadata.uid


def _is_too_large(duty: WriteStatus, error: ApiError) -> bool:
    """Whether that is why it was refused: the limit is the server's, or etcd's and told in its words."""
    return error.status == 413 or len(msgspec.json.encode(duty.own)) > MUCH_BYTES


def _words(duty: Duty) -> str:
    match duty:
        case DeleteObject():
            return f"delete the pod {duty.seen.name}"
        case CreateMirror():
            return f"create the mirror pod {full_name(duty.pod)}"
        case _:
            return f"write the status of {duty.seen.name}"
