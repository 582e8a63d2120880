"""Crash-loop back-off as the kubelet's: 10 s doubling to 5 min, forgotten after 10 min of running."""

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pod_workers.model.back_off import (
    RestartDelay,
    definition_of,
    from_plain,
    raised,
    standing,
    to_plain,
    wait_until,
)
from actors.pod_workers.worker import PodWorker
from proto.common.backoff import Backoff
from proto.v1 import Container, ResourceRequirements

DELAYS = Backoff(10.0, cap_s=300.0, reset_after_s=600.0)


def test_delays_double_from_10_s_to_5_min():
    now, entry, delays = 1000.0, None, []
    for _ in range(8):
        finished = now + 1
        now = max(finished, wait_until(entry, finished, DELAYS))
        delays.append(now - finished)
        entry = raised(entry, finished, now, DELAYS)
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_pod_that_failed_2000_times_is_tried_in_10_s():
    worker = Mock(_failures=1999)
    assert PodWorker._failed(worker, "no") == 10


def test_a_run_of_over_10_minutes_starts_over():
    entry = RestartDelay(delay_s=160, updated=1000.0)
    assert wait_until(entry, 1601.0, DELAYS) == 0
    assert raised(entry, 1601.0, 1602.0, DELAYS).delay_s == 10


def test_a_run_of_10_minutes_does_not():
    entry = RestartDelay(delay_s=160, updated=1000.0)
    assert wait_until(entry, 1600.0, DELAYS) == 1760.0
    assert raised(entry, 1600.0, 1760.0, DELAYS).delay_s == 300


@given(
    st.dictionaries(
        st.tuples(st.text(), st.text()), st.builds(RestartDelay, st.floats(0, 300), st.floats(0, 2e9), st.text())
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
    entry = raised(None, 1000.0, 1001.0, DELAYS, definition_of(Container(name="c", image="a")))
    assert (standing(entry, definition_of(container)) is entry) == stands


def test_an_older_checkpoint_is_read():
    assert from_plain([["u", "c", 20, 1000]]) == {("u", "c"): RestartDelay(20.0, 1000.0)}
