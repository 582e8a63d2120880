"""/metrics/resource: one value for each series."""

from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from actors.stats.pages import resource
from actors.stats.reading import PodReading
from tests.stats.sample import READING, container, figures

FULL, HOST = READING.pods
WEB, _ = FULL.containers
YOUNG = replace(
    FULL, uid="uid-young", started=FULL.started + 30, figures=figures(20), containers=[container("full", "web", 7)]
)


def samples(*pods: PodReading) -> list[Sample]:
    page = resource.text(replace(READING, pods=list(pods))).decode()
    return [one for family in text_string_to_metric_families(page) for one in family.samples]


def cpu_seconds(found: list[Sample], scope: str) -> list[tuple[str, float]]:
    return [(one.labels["pod"], one.value) for one in found if one.name == f"{scope}_cpu_usage_seconds_total"]


@pytest.mark.parametrize("pods", [(FULL, YOUNG, HOST), (YOUNG, FULL, HOST)], ids=["old-first", "young-first"])
def test_of_pods_with_one_name_the_youngest_is_shown(pods: tuple[PodReading, ...]) -> None:
    """A pod was deleted by force and created again, and its containers have not ended yet."""
    found = samples(*pods)
    counts = Counter((one.name, *sorted(one.labels.items())) for one in found)
    assert [series for series, count in counts.items() if count > 1] == []
    assert sorted(cpu_seconds(found, "pod")) == [("full", 20), ("host", 9)]
    assert sorted(cpu_seconds(found, "container")) == [("full", 7), ("host", 4)]


def test_young_pod_without_a_container_does_not_hide_the_old_one() -> None:
    found = samples(FULL, replace(YOUNG, containers=[]))
    assert cpu_seconds(found, "pod") == [("full", 9)]
    assert cpu_seconds(found, "container") == [("full", 3), ("full", 2)]


def test_pods_of_one_name_in_two_namespaces_are_both_shown() -> None:
    found = samples(FULL, replace(YOUNG, namespace="other"))
    assert cpu_seconds(found, "pod") == [("full", 9), ("full", 20)]


@pytest.mark.parametrize(("created", "shown"), [(-62_135_596_800.0, []), (0.0, []), (0.9, []), (1.0, [1.0])])
def test_container_without_a_start_time_has_no_such_series(created: float, shown: list[float]) -> None:
    """Go's zero time is in the year 1."""
    web = replace(WEB, identity=replace(WEB.identity, created=created))
    found = samples(replace(FULL, containers=[web]))
    assert [one.value for one in found if one.name == "container_start_time_seconds"] == shown
    assert cpu_seconds(found, "container") == [("full", 3)]
