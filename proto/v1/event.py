"""Records of core/v1 events. The events actor counts and stores them (`actors/events`)."""

from proto.v1.meta import Object, ObjectReference
from proto.v1.scalars.base import Int32, Record, Timestamp


class EventSource(Record, frozen=True, kw_only=True):
    """The component that reports, `kubelet` on a node."""

    component: str | None = None
    host: str | None = None


class EventSeries(Record, frozen=True, kw_only=True):
    """Occurrences of an event of events.k8s.io. The kubelet's events have `count` instead."""

    count: Int32 | None = None
    last_observed_time: Timestamp | None = None


NO_OBJECT = ObjectReference()
NO_SOURCE = EventSource()


class Event(Object, frozen=True, kw_only=True):
    """One event; its repeats raise `count` and `last_timestamp`. `event_time` is null in the kubelet's."""

    involved_object: ObjectReference = NO_OBJECT
    reason: str | None = None
    message: str | None = None
    source: EventSource = NO_SOURCE
    first_timestamp: Timestamp | None = None
    last_timestamp: Timestamp | None = None
    count: Int32 | None = None
    type: str | None = None
    event_time: Timestamp | None = None
    series: EventSeries | None = None
    action: str | None = None
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
