"""The history of benchmarks: what is kept, what a run is compared with, and the picture."""

from xml.etree import ElementTree

from tests.bench.measurements import scale
from tests.bench.measurements.bus import Figures
from tests.bench.reporting import history
from tests.bench.reporting.figures import of_bus, of_scale


def test_kept_runs_come_back_in_order(tmp_path):
    path = tmp_path / "bench/history.jsonl"
    first = history.entry("aaa", "2026-01-01", {"one": [3.0, 1.0, 2.0]})
    second = history.entry("bbb", "2026-01-02", {"one": [4.0]})
    history.append(path, first)
    history.append(path, second)
    assert history.load(path) == [first, second]
    assert first.medians == {"one": 2.0}


def test_no_history_compares_with_nothing(tmp_path):
    assert history.load(tmp_path / "none") == []
    assert list(history.compared({"one": [1.0]}, None)) == [("one", 1.0, 1.0, None, "")]


def test_change_is_relative_to_the_last_median():
    last = history.Entry("aaa", "2026-01-01", {"one": 2.0, "zero": 0.0})
    rows = list(history.compared({"one": [3.0, 2.0, 4.0], "zero": [1.0], "new": [5.0]}, last))
    assert rows == [("one", 3.0, 4.0, 2.0, "+50 %"), ("zero", 1.0, 1.0, 0.0, ""), ("new", 5.0, 5.0, None, "")]


def test_picture_has_a_point_for_each_kept_value():
    entries = [history.Entry("a", "d", {"up & down": 1.0}), history.Entry("b", "d", {"up & down": 2.0, "idle": 0.0})]
    root = ElementTree.fromstring(history.picture(entries))
    assert len(root.findall(".//{*}circle")) == 3
    assert [text.text for text in root.findall(".//{*}text")] == ["up & down: 2", "idle: 0"]


def test_members_of_a_figure_share_its_chart():
    names = ["restart, ms", "restart, ms: probe", "restart, ms: pleg", "idle"]
    assert history.families([*names, "idle"]) == {"restart, ms": names[:3], "idle": ["idle"]}
    first = history.Entry("a", "d", {"restart, ms": 3.0, "restart, ms: probe": 2.0, "restart, ms: pleg": 4.0})
    second = history.Entry("b", "d", {"restart, ms": 3.0, "restart, ms: probe": 1.5, "restart, ms: pleg": 4.5})
    root = ElementTree.fromstring(history.picture([first, second]))
    assert [text.text for text in root.findall(".//{*}text")] == ["restart, ms: 3 (1.5 to 4.5)"]
    assert len(root.findall(".//{*}polyline")) == 3
    assert len(root.findall(".//{*}circle")) == 2


def test_what_did_not_come_in_time_is_not_drawn():
    entries = [history.Entry("a", "d", {"exit": 1.0}), history.Entry("b", "d", {"exit": float("inf")})]
    root = ElementTree.fromstring(history.picture(entries))
    assert len(root.findall(".//{*}circle")) == 1


def test_bus_figures_are_ratios_of_the_same_round():
    rounds = {"bare": [Figures(100.0, 200.0, 1000.0)], "actors": [Figures(150.0, 300.0, 500.0)]}
    assert list(of_bus(rounds).values()) == [[1.5], [0.5]]


def test_growth_is_relative_to_fifty_pods():
    costs = [scale.Cost(10, 1, 1, 20.0, 100.0), scale.Cost(50, 1, 1, 10.0, 110.0), scale.Cost(150, 1, 1, 12.0, 130.0)]
    assert scale.growth(costs) == (1.2, 0.2)
    assert of_scale([costs])["CPU for a pod of 150, by that of 50"] == [1.2]
