"""How long blocks stay: quantiles, and whether what is evicted was in use."""

import bisect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.figures.figure import Absent
from prefixwatch.figures.residency import QUANTILES, Residency, quantiles, residency, share_below
from prefixwatch.page.reading import Histogram, histogram_of
from readings import histogram

EDGES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def of(values: list[float], edges: tuple[float, ...] = EDGES) -> Histogram:
    found = histogram_of(histogram("x", values, edges), "x")
    assert found is not None
    return found


def increases(
    lifetime: list[float], idle: list[float], gaps: list[float], *, hit: float = 300.0, computed: float = 90.0
) -> dict[str, float]:
    return {
        **histogram("block_lifetime_seconds", lifetime, EDGES),
        **histogram("block_idle_seconds", idle, EDGES),
        **histogram("block_reuse_gap_seconds", gaps, EDGES),
        "hit_tokens": hit, "prompt_tokens": hit + computed, "cached_prompt_tokens": hit, "generation_tokens": 10.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        pytest.param([0.3] * 4, 0.5, 0.35, id="linear within the bucket"),
        pytest.param([0.05] * 4, 0.5, 0.05, id="the first bucket begins at 0"),
        pytest.param([0.3, 0.3, 3.0, 3.0], 0.5, 0.5, id="at the end of a bucket"),
        pytest.param([0.3, 0.3, 3.0, 3.0], 0.75, 3.5, id="over a bucket without any"),
        pytest.param([99.0] * 3, 0.5, 10.0, id="beyond the last edge: the last edge"),
    ],
)
def test_quantile(values: list[float], share: float, expected: float) -> None:
    assert quantiles(of(values), (share,))[share] == pytest.approx(expected)


@given(st.lists(st.floats(0.001, 20), min_size=1, max_size=60), st.sampled_from(QUANTILES))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    found = quantiles(of(values), (share,))[share]
    true = float(np.quantile(values, share, method="inverted_cdf"))
    bucket = bisect.bisect_left(EDGES, true)
    assert (0.0, *EDGES)[bucket] - 1e-9 <= found <= (*EDGES, EDGES[-1])[bucket] + 1e-9


@given(st.lists(st.floats(0.001, 9.9), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_the_share_below_a_quantile_is_that_share(values: list[float], share: float) -> None:
    histogram_ = of(values)
    assert share_below(histogram_, quantiles(histogram_, (share,))[share]) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "expected"), [(0.05, 0.0), (0.2, 0.0), (0.35, 0.25), (0.5, 0.5), (7.0, 0.5), (10.0, 0.5), (99.0, 0.5)]
)
def test_share_below(value: float, expected: float) -> None:
    """What lies beyond the last edge is below nothing that is known."""
    assert share_below(of([0.3, 0.3, 99.0, 99.0]), value) == pytest.approx(expected)


def test_what_evicted_blocks_went_through() -> None:
    found = residency(increases([4.0] * 10, [1.5] * 10, [0.3] * 15 + [1.5] * 5))
    assert isinstance(found, Residency)
    assert found.evictions == 10
    assert (found.mean_lifetime_seconds, found.mean_idle_seconds) == pytest.approx((4.0, 1.5))
    assert found.idle_seconds == pytest.approx({0.5: 1.5, 0.9: 1.9, 0.99: 1.99})
    assert found.gaps_per_eviction == 2.0
    assert found.late_reuse_share == pytest.approx(5 / 20 + 15 / 20 * 0), "half of 1.5 s: 5 of 20 are above it"
    assert found.evicted_reuse_share == pytest.approx(2.0 / (300 / 100)), "against 3 hit tokens per written one"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({}, None, id="known"),
        pytest.param({"hit_tokens": 0.0}, "nothing was found in the cache", id="no hits"),
        pytest.param({"hit_tokens": None}, "no hits in tokens on this page", id="hits in blocks"),
        pytest.param({"generation_tokens": None}, "no generation tokens counter on this page", id="nothing on output"),
    ],
)
def test_how_much_evicted_blocks_were_in_use(changes: dict[str, float | None], reason: str | None) -> None:
    both = {**increases([4.0], [1.5], [0.3]), **changes}
    found = residency({key: value for key, value in both.items() if value is not None})
    assert isinstance(found, Residency)
    share = found.evicted_reuse_share
    assert (share.reason if isinstance(share, Absent) else None) == reason


def test_without_any_reuse_none_is_late() -> None:
    found = residency(increases([0.3] * 5, [0.3] * 5, []))
    assert isinstance(found, Residency)
    assert found.late_reuse_share == Absent("no evicted block had been used again more than once")
    assert (found.reuse_gap_seconds, found.gaps_per_eviction) == ({}, 0.0)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param({}, "no residency histograms on this page", id="flag off"),
        pytest.param(histogram("block_lifetime_seconds", [1.0], EDGES), "no residency histograms", id="one of three"),
        pytest.param(increases([], [], []), "no sampled block was evicted", id="no eviction"),
        pytest.param(
            {key: value for key, value in increases([1.0], [1.0], [1.0]).items() if "/le/" not in key},
            "the residency histograms have no buckets",
            id="a page without buckets has no quantile: not 0 s",
        ),
    ],
)  # fmt: skip
def test_absent(found: dict[str, float], reason: str) -> None:
    value = residency(found)
    assert isinstance(value, Absent)
    assert value.reason.startswith(reason)
