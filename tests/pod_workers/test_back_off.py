"""Crash-loop back-off as the kubelet's: 10 s doubling to 5 min, forgotten after 10 min of running."""

from hypothesis import given
from hypothesis import strategies as st

from actors.pod_workers.back_off import BackOff, BackOffLimits, from_plain, raised, to_plain, wait_until

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


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.builds(BackOff, st.floats(0, 300), st.floats(0, 2e9))))
def test_the_checkpoint_gives_back_what_it_was_given(back_offs):
    assert from_plain(to_plain(back_offs)) == back_offs
