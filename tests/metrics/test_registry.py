import math
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from actors._metrics import text
from actors._metrics.registry import Registry, exponential
from proto.agent.actor import Metrics
from proto.wire.codec import decode, encode


def parsed(registry):
    data = text.families_text(registry, {family.name: family.take() for family in registry})
    found = {}
    for family in text_string_to_metric_families(data.decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_a_histogram_counts_up_to_and_with_each_bound():
    registry = Registry()
    seconds = registry.histogram("h", "h", bounds=(1.0, 2.5))
    for value in (0.5, 1.0, 1.1, 9.0):
        seconds.observe(value)
    found = parsed(registry)
    assert found["h_bucket", (("le", "1"),)] == 2
    assert found["h_bucket", (("le", "2.5"),)] == 3
    assert found["h_bucket", (("le", "+Inf"),)] == found["h_count", ()] == 4
    assert found["h_sum", ()] == pytest.approx(11.6)


def test_a_gauge_that_is_set_to_a_bool_can_be_sent():
    gauge = Registry().gauge("g", "g", "of")
    gauge.set(True, "x")
    sent = Metrics(incarnation=1, samples={"g": tuple(gauge.take().items())})
    assert decode(encode(sent), Metrics) == sent


def test_only_families_without_labels_are_shown_before_a_sample():
    registry = Registry()
    registry.counter("plain_total", "p")
    registry.counter("labelled_total", "l", "a")
    registry.histogram("h", "h", bounds=(1.0,))
    assert parsed(registry) == {
        ("plain_total", ()): 0,
        ("h_bucket", (("le", "1"),)): 0,
        ("h_bucket", (("le", "+Inf"),)): 0,
        ("h_sum", ()): 0,
        ("h_count", ()): 0,
    }


LINE_ENDS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""prometheus_client's parser splits lines at these too, which the format does not."""


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=LINE_ENDS), max_size=8), max_size=4)
)
def test_any_label_value_comes_back_as_it_was(values):
    registry = Registry()
    counter = registry.counter("c_total", 'help with "quotes", \\ and\nlines', "value")
    for value in set(values):
        counter.inc(value, by=len(value))
    assert parsed(registry) == {("c_total", (("value", value),)): len(value) for value in set(values)}


@pytest.mark.parametrize("value", ['a "quoted" word', "two\nlines", "C:\\new", "\\", "\\n", 'x"} 1\nevil 2', "ünï"])
def test_special_label_values_come_back(value):
    registry = Registry()
    registry.gauge("g", "g", "value").set(3, value)
    assert parsed(registry) == {("g", (("value", value),)): 3}


def test_undecodable_bytes_in_a_label_become_question_marks():
    registry = Registry()
    registry.gauge("g", "g", "value").set(3, b"a\xffb".decode("utf-8", "surrogateescape"))
    assert parsed(registry) == {("g", (("value", "a?b"),)): 3}


@pytest.mark.parametrize(
    ("value", "as_go"),
    [(0.005, "0.005"), (1, "1"), (2.5, "2.5"), (600, "600"), (262_144, "262144"), (1_048_576, "1.048576e+06")],
)
def test_bounds_are_written_as_go_writes_them(value, as_go):
    assert text.bound(value) == as_go


def test_nan_and_infinity_have_their_text():
    assert [text.number(value) for value in (math.nan, math.inf, -math.inf, 1.5, 1e20)] == [
        "NaN",
        "+Inf",
        "-Inf",
        "1.5",
        "100000000000000000000",
    ]


def test_exponential_bounds_have_no_rounding_noise():
    assert exponential(0.005, 2.5, 4) == (0.005, 0.0125, 0.03125, 0.078125)


def test_wrong_number_of_labels_fails_at_the_first_sample():
    counter = Registry().counter("c_total", "c", "a b")
    with pytest.raises(ValueError, match="c_total has the labels"):
        counter.inc("only one")


def test_nothing_is_lost_between_threads():
    counter = Registry().counter("c_total", "c")
    threads = [threading.Thread(target=lambda: [counter.inc() for _ in range(5000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.take() == {(): (20_000.0,)}
