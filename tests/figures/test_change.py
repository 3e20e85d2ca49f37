"""When a fit is told that traffic is no longer what it was made from."""

import numpy as np
import pytest

from prefixwatch.figures.change import Change, _deviance

ROWS = 3


def pools(rng: np.random.Generator, count: int, *, shares: tuple[float, ...], cached: float) -> np.ndarray:
    """Draw pools of some 8 requests; both histograms have three buckets, and each prompt 100 tokens."""
    requests = rng.poisson(8, count) + 1
    prompt, computed = (np.array([rng.multinomial(n, shares) for n in requests]) for _ in range(2))
    hit = np.clip(cached + rng.normal(0, 0.05, count), 0, 1)
    return np.column_stack((prompt, computed, 100 * requests, 100 * requests * (1 - hit))).astype(float)


USUAL = {"shares": (0.2, 0.5, 0.3), "cached": 0.5}


def first_alarm(change: Change, later: np.ndarray) -> int | None:
    return next((k for k, pool in enumerate(later) if change.add(pool, 1000 + k)), None)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"shares": (0.7, 0.1, 0.2), "cached": 0.5}, id="other buckets"),
        pytest.param({"shares": (0.0, 1.0, 0.0), "cached": 0.5}, id="one of the usual buckets alone"),
        pytest.param({"shares": (0.2, 0.5, 0.3), "cached": 0.0}, id="the same buckets, nothing cached"),
    ],
)
def test_a_change_is_noticed_soon_and_dated(other: dict) -> None:
    rng = np.random.default_rng(1)
    change = Change(pools(rng, 40, **USUAL), ROWS, end=1000)
    later = np.concatenate((pools(rng, 30, **USUAL), pools(rng, 20, **other)))
    alarm = first_alarm(change, later)
    assert alarm is not None
    assert 30 <= alarm <= 42
    assert 1020 <= change.since <= 1032


def test_steady_traffic_is_no_change() -> None:
    rng = np.random.default_rng(2)
    assert first_alarm(Change(pools(rng, 40, **USUAL), ROWS, end=1000), pools(rng, 300, **USUAL)) is None


def test_one_odd_pool_is_no_change() -> None:
    rng = np.random.default_rng(3)
    later = pools(rng, 20, **USUAL)
    later[10] = (0, 0, 900, 0, 0, 900, 1e6, 1e6)
    assert first_alarm(Change(pools(rng, 40, **USUAL), ROWS, end=1000), later) is None


def test_a_few_pools_show_nothing_usual() -> None:
    rng = np.random.default_rng(4)
    later = pools(rng, 50, shares=(1.0, 0.0, 0.0), cached=0.0)
    assert first_alarm(Change(pools(rng, 7, **USUAL), ROWS, end=1000), later) is None


def test_one_pool_deviates_as_it_does_among_many() -> None:
    rng = np.random.default_rng(5)
    change, later = Change(pools(rng, 40, **USUAL), ROWS, end=1000), pools(rng, 50, **USUAL)
    later[0, :-2] = (0, 0, 9, 9, 0, 0)
    each = [change._deviance_of(pool[:-2]) for pool in later.tolist()]
    assert each == pytest.approx(_deviance(later[:, :-2], change._log_shares).tolist())
