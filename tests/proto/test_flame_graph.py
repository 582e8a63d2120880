"""Flame graphs from samples: shares, text, SVG, and bounds."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from proto.agent import flame_graph

SAMPLES = {
    "Main;run (a/b.py:1);work (a/b.py:2)": 30,
    "Main;run (a/b.py:1);poll (sugar/poll.py:9)": 60,
    "api;Thread.run (python3.11/threading.py:1);_worker (futures/thread.py:2)": 10,
}


def test_text_has_total_and_own_share() -> None:
    lines = flame_graph.text(SAMPLES)
    assert "100.0%    0.0%  all" in lines[1]
    assert any(line.endswith("work (a/b.py:2)") and " 30.0%  30.0%" in line.replace("   ", "  ") for line in lines)


def test_waiting_threads_are_left_out() -> None:
    assert list(flame_graph.busy(SAMPLES)) == ["Main;run (a/b.py:1);work (a/b.py:2)"]


@given(
    st.dictionaries(st.text(max_size=50).filter(lambda text: text.isprintable()), st.integers(1, 10**6), max_size=30)
)
def test_any_samples_make_a_document(samples: dict[str, int]) -> None:
    root = ET.fromstring(flame_graph.svg(samples, "<title> & co"))
    assert root.tag.endswith("svg")
    assert len(flame_graph.text(samples)) >= 2


def test_frames_are_bounded() -> None:
    many = {f"T;a{number}": 1 for number in range(20_000)}
    assert flame_graph.svg(many, "x").count("<rect") < flame_graph.MOST_FRAMES + 10
