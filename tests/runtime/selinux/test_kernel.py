"""Labels where SELinux is off or its policy knows none, on files that stand for the kernel's."""

import threading
from pathlib import Path

import pytest

from actors._host.selinux import SELinux
from actors.runtime.selinux.kernel import Labelling, find_defaults, require_known
from actors.runtime.selinux.labels import NONE, BadLabel, Context, Defaults, Options

POLICY = Defaults(Context("u", "r", "p", "s0"), Context("u", "o", "f", "s0"))


def test_policy_without_both_labels_has_no_defaults() -> None:
    for process, file in (("", ""), ("u:r:p:s0", ""), ("", "u:o:f:s0")):
        with pytest.raises(BadLabel, match="no labels for containers"):
            find_defaults(SELinux(enabled=True, process=process, file=file))


def test_label_that_the_kernel_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    with pytest.raises(BadLabel, match="the kernel refuses the SELinux label u:r:t:s0"):
        require_known("u:r:t:s0", str(tmp_path))


def test_options_mean_nothing_where_selinux_is_off() -> None:
    off = Labelling(None, "", set)
    assert off.labels(Options(type="x"), "") == NONE
    assert not off.works


def test_options_are_refused_where_labels_would_be_missing() -> None:
    lacking = Labelling(None, "isolation level 2 labels nothing", set)
    assert lacking.labels(Options(), "") == NONE
    with pytest.raises(BadLabel, match="no container can have a SELinux label here: isolation level 2"):
        lacking.labels(Options(level="s0"), "")


def test_pods_that_are_made_at_once_have_levels_of_their_own() -> None:
    labelling = Labelling(POLICY, "", set)
    found: list[str] = []
    taken, go = threading.Barrier(20), threading.Event()

    def make() -> None:
        with labelling.new_level() as level:
            found.append(level)
            taken.wait(20)
            go.wait(20)

    threads = [threading.Thread(target=make) for _ in range(19)]
    for thread in threads:
        thread.start()
    taken.wait(20)
    go.set()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 19


def test_level_of_a_record_is_given_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda _: 0)
    with Labelling(POLICY, "", lambda: {"s0:c0,c1"}).new_level() as level:
        assert level == "s0:c0,c2"
