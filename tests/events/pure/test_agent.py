"""The events of a start."""

import pytest

from actors.events import agent


@pytest.mark.parametrize(
    ("release", "known"),
    [("6.4.0", True), ("6.18.44-fc-v669", True), ("7.0", True), ("6.3.9", False), ("5.15.0-91", False), ("x", False)],
)
def test_kernels_whose_tmpfs_can_be_kept_out_of_swap(release: str, known: bool) -> None:
    assert agent.has_noswap(release) is known


@pytest.mark.parametrize(("swap", "release", "said"), [(0, "5.15", 0), (1, "6.4", 0), (1, "5.15", 1)])
def test_secrets_that_may_be_swapped_are_an_event(
    monkeypatch: pytest.MonkeyPatch, swap: int, release: str, said: int
) -> None:
    monkeypatch.setattr(agent, "swap_capacity", lambda: swap)
    monkeypatch.setattr(agent, "has_noswap", lambda _: release.startswith("6"))
    found = [one for one in agent.starting() if one[1] == "PossibleMemoryBackedVolumesOnDisk"]
    assert [kind for kind, _, _ in found] == ["Warning"] * said
