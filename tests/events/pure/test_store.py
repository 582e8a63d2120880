"""The store of events: which event is sent next, and the store's bounds."""

from __future__ import annotations

from actors.events.entry import SUPERVISION
from actors.events.store import MOST, Store
from tests.events.pure.test_policy import entry


def sent_names(store: Store, sent: int = 0) -> list[str]:
    """The names of the events in the order in which a sender takes them."""
    found = []
    while (one := store.next_to_send(sent)) is not None:
        found.append(one.name)
        sent = one.revision
    return found


def test_events_are_sent_once_in_the_order_of_their_last_change():
    store = Store()
    first, second = (store.put(entry(number, f"m{number}"), number) for number in range(2))
    store.put(first, 2)
    assert sent_names(store) == [second.name, first.name]
    assert store.next_to_send(store.revision) is None
    store.put(second, 3)
    assert sent_names(store, store.revision - 1) == [second.name]


def test_events_about_actors_and_dropped_ones_are_not_sent():
    store = Store()
    store.put(entry(0, "of an actor", component=SUPERVISION), 0)
    assert store.next_to_send(0) is None
    for number in range(MOST + 1):
        store.put(entry(number, "m"), number)
    names = list(store.entries)
    assert len(names) == MOST
    assert sent_names(store) == names


def test_events_that_were_sent_before_a_restart_are_not_sent_again():
    store = Store()
    for number in range(3):
        store.load(store.put(entry(number, "m"), number))
    sent = next(iter(store.entries.values())).revision
    assert sent_names(store, sent) == list(store.entries)[1:]
