"""Bounds and estimates of one set of requests do not contradict each other, and the truth obeys the same rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recorded
from coherence import contradictions
from prefixwatch.figures.joint.coherence import coherent, tightened

BLOCK = 16
ROUNDING = 1e-9


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Draw (prompt, cached) tokens of a pool; whole blocks are cached."""
    prompts = draw(st.lists(st.integers(1, 200), min_size=1, max_size=8))
    return [(prompt, draw(st.integers(0, prompt // BLOCK)) * BLOCK) for prompt in prompts]


def truth(pool: list[tuple[int, int]]) -> list[float]:
    rows = [(c / p, 2 * c >= p, c > 0 and p - c <= BLOCK, c == 0) for p, c in pool]
    return [float(sum(column)) for column in zip(*rows, strict=True)]


def assert_coherent(found: list[float], count: int) -> None:
    ratio, mostly, full, cold = found
    assert full <= mostly + ROUNDING
    assert cold + mostly <= count + ROUNDING
    assert mostly / 2 <= ratio + ROUNDING
    assert ratio <= (count - cold + mostly) / 2 + ROUNDING


slack = st.tuples(*[st.floats(0, 9)] * 4)


@given(pool=requests(), below=slack, above=slack, guess=st.tuples(*[st.floats(-1, 10)] * 4))
def test_any_estimate_becomes_coherent_within_bounds_that_hold(
    pool: list[tuple[int, int]], below: tuple[float, ...], above: tuple[float, ...], guess: tuple[float, ...]
) -> None:
    true, count = truth(pool), len(pool)
    given_lower = [value - less for value, less in zip(true, below, strict=True)]
    given_upper = [value + more for value, more in zip(true, above, strict=True)]
    lower, upper = tightened(given_lower, given_upper, count, is_full_mostly=True)
    estimates = coherent(guess, lower, upper, count, is_full_mostly=True)
    for low, estimate, value, high in zip(lower, estimates, true, upper, strict=True):
        assert low - ROUNDING <= value <= high + ROUNDING
        assert low - ROUNDING <= estimate <= high + ROUNDING
    assert_coherent(estimates, count)


@given(pool=requests())
def test_a_coherent_estimate_stays(pool: list[tuple[int, int]]) -> None:
    true, count = truth(pool), len(pool)
    lower, upper = tightened([0.0] * 4, [float(count)] * 4, count, is_full_mostly=True)
    assert coherent(true, lower, upper, count, is_full_mostly=True) == pytest.approx(true)


@pytest.mark.parametrize(
    ("lower", "upper", "expected_lower", "expected_upper"),
    [
        pytest.param([0, 0, 0, 7], [10] * 4, [0, 0, 0, 7], [3, 3, 3, 10], id="seven cold of ten"),
        pytest.param([0, 6, 0, 0], [10] * 4, [3, 6, 0, 0], [10, 10, 10, 4], id="six mostly cached of ten"),
        pytest.param([0, 0, 2, 0], [10] * 4, [1, 2, 2, 0], [10, 10, 10, 8], id="a fully cached one is mostly cached"),
        pytest.param([0] * 4, [2, 10, 10, 10], [0] * 4, [2, 4, 4, 10], id="a low sum of hit ratios"),
        pytest.param([8, 0, 0, 0], [10] * 4, [8, 6, 0, 0], [10, 10, 10, 2], id="a high sum of hit ratios"),
        pytest.param([0, 0.2, 0, 0], [10, 7.9, 10, 10], [0.5, 1, 0, 0], [8.5, 7, 7, 9], id="counts are whole"),
    ],
)
def test_bounds_tighten_each_other(
    lower: list[float], upper: list[float], expected_lower: list[float], expected_upper: list[float]
) -> None:
    assert tightened(lower, upper, 10, is_full_mostly=True) == (expected_lower, expected_upper)


def test_without_a_known_grain_a_fully_cached_request_may_be_mostly_computed() -> None:
    """Of 10 prompt tokens 1 was cached: all 9 computed ones are within a block of 16."""
    lower, upper = tightened([0.1, 0, 1, 0], [0.1, 0, 1, 0], 1, is_full_mostly=False)
    assert coherent([0.1, 0, 1, 0], lower, upper, 1, is_full_mostly=False) == [0.1, 0, 1, 0]


@pytest.mark.parametrize("spans", [(), (20.0, 60.0, 300.0)])
@pytest.mark.parametrize("name", recorded.NAMES)
def test_figures_of_a_trace_are_coherent(name: str, spans: tuple[float, ...]) -> None:
    state = recorded.watched(recorded.pages(name), spans=spans).state((None, 20.0))
    for seconds in (None, 20.0):
        for engine in state.snapshot(seconds).engines:
            assert contradictions(engine) == []
