"""Error, coverage and cost of the request-level figures on synthetic traffic.

    python tests/bench/bench_requests.py [--seeds 8] [--minutes 2] [--block 16]

Each line is one kind of population at one rate and polling period, over several seeds: mean and worst error of the four
figures over everything seen, the mean width of their bounds, how often the truth lay within them (of every pool and of
every total: it must be all), and the CPU time of one `observe`.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import sys
import time
from collections.abc import Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "exporter"))

from prefixwatch.figures.pooled import Pool
from prefixwatch.figures.requests import Increment, RequestEstimator

Requests = tuple[np.ndarray, np.ndarray]  # prompt and cached tokens, in the order of arrival
EDGES = tuple(float(f * 10**k) for k in range(5) for f in (1, 2, 5))[:-1]
NAMES = ("hit_ratio", "mostly_cached", "fully_cached", "cold")


def whole_blocks(tokens: np.ndarray, prompt: np.ndarray, block: int) -> np.ndarray:
    return np.minimum(tokens, prompt - 1) // block * block


def mixed(rng: np.random.Generator, count: int, block: int) -> Requests:
    """One warm prompt length beside several cold ones."""
    prefix, question = rng.integers(100, 4000), rng.integers(10, 300)
    lengths = rng.integers(20, 3000, size=rng.integers(1, 5))
    warm = rng.random(count) < rng.uniform(0.3, 0.9)
    prompt = np.where(warm, prefix + question, rng.choice(lengths, count))
    return prompt, np.where(warm, whole_blocks(np.full(count, prefix), prompt, block), 0)


def log_normal(rng: np.random.Generator, count: int, block: int) -> Requests:
    """Prompts of any length, a share of them with any part cached."""
    prompt = np.maximum(rng.lognormal(rng.uniform(5, 7.5), rng.uniform(0.4, 1.1), count), 1).astype(int)
    part = rng.beta(*rng.uniform(0.5, 5, 2), count)
    warm = rng.random(count) < rng.uniform(0.2, 0.9)
    return prompt, np.where(warm, whole_blocks((prompt * part).astype(int), prompt, block), 0)


def chat(rng: np.random.Generator, count: int, block: int) -> Requests:
    """Conversations that grow turn by turn over a common system prompt; some are evicted between turns."""
    system, going_on, evicted = int(rng.integers(0, 800)), rng.uniform(0.5, 0.9), rng.uniform(0, 0.3)
    open_ones: list[int] = []
    prompt, known = np.zeros(count, dtype=int), np.zeros(count, dtype=int)
    for k in range(count):
        history = 0
        if open_ones and rng.random() < going_on:
            history = open_ones.pop(int(rng.integers(len(open_ones))))
        prompt[k] = max(history, system) + int(rng.lognormal(4.5, 0.8)) + 1
        known[k] = history if history and rng.random() > evicted else system * bool(k)
        if prompt[k] < 16000:
            open_ones.append(int(prompt[k] + rng.lognormal(4.5, 0.7)))
        del open_ones[:-60]
    return prompt, whole_blocks(known, prompt, block)


def thrash(rng: np.random.Generator, count: int, block: int) -> Requests:
    """One prompt length; hit whole, in part, or not at all."""
    prefix, question = int(rng.integers(200, 3000)), int(rng.integers(10, 200))
    prompt = np.full(count, prefix + question)
    cold, part = rng.uniform(0.2, 0.6), rng.uniform(0.02, 0.3)
    chance = rng.random(count)
    known = np.where(chance < cold, 0, np.where(chance < cold + part, rng.integers(0, prefix, count), prefix))
    return prompt, whole_blocks(known, prompt, block)


def two_regimes(rng: np.random.Generator, count: int, block: int) -> Requests:
    """One population, then another: a release in the middle."""
    first, second = (POPULATIONS[name] for name in rng.choice(list(POPULATIONS)[:4], 2, replace=False))
    half = int(count * rng.uniform(0.3, 0.7))
    one, two = first(rng, half, block), second(rng, count - half, block)
    return np.concatenate((one[0], two[0])), np.concatenate((one[1], two[1]))


POPULATIONS: dict[str, Callable[[np.random.Generator, int, int], Requests]] = {
    "mixed warm and cold": mixed,
    "log-normal": log_normal,
    "multi-turn chat": chat,
    "thrash": thrash,
    "two regimes": two_regimes,
}


def histogram(values: np.ndarray) -> tuple[int, ...]:
    return tuple(np.bincount(np.searchsorted(EDGES, values), minlength=len(EDGES) + 1).tolist())


def pools(requests: Requests, rate: float, period: float, rng: np.random.Generator) -> list[tuple[Pool, Requests]]:
    prompt, cached = requests
    poll = (np.cumsum(rng.exponential(1 / rate, len(prompt))) // period).astype(int)
    found = []
    for k in np.unique(poll):
        p, c = prompt[poll == k], cached[poll == k]
        pool = Pool(
            requests=len(p),
            prompt_tokens=float(p.sum()),
            computed_tokens=float((p - c).sum()),
            prompt_counts=histogram(p),
            computed_counts=histogram(p - c),
            prompt_edges=EDGES,
            computed_edges=EDGES,
        )
        found.append((pool, (p, c)))
    return found


def truth(requests: Requests, block: int) -> np.ndarray:
    p, c = requests
    return np.array([(c / p).sum(), (2 * c >= p).sum(), ((c > 0) & (p - c <= block)).sum(), (c == 0).sum()])


def within(increment: Increment, expected: np.ndarray) -> bool:
    found = [getattr(increment, name) for name in NAMES]
    return all(f.lower - 1e-6 <= true <= f.upper + 1e-6 for f, true in zip(found, expected, strict=True))


def run(requests: Requests, rate: float, period: float, block: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return errors (4,), widths (4,), pools and totals within their bounds (2,), CPU seconds of an observe (1,)."""
    estimator = RequestEstimator(block_tokens=block, ring=512)
    observed = pools(requests, rate, period, rng)
    held, spent = [], 0.0
    for pool, members in observed:
        begin = time.process_time()
        increment = estimator.observe(pool)
        spent += time.process_time() - begin
        held.append(within(increment, truth(members, block)))
    estimator.settle()
    figures = [getattr(estimator.figures(), name) for name in NAMES]
    expected = truth(requests, block) / len(requests[0])
    estimate, lower, upper = np.array([(f.estimate, f.lower, f.upper) for f in figures]).T
    total = bool(((lower <= expected + 1e-9) & (expected <= upper + 1e-9)).all())
    return np.abs(estimate - expected), upper - lower, np.array((np.mean(held), total)), np.array([spent / len(held)])


