"""The truth lies within the bounds: of any requests, any pooling, any bucket edges."""

from __future__ import annotations

import bisect
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixwatch.figures.ceiling import cacheable_tokens
from prefixwatch.figures.joint.bounds import FIGURES, SIDES, Cells, Cuts
from prefixwatch.figures.pooled import Pool
from prefixwatch.figures.requests import Increment, RequestEstimator
from prefixwatch.figures.requestsums import Method

Request = tuple[int, int]  # prompt tokens, cached tokens
Edges = tuple[float, ...]

DECADES: Edges = tuple(float(f * 10**k) for k in range(5) for f in (1, 2, 5))[:14]
TOLERANCE = 1e-6


def pool_of(requests: list[Request], prompt_edges: Edges, computed_edges: Edges, *, counts: bool = True) -> Pool:
    def buckets(values: list[int], edges: Edges) -> tuple[int, ...]:
        found = [0] * (len(edges) + 1)
        for value in values:
            found[bisect.bisect_left(edges, value)] += 1
        return tuple(found)

    prompts = [prompt for prompt, _ in requests]
    computed = [prompt - cached for prompt, cached in requests]
    return Pool(
        requests=len(requests),
        prompt_tokens=float(sum(prompts)),
        computed_tokens=float(sum(computed)),
        prompt_counts=buckets(prompts, prompt_edges) if counts else None,
        computed_counts=buckets(computed, computed_edges) if counts else None,
        prompt_edges=prompt_edges if counts else (),
        computed_edges=computed_edges if counts else (),
    )


def truth(requests: list[Request], block: int) -> np.ndarray:
    rows = [(c / p, 2 * c >= p, c > 0 and p - c <= block, c == 0) for p, c in requests]
    return np.array(rows, dtype=float).reshape(-1, FIGURES).sum(axis=0)


