"""Crash-loop back-off as the kubelet's: 10 s doubling to 5 min, forgotten after 10 min of running."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pod_workers.model.back_off import (
    BackOff,
    BackOffLimits,
    definition_of,
    from_plain,
    raised,
    standing,
    to_plain,
    wait_until,
)
from proto.v1 import Container, ResourceRequirements

LIMITS = BackOffLimits()


def test_delays_double_from_10_s_to_5_min():
    now, entry, delays = 1000.0, None, []
    for _ in range(8):
        finished = now + 1
        now = max(finished, wait_until(entry, finished, LIMITS))
        delays.append(now - finished)
        entry = raised(entry, finished, now, LIMITS)
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_run_of_over_10_minutes_starts_over():
    entry = BackOff(delay_s=160, updated=1000.0)
    assert wait_until(entry, 1601.0, LIMITS) == 0
    assert raised(entry, 1601.0, 1602.0, LIMITS).delay_s == 10


def test_a_run_of_10_minutes_does_not():
    entry = BackOff(delay_s=160, updated=1000.0)
    assert wait_until(entry, 1600.0, LIMITS) == 1760.0
    assert raised(entry, 1600.0, 1760.0, LIMITS).delay_s == 300


@given(
    st.dictionaries(
        st.tuples(st.text(), st.text()), st.builds(BackOff, st.floats(0, 300), st.floats(0, 2e9), st.text())
    )
)
def test_the_checkpoint_gives_back_what_it_was_given(back_offs):
    assert from_plain(to_plain(back_offs)) == back_offs


LIMITED = ResourceRequirements(limits={"memory": "64Mi"})


@pytest.mark.parametrize(
    ("container", "stands"),
    [
        (Container(name="c", image="a", command=("other",)), True),
        (Container(name="c", image="b"), False),
        (Container(name="c", image="a", resources=LIMITED), False),
    ],
)
def test_another_image_or_other_resources_start_over(container, stands):
    entry = raised(None, 1000.0, 1001.0, LIMITS, definition_of(Container(name="c", image="a")))
    assert (standing(entry, definition_of(container)) is entry) == stands


def test_an_older_checkpoint_is_read():
    assert from_plain([["u", "c", 20, 1000]]) == {("u", "c"): BackOff(20.0, 1000.0)}