def cost(rate: float, period: float, block: int) -> float:
    """Return the mean CPU seconds of an observe over an hour of chat, with the exporter's own settings."""
    rng = np.random.default_rng(0)
    observed = pools(chat(rng, int(rate * 3600), block), rate, period, rng)
    estimator = RequestEstimator(block_tokens=block)
    begin = time.process_time()
    for pool, _ in observed:
        estimator.observe(pool)
    return (time.process_time() - begin) / len(observed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--block", type=int, default=16)
    options = parser.parse_args()
    print(f"{'':20} {'req/s':>5} {'poll':>5}   mean error (hit, mostly, fully, cold)   worst error" + " " * 20, end="")
    print("mean width of the bounds     pools, totals in bounds")
    for (name, population), rate, period in itertools.product(POPULATIONS.items(), (2, 8, 20), (1, 5)):
        rows = []
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            requests = population(rng, int(rate * 60 * options.minutes), options.block)
            rows.append(run(requests, rate, period, options.block, rng))
        errors, widths, held, _ = (np.array(column) for column in zip(*rows, strict=True))
        listed = [errors.mean(axis=0), errors.max(axis=0), widths.mean(axis=0)]
        text = "     ".join(" ".join(f"{value:.3f}" for value in row) for row in listed)
        print(f"{name:20} {rate:5} {period:4}s   {text}     {held.mean(axis=0)[0]:.0%} {held.mean(axis=0)[1]:.0%}")
    for period in (1, 5):
        spent = cost(20, period, options.block)
        print(f"CPU of an observe, 20 requests a second, a poll every {period} s, one hour: {spent * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