def assert_within(found: np.ndarray, estimate: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
    assert (lower <= found + TOLERANCE).all(), (lower, found)
    assert (found <= upper + TOLERANCE).all(), (found, upper)
    assert (lower <= estimate + TOLERANCE).all()
    assert (estimate <= upper + TOLERANCE).all()


def assert_coherent(estimate: np.ndarray, requests: float) -> None:
    ratio, mostly, fully, cold = estimate
    assert cold + max(mostly, fully) <= requests + TOLERANCE
    assert mostly / 2 - TOLERANCE <= ratio <= (requests - cold + mostly) / 2 + TOLERANCE


def bounds_of(increment: Increment) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    figures = (increment.hit_ratio, increment.mostly_cached, increment.fully_cached, increment.cold)
    rows = [dataclasses.astuple(figure) for figure in figures if figure is not None]
    estimate, lower, upper = np.array(rows).T
    return estimate, lower, upper


@st.composite
def edges(draw: st.DrawFn) -> Edges:
    if draw(st.booleans()):
        return DECADES
    whole = st.integers(1, 3000).map(float)
    return tuple(sorted(draw(st.sets(st.one_of(whole, st.floats(0.5, 3000, allow_nan=False)), max_size=8))))


@st.composite
def request(draw: st.DrawFn) -> Request:
    prompt = draw(st.one_of(st.integers(1, 60), st.integers(1, 4000), st.sampled_from((16, 17, 32, 33, 500, 501))))
    cached = draw(st.one_of(st.just(0), st.integers(0, prompt), st.just(prompt - 1), st.just(prompt // 16 * 16)))
    return prompt, cached


traffic = st.lists(st.lists(request(), min_size=1, max_size=9), min_size=1, max_size=8)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pools=traffic, prompt_edges=edges(), computed_edges=edges(), block=st.sampled_from((1, 16, 32, 500)))
def test_truth_lies_within_the_bounds(
    pools: list[list[Request]], prompt_edges: Edges, computed_edges: Edges, block: int
) -> None:
    estimator = RequestEstimator(block_tokens=block, ring=4)
    for requests in pools:
        increment = estimator.observe(pool_of(requests, prompt_edges, computed_edges))
        assert increment.fault is None
        assert_within(truth(requests, block), *bounds_of(increment))
        assert_coherent(bounds_of(increment)[0], len(requests))
    everything = list(itertools.chain.from_iterable(pools))
    for _ in range(2):
        figures = estimator.figures()
        found = [figures.hit_ratio, figures.mostly_cached, figures.fully_cached, figures.cold]
        rows = np.array([(f.estimate, f.lower, f.upper) for f in found if f is not None]).T
        assert_within(truth(everything, block) / len(everything), *rows)
        assert_coherent(rows[0], 1)
        estimator.settle(searches=SIDES)
    expected = Method.EXACT if all(len(pool) == 1 for pool in pools) else figures.hit_ratio.method
    assert figures.hit_ratio.method is expected


@settings(max_examples=40, deadline=None)
@given(pools=traffic, counts=st.booleans(), block=st.sampled_from((None, 16)))
def test_bounds_hold_without_histograms_and_without_a_block(
    pools: list[list[Request]], counts: bool, block: int | None
) -> None:
    estimator = RequestEstimator(block_tokens=block)
    for requests in pools:
        increment = estimator.observe(pool_of(requests, DECADES, DECADES, counts=counts))
        found = truth(requests, block or 1)
        assert_within(found if block else found[[0, 1, 3]], *bounds_of(increment))
        assert (increment.fully_cached is None) == (block is None)
    if not counts and any(len(pool) > 1 and sum(c for _, c in pool) for pool in pools):
        assert estimator.figures().hit_ratio.method is Method.BOUNDS_ONLY


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(st.lists(request(), min_size=1, max_size=4), min_size=1, max_size=6),
    polls=st.integers(1, 4),
    data=st.data(),
)
def test_bounds_hold_for_requests_of_several_samples(
    requests: list[list[Request]], polls: int, data: st.DataObject
) -> None:
    """Samples end in any interval, and the last one tells how many there were; any of them may stand for all."""
    observed: list[list[Request]] = [[] for _ in range(polls)]
    surplus = [0] * polls
    for samples in requests:
        ends = [data.draw(st.integers(0, polls - 1)) for _ in samples]
        for sample, end in zip(samples, ends, strict=True):
            observed[end].append(sample)
        surplus[max(ends)] += len(samples) - 1
    estimator = RequestEstimator(block_tokens=16)
    for members, more in zip(observed, surplus, strict=True):
        if members:
            estimator.observe(dataclasses.replace(pool_of(members, DECADES, DECADES), surplus=more))
    figures = estimator.figures()
    assert figures.requests == len(requests)
    found = [figures.hit_ratio, figures.mostly_cached, figures.fully_cached, figures.cold]
    rows = np.array([(f.estimate, f.lower, f.upper) for f in found if f is not None]).T
    standing = [data.draw(st.sampled_from(samples)) for samples in requests]
    assert_within(truth(standing, 16) / len(requests), *rows)
    assert_coherent(rows[0], 1)


@settings(max_examples=40, deadline=None)
@given(
    first=st.lists(request(), min_size=1, max_size=6),
    other=st.lists(request(), min_size=1, max_size=6),
    lost=st.sampled_from(("counts", "sums", "computed")),
)
def test_torn_pools_never_raise_and_say_nothing(first: list[Request], other: list[Request], lost: str) -> None:
    one, two = pool_of(first, DECADES, DECADES), pool_of(other, DECADES, DECADES)
    torn = {
        "counts": dataclasses.replace(one, computed_counts=two.computed_counts),
        "sums": dataclasses.replace(one, prompt_tokens=two.prompt_tokens),
        "computed": dataclasses.replace(one, computed_tokens=two.computed_tokens),
    }[lost]
    estimator = RequestEstimator(block_tokens=16)
    estimator.observe(torn)
    increment = estimator.observe(dataclasses.replace(torn, torn=True))
    assert increment.fault is not None
    assert (increment.cold.lower, increment.cold.upper) == (0.0, len(first))
    estimator.settle()
    assert estimator.figures().requests == 2 * len(first)


@settings(max_examples=40, deadline=None)
@given(requests=st.lists(request(), min_size=2, max_size=8), grain=st.sampled_from((1, 16)), data=st.data())
def test_a_cut_found_for_one_pool_holds_for_another(requests: list[Request], grain: int, data: st.DataObject) -> None:
    cells = Cells(DECADES, DECADES, limit=2.0**16, block=16, grain=grain)
    cuts = Cuts(cells, capacity=3)
    cuts.learn(pool_of(requests, DECADES, DECADES).vector(), data.draw(st.integers(0, SIDES - 1)))
    other = [(p, c // grain * grain) for p, c in data.draw(st.lists(request(), min_size=1, max_size=8))]
    vector = pool_of(other, DECADES, DECADES).vector()
    found = cuts.bounds(vector[None])[0]
    assert cuts.bounds_of(vector, float(len(other))) == pytest.approx(found.tolist(), abs=1e-9), "of one pool or many"
    assert (found[:FIGURES] <= truth(other, 16) + TOLERANCE).all()
    assert (truth(other, 16) <= found[FIGURES:] + TOLERANCE).all()


@settings(max_examples=80, deadline=None)
@given(requests=st.lists(request(), min_size=1, max_size=9), prompt_edges=edges(), block=st.sampled_from((1, 16, 500)))
def test_cacheable_tokens_lie_within_their_bounds(requests: list[Request], prompt_edges: Edges, block: int) -> None:
    pool = pool_of(requests, prompt_edges, DECADES)
    found = cacheable_tokens(pool.prompt_counts, prompt_edges, pool.prompt_tokens, block_tokens=block)
    expected = sum((prompt - 1) // block * block for prompt, _ in requests)
    assert found.lower - TOLERANCE <= expected <= found.upper + TOLERANCE
    assert found.lower <= found.estimate <= found.upper


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        pytest.param({"computed_tokens": 200.0}, "more computed", id="computed above prompt"),
        pytest.param({"prompt_tokens": float("nan")}, "not numbers", id="not a number"),
        pytest.param({"requests": 3}, "do not add up", id="counts and requests differ"),
        pytest.param({"prompt_counts": (1, 1)}, "do not match", id="too few buckets"),
        pytest.param({"prompt_counts": (0, 0, 2)}, "does not fit", id="sum below its buckets"),
        pytest.param({"torn": True}, "torn page", id="torn page"),
    ],
)
def test_a_pool_that_contradicts_itself_names_its_fault(pool: dict[str, object], reason: str) -> None:
    sound = Pool(
        requests=2,
        prompt_tokens=100.0,
        computed_tokens=60.0,
        prompt_counts=(0, 2, 0),
        computed_counts=(1, 1, 0),
        prompt_edges=(30.0, 80.0),
        computed_edges=(30.0, 80.0),
    )
    assert sound.fault is None
    assert reason in (dataclasses.replace(sound, **pool).fault or "")
