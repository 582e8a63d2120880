"""The events actor: what has happened to the pods and the node, for all who ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

from actors._base import Actor, Future, handles
from actors._base.actor import Runtime
from proto.events import Events as Answer
from proto.events import ListEvents, RecordEvent
from proto.v1 import Event, EventSource, ObjectMeta

KEPT = 4096


class Events(Actor):
    """State: `kept`, the events by name, oldest change first."""

    name = "events"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.kept: OrderedDict[str, Event] = OrderedDict()
        self._revision = 0
        self._waiting: list[Future[None]] = []

    @handles(RecordEvent)
    def on_record(self, message: RecordEvent) -> None:
        """From every actor."""
        involved = message.involved
        host = self.settings.node_name
        name = f"{involved.name or host}.{message.time_ns:x}"
        self._revision = max(self._revision + 1, time.time_ns() // 1000)
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(message.time_ns // 10**9))
        self.kept[name] = Event(
            metadata=ObjectMeta(
                name=name, namespace=involved.namespace or "default", resource_version=str(self._revision)
            ),
            involved_object=involved,
            reason=message.reason,
            message=message.message,
            type=message.type,
            source=EventSource(component="kubelet", host=host),
            first_timestamp=when,
            last_timestamp=when,
            count=1,
            reporting_component="kubelet",
            reporting_instance=host,
        )
        while len(self.kept) > KEPT:
            self.kept.popitem(last=False)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set(None)

    @handles(ListEvents)
    async def on_list(self, request: ListEvents) -> Answer:
        """For consoles."""
        if request.wait_s > 0 and self._revision <= request.after:
            changed: Future[None] = Future()
            self._waiting.append(changed)
            self.after(request.wait_s, changed.set, None)
            await changed
        after = request.after
        found = (event for event in self.kept.values() if int(event.metadata.resource_version or 0) > after)
        return Answer(events=tuple(found), revision=self._revision)

    def describe(self) -> dict[str, Any]:
        """How many are kept."""
        return {"kept": len(self.kept), "revision": self._revision}


ACTOR = Events
