"""Request-level figures: what is exact, what is estimated, what is absent, and how near the estimate comes."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from prefixwatch.figures.ceiling import cacheable_tokens
from prefixwatch.figures.pooled import Pool
from prefixwatch.figures.requests import RequestEstimator
from prefixwatch.figures.requestsums import Method, RequestFigures

EDGES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
TRACES = pathlib.Path(__file__).parents[1] / "data" / "traces"
NAMES = ("hit_ratio", "mostly_cached", "fully_cached", "cold")
TRUTH = ("request_hit_ratio_mean", "mostly_cached_request_ratio", "full_request_ratio", "cold_request_ratio")


def pool_of(*requests: tuple[int, int], counts: bool = True, **more: object) -> Pool:
    """Pool requests of (prompt, cached) tokens."""
    prompt = np.array([p for p, _ in requests])
    computed = np.array([p - c for p, c in requests])
    bins = np.array((-np.inf, *EDGES, np.inf))
    histogram = [np.histogram(-values, -bins[::-1])[0][::-1] for values in (prompt, computed)]
    pool = Pool(
        requests=len(requests),
        prompt_tokens=float(prompt.sum()),
        computed_tokens=float(computed.sum()),
        prompt_counts=tuple(histogram[0].tolist()) if counts else None,
        computed_counts=tuple(histogram[1].tolist()) if counts else None,
        prompt_edges=EDGES if counts else (),
        computed_edges=EDGES if counts else (),
    )
    return dataclasses.replace(pool, **more)


def values(figures: RequestFigures) -> np.ndarray:
    """Return estimate, lower and upper of the four figures: (4, 3)."""
    found = [getattr(figures, name) for name in NAMES]
    return np.array([(f.estimate, f.lower, f.upper) for f in found])


def test_pools_of_one_request_are_exact() -> None:
    estimator = RequestEstimator(block_tokens=32)
    for request in ((190, 160), (190, 0), (934, 256)):
        estimator.observe(pool_of(request))
    figures = estimator.figures()
    assert figures.requests == 3
    assert figures.hit_ratio.method is Method.EXACT
    expected = [(160 / 190 + 256 / 934) / 3, 1 / 3, 1 / 3, 1 / 3]
    np.testing.assert_allclose(values(figures), np.array([expected] * 3).T)
    np.testing.assert_allclose(figures.gap.estimate, 416 / 1314 - expected[0])


def test_nothing_cached_at_all_is_exact() -> None:
    estimator = RequestEstimator(block_tokens=32)
    increment = estimator.observe(pool_of((40, 0), (900, 0), (910, 0)))
    assert (increment.cold.lower, increment.cold.estimate, increment.cold.upper) == (3.0, 3.0, 3.0)
    assert estimator.figures().cold.method is Method.EXACT


def test_same_bucket_does_not_mean_cold() -> None:
    """Prompts of 934 and computed tokens of 678 lie in one bucket; the sums tell that 256 each were cached."""
    estimator = RequestEstimator(block_tokens=32)
    for size in (7, 9, 4, 8, 6, 10, 5, 8):
        estimator.observe(pool_of(*[(934, 256)] * size))
    estimator.observe(pool_of(*[(934, 256)] * 3, *[(934, 0)] * 3))
    estimator.settle()
    figures = estimator.figures()
    assert figures.cold.method is Method.POOLED
    assert figures.cold.estimate == pytest.approx(3 / 63, abs=0.005)
    assert figures.hit_ratio.estimate == pytest.approx(60 / 63 * 256 / 934, abs=0.002)


def test_the_gap_is_over_the_same_requests() -> None:
    """Long prompts warm, short prompts cold: the token ratio flatters."""
    estimator = RequestEstimator(block_tokens=32)
    for k in range(12):
        estimator.observe(pool_of(*[(928, 800)] * (3 + k % 4), *[(40, 0)] * (2 + k % 3)))
    estimator.settle()
    figures = estimator.figures()
    warm, cold = 12 * 4.5, 12 * 3
    token = 800 * warm / (928 * warm + 40 * cold)
    assert figures.token_ratio == pytest.approx(token)
    assert figures.gap.estimate == pytest.approx(token - 800 / 928 * warm / (warm + cold), abs=0.01)
    assert figures.gap.lower <= figures.gap.estimate <= figures.gap.upper


def test_a_window_is_the_difference_of_two_running_sums() -> None:
    estimator = RequestEstimator(block_tokens=32)
    before = [estimator.observe(pool_of((928, 0))) for _ in range(5)]
    middle = estimator.totals
    estimator.observe(pool_of((928, 800)))
    late = estimator.totals
    estimator.observe(pool_of((928, 0)))
    assert len(before) == 5
    assert estimator.figures(middle).requests == 2
    assert estimator.figures(middle).cold.estimate == 0.5
    assert estimator.figures(middle, late).cold.estimate == 0.0
    assert estimator.figures(late, late).hit_ratio is None
    assert estimator.figures(late, late).reasons["hit_ratio"] == "no request finished"


def test_counters_are_never_revised_and_windows_are() -> None:
    estimator = RequestEstimator(block_tokens=32)
    added = [
        estimator.observe(pool_of(*[(934, 256)] * (4 + k % 3), *[(934, 0)] * (k % 2))).cold.estimate for k in range(20)
    ]
    estimator.settle()
    assert estimator.totals[-12:-8][3] == pytest.approx(sum(added))
    assert estimator.figures().cold.estimate == pytest.approx(10 / 110, abs=0.02)


def test_each_kind_of_traffic_is_fitted_apart() -> None:
    """The buckets stay the same: first nothing is cached, then 256 tokens of every prompt."""
    estimator = RequestEstimator(block_tokens=32)
    for k in range(30):
        estimator.observe(pool_of(*[(934, 0)] * (4 + k % 5)))
    middle = estimator.totals
    for k in range(30):
        estimator.observe(pool_of(*[(934, 256)] * (4 + k % 5)))
    assert estimator.figures(middle).cold.estimate < 0.1
    estimator.settle()
    assert estimator.figures(middle).cold.estimate < 0.01
    assert estimator.figures(None, middle).cold.estimate == 1.0


def test_traffic_of_which_no_pool_is_kept_is_left_as_it_was() -> None:
    estimator = RequestEstimator(block_tokens=32, ring=40)
    for k in range(30):
        estimator.observe(pool_of(*[(934, 0)] * (4 + k % 5)))
    middle = estimator.totals
    for k in range(60):
        estimator.observe(pool_of(*[(934, 256)] * (4 + k % 5)))
    estimator.settle()
    assert estimator.figures(None, middle).cold.estimate == 1.0
    assert estimator.figures(middle).cold.estimate < 0.1


def test_the_first_token_group_gives_bounds_only() -> None:
    estimator = RequestEstimator(block_tokens=None)
    increment = estimator.observe(pool_of((928, 800), (40, 0), counts=False))
    assert increment.fully_cached is None
    assert increment.cacheable_tokens is None
    figures = estimator.figures()
    assert figures.hit_ratio.method is Method.BOUNDS_ONLY
    assert figures.hit_ratio.lower <= 800 / 928 / 2 <= figures.hit_ratio.upper
    assert figures.fully_cached is None
    assert "block size" in figures.reasons["fully_cached"]


def test_releases_without_computed_tokens_are_unavailable() -> None:
    estimator = RequestEstimator(block_tokens=16)
    increment = estimator.observe(pool_of((928, 800), (40, 0), computed_tokens=None, computed_counts=None))
    assert increment.requests == 0
    assert increment.cacheable_tokens is not None
    figures = estimator.figures()
    assert figures.hit_ratio is None
    assert "0.13" in figures.reasons["hit_ratio"]


def test_samples_of_one_request_count_once_however_late_they_are_known() -> None:
    """Three samples end in one interval, a fourth in the next: only then is the request known to be one."""
    estimator = RequestEstimator(block_tokens=32)
    first = estimator.observe(pool_of(*[(928, 800)] * 3))
    second = estimator.observe(pool_of((928, 800), *[(40, 0)] * 3, surplus=3))
    assert (first.requests, second.requests) == (3, 1)
    assert (first.mostly_cached.lower, second.mostly_cached.lower) == (3.0, 0.0)
    figures = estimator.figures()
    assert figures.requests == 4
    assert figures.mostly_cached.lower <= 1 / 4 <= figures.mostly_cached.upper
    assert figures.cold.lower <= 3 / 4 <= figures.cold.upper


def test_other_buckets_after_a_restart_begin_a_new_fit() -> None:
    estimator = RequestEstimator(block_tokens=32)
    estimator.observe(pool_of((928, 800), (928, 0)))
    other = Pool(
        requests=2,
        prompt_tokens=1000.0,
        computed_tokens=1000.0,
        prompt_counts=(0, 2),
        computed_counts=(0, 2),
        prompt_edges=(64.0,),
        computed_edges=(64.0,),
    )
    estimator.observe(other)
    estimator.settle()
    assert estimator.figures().requests == 4


@pytest.mark.parametrize(
    ("prompts", "block", "expected"),
    [
        pytest.param([33], 32, (32, 32, 32), id="one prompt is exact"),
        pytest.param([32], 32, (0, 0, 0), id="one block cannot hit"),
        pytest.param([14, 20, 31], 50, (0, 0, 0), id="all within a block"),
        pytest.param([928, 928], 32, (1856 - 33, 1856 - 64, 1856 - 2), id="above a block each loses 1 to 32"),
    ],
)
def test_cacheable_tokens(prompts: list[int], block: int, expected: tuple[float, float, float]) -> None:
    pool = pool_of(*[(p, 0) for p in prompts])
    found = cacheable_tokens(pool.prompt_counts, EDGES, pool.prompt_tokens, block_tokens=block)
    assert (found.estimate, found.lower, found.upper) == expected


def test_no_request_has_no_ceiling() -> None:
    assert cacheable_tokens((0, 0), (10.0,), 0.0, block_tokens=16) is None


# Recorded traces of a running engine, whose clients know what each response had cached.

Counts = dict[str, dict[float, float]]
SUM = -1.0
GROUPS = ("vllm:request_prompt_tokens", "vllm:request_prefill_kv_computed_tokens")


@functools.cache
def engines_over_time(trace: str) -> list[dict[str, Counts]]:
    return [readings(page) for page in scrapes(trace)]


def scrapes(trace: str) -> Iterator[str]:
    """Yield the pages of a trace that answered."""
    page: list[str] = []
    failed = True
    with gzip.open(TRACES / trace / "scrapes.txt.gz", "rt") as lines:
        for line in lines:
            if line.startswith("# SCRAPE "):
                if page and not failed:
                    yield "".join(page)
                page, failed = [], len(line.split()) > 3
            elif any(group in line for group in GROUPS):
                page.append(line)
    if page and not failed:
        yield "".join(page)


def readings(page: str) -> dict[str, Counts]:
    """Return for each engine and histogram: cumulative counts by edge, and the sum under SUM."""
    engines: dict[str, Counts] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if family.name in GROUPS and not sample.name.endswith(("_count", "_created")):
                histogram = engines.setdefault(sample.labels["engine"], {}).setdefault(family.name, {})
                histogram[float(sample.labels.get("le", SUM))] = sample.value
    return engines


def increase(now: Counts, before: Counts) -> Pool:
    """Return the pool between two readings; a value that fell counts from zero."""
    fell = any(now[group][edge] < before[group][edge] for group in GROUPS for edge in now[group])
    vectors = []
    for group in GROUPS:
        grown = {edge: value - (0 if fell else before[group][edge]) for edge, value in now[group].items()}
        total = grown.pop(SUM)
        edges = sorted(grown)
        counts = np.diff([grown[edge] for edge in edges], prepend=0)
        vectors.append((tuple(edges[:-1]), tuple(int(count) for count in counts), total))
    (prompt_edges, prompt_counts, prompt), (computed_edges, computed_counts, computed) = vectors
    return Pool(
        requests=sum(prompt_counts),
        prompt_tokens=prompt,
        computed_tokens=computed,
        prompt_counts=prompt_counts,
        computed_counts=computed_counts,
        prompt_edges=prompt_edges,
        computed_edges=computed_edges,
    )


def replayed(trace: str, every: int, block: int) -> tuple[np.ndarray, int]:
    """Return the figures of a whole trace, all engines together, (4, 3), and of how many requests they are."""
    pages = engines_over_time(trace)
    kept = [*pages[::every], *([pages[-1]] if (len(pages) - 1) % every else [])]
    estimators: dict[str, RequestEstimator] = {}
    last: dict[str, Counts] = {}
    for page in kept:
        for engine, counts in page.items():
            estimator = estimators.setdefault(engine, RequestEstimator(block_tokens=block))
            if engine in last:
                estimator.observe(increase(counts, last[engine]))
            last[engine] = counts
    weighted, requests = np.zeros((4, 3)), 0
    for estimator in estimators.values():
        estimator.settle()
        figures = estimator.figures()
        weighted += values(figures) * figures.requests
        requests += figures.requests
    return weighted / requests, requests


def trace_names() -> list[str]:
    truths = {path.parent.name: json.loads(path.read_text()) for path in sorted(TRACES.glob("*/truth.json"))}
    return [name for name, truth in truths.items() if truth["requests"]]


@pytest.mark.parametrize("trace", trace_names())
@pytest.mark.parametrize("every", [1, 2, 5, 15])
def test_traces_of_a_running_engine(trace: str, every: int) -> None:
    truth = json.loads((TRACES / trace / "truth.json").read_text())
    expected = np.array([truth[name] for name in TRUTH])
    figures, seen = replayed(trace, every, truth["block_size"])
    estimate, lower, upper = figures.T
    # What finished between the last scrape and the end of a killed engine no counter ever showed.
    unseen = max(truth["requests"] - seen, 0)
    lower, upper = lower * seen / (seen + unseen), (upper * seen + unseen) / (seen + unseen)
    assert (lower <= expected + 1e-9).all(), (lower, expected)
    assert (expected <= upper + 1e-9).all(), (upper, expected)
    if every == 1:
        assert (np.abs(estimate - expected) <= 0.02).all(), (estimate, expected)
