"""The text of a scrape is what `prometheus_client` would write of the same samples."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from prefixwatch.catalog import METRICS, Kind
from prefixwatch.collector import StatusCollector
from prefixwatch.config import Config
from prefixwatch.families import Labels, MetricFamilies, TextFamilies
from prefixwatch.figures.figure import Absent
from replayed import status_of, watched

ENCODERS = {False: generate_latest, True: generate_openmetrics}
TRACES = ("thrash_low_usage", "two_engines", "caching_disabled")


class Collected:
    """A registry of these families; of those, only samples called as `names` say."""

    def __init__(self, families: Iterator[Metric], names: Sequence[str] | None = None) -> None:
        self._families = list(families)
        self._names = names

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            found = family if self._names is None else family._restricted_metric(set(self._names))
            if found is not None:
                yield found


@pytest.mark.parametrize("is_openmetrics", [False, True], ids=["classic", "OpenMetrics"])
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(None, id="all"),
        pytest.param(["prefixwatch_up", "prefixwatch_hit_tokens_total"], id="some"),
        pytest.param(["prefixwatch_queried_tokens_created"], id="when a counter began, without it"),
        pytest.param(["prefixwatch_queried_tokens", "nothing"], id="none that is a sample's"),
    ],
)
def test_real_targets(names: list[str] | None, *, is_openmetrics: bool) -> None:
    statuses = [status_of(watched(trace, name=f"{trace}:8000")) for trace in TRACES]
    collector = StatusCollector(lambda: statuses, windows=Config().windows)
    expected = ENCODERS[is_openmetrics](Collected(collector.collect(), names))
    assert collector.text(is_openmetrics=is_openmetrics, names=names) == expected


def test_a_family_of_the_library_holds_numbers_too() -> None:
    collector = StatusCollector(lambda: [status_of(watched("healthy"))], windows=Config().windows)
    values = {type(sample.value) for family in collector.collect() for sample in family.samples}
    assert values == {float}, "True would be written as that word"


@given(
    samples=st.lists(
        st.tuples(
            st.sampled_from(METRICS), st.lists(st.text(max_size=5), min_size=12, max_size=12),
            st.one_of(st.floats(), st.floats(0, 1e8), st.integers(0, 2**60), st.booleans()), st.none() | st.floats(0, 2e9),
        ),
        max_size=20,
    )
)  # fmt: skip
@pytest.mark.parametrize("is_openmetrics", [False, True], ids=["classic", "OpenMetrics"])
def test_any_sample(samples, *, is_openmetrics: bool) -> None:
    text, families = TextFamilies(is_openmetrics=is_openmetrics), MetricFamilies()
    for metric, values, value, created in samples:
        labels = Labels()
        for name, text_value in zip(metric.labels, values, strict=False):
            labels = labels.plus(name, text_value)
        for one in (text, families):
            one.add(metric.name, labels, value, created=created if metric.kind is Kind.COUNTER else None)
    assert b"".join(text.pieces()) == ENCODERS[is_openmetrics](Collected(families.filled()))


def test_what_is_absent_or_not_in_the_catalogue() -> None:
    families = TextFamilies(is_openmetrics=False)
    families.add("up", Labels({"target": "a"}), None)
    families.add("up", Labels({"target": "a"}), Absent("not polled yet"))
    assert families.pieces() == []
    with pytest.raises(KeyError):
        families.add("invented", Labels(), 1.0)


def test_the_same_label_again_is_the_same_object() -> None:
    labels = Labels({"target": "a"})
    assert labels.plus("window", "1m") is labels.plus("window", "1m")
    assert labels.plus("window", "1m").plus("bound", "lower").text == '{bound="lower",target="a",window="1m"}'
