"""The request level over windows: own counters, windows, a lost stretch, the ceiling."""

import dataclasses
import math
from collections.abc import Mapping

import pytest

from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.history import History
from prefixwatch.figures.requestlevel import (
    BOUNDS,
    LOST,
    RequestLevel,
    RequestWatch,
    finishing_rate,
    hit_ratio_ceiling,
    level_since_start,
    lost_requests,
)
from prefixwatch.figures.windows import Window
from prefixwatch.page.reading import CacheConfig, Reading
from readings import CONFIG, histogram, reading

EDGES = (1.0, 10.0, 100.0, 1000.0)
FIGURES = ("hit_ratio", "mostly_cached", "full", "cold")
Requests = list[tuple[int, int]]  # prompt, cached tokens


def counters(requests: Requests) -> dict[str, float]:
    return {
        **histogram("request_prompt_tokens", [prompt for prompt, _ in requests], EDGES),
        **histogram("request_computed_tokens", [prompt - cached for prompt, cached in requests], EDGES),
    }


class Watched:
    """An engine whose requests finish between polls of 1 s."""

    def __init__(self) -> None:
        self.watch, self.history, self.requests = RequestWatch(), History(), Requests()
        self.time = 0.0
        self.finish()

    def finish(self, *requests: tuple[int, int], lost: float = 0.0, config: CacheConfig = CONFIG) -> dict[str, float]:
        """Let these requests finish, and poll; return what that added to the exporter's own counters."""
        self.requests.extend(requests)
        one: Reading = reading(counters(self.requests), time=self.time, config=config)
        grown = self.history.add(self.time, one.counters, {})
        added, ledger = self.watch.observe(grown, one)
        self.history.accumulate({**added, LOST: lost}, ledger)
        self.time += 1.0
        return added

    def level(self, seconds: float | None = None) -> RequestLevel:
        window = self.history.window(seconds)
        assert window is not None
        return self.watch.level(window)


def test_a_window_has_its_own_requests_alone() -> None:
    engine = Watched()
    engine.finish((200, 0))
    engine.finish((200, 0))
    for _ in range(5):
        engine.finish((200, 160))
    assert engine.level(5.0).cold == Estimate(estimate=0.0, lower=0.0, upper=0.0, method="exact")
    level = engine.level()
    assert [getattr(level, name).estimate for name in FIGURES] == pytest.approx([5 * 0.8 / 7, 5 / 7, 0.0, 2 / 7])
    assert level.gap == pytest.approx(0.0), "all prompts are as long"


def test_own_counters_of_an_interval() -> None:
    engine = Watched()
    added = engine.finish((200, 160))
    assert {key: added[f"own/{key}"] for key in ("requests", "prompt_tokens", "cached_tokens")} == {
        "requests": 1.0, "prompt_tokens": 200.0, "cached_tokens": 160.0,
    }  # fmt: skip
    assert [added[f"own/request_hit_ratio_sum/{bound}"] for bound in BOUNDS] == pytest.approx([0.8] * 3)
    assert [added[f"own/cacheable_tokens/{bound}"] for bound in BOUNDS] == [192.0] * 3
    assert added["own/cacheable_prompt_tokens"] == 200.0
    assert all(amount >= 0 for amount in added.values())


def test_another_block_size_keeps_what_was_summed_up() -> None:
    engine = Watched()
    engine.finish((200, 160))
    engine.finish((200, 0), config=dataclasses.replace(CONFIG, block_size=16))
    level = engine.level()
    assert isinstance(level.hit_ratio, Estimate)
    assert level.hit_ratio.estimate == pytest.approx(0.4)


def test_before_the_first_interval_all_is_absent() -> None:
    level = RequestWatch().level(Window(start=0, end=1, increases={}, peaks={}))
    assert {getattr(level, name) for name in (*FIGURES, "gap")} == {Absent("no request was observed yet")}


def test_no_request_is_absent_and_not_zero() -> None:
    engine = Watched()
    engine.finish()
    level = engine.level()
    assert all(isinstance(getattr(level, name), Absent) for name in (*FIGURES, "gap"))


def test_requests_lost_at_a_restart_widen_the_bounds() -> None:
    engine = Watched()
    for _ in range(8):
        engine.finish((200, 160))
    engine.finish(lost=2.0)
    level = engine.level()
    assert level.hit_ratio == Estimate(
        estimate=pytest.approx(0.8), lower=pytest.approx(0.64), upper=pytest.approx(0.84), method="pooled"
    )
    assert level.cold == Estimate(estimate=0.0, lower=0.0, upper=pytest.approx(0.2), method="pooled")
    assert level.mostly_cached == Estimate(estimate=1.0, lower=pytest.approx(0.8), upper=1.0, method="pooled")
    engine.finish((200, 160))
    assert engine.level(1.0).hit_ratio == Estimate(
        estimate=pytest.approx(0.8), lower=pytest.approx(0.8), upper=pytest.approx(0.8), method="exact"
    ), "a window after it lost nothing"


def recent(requests: float | None, seconds: float = 60.0) -> Window:
    increases = {} if requests is None else {"own/requests": requests}
    return Window(start=0.0, end=seconds, increases=increases, peaks={})


@pytest.mark.parametrize(
    ("rate", "gap", "expected"),
    [
        pytest.param(1.0, 4.0, 4 + 6, id="the rate, and three standard deviations"),
        pytest.param(1.0, 1.0, 4, id="one expected"),
        pytest.param(1.0, -1.0, 0, id="it restarted before the last reading"),
        pytest.param(0.0, 9.0, 0, id="no traffic"),
    ],
)
def test_lost_requests(rate: float, gap: float, expected: float) -> None:
    assert lost_requests(rate, gap) == expected


def finished_by(requests: float, *, created: float | None) -> Reading:
    return reading({"requests_finished/stop": requests}, time=1000.0, created=created)


@pytest.mark.parametrize(
    ("window", "last", "expected"),
    [
        pytest.param(recent(60.0), finished_by(100, created=0.0), 1.0, id="lately more than ever"),
        pytest.param(recent(60.0), finished_by(50, created=990.0), 5.0, id="lately it was down for most of the time"),
        pytest.param(None, finished_by(50, created=990.0), 5.0, id="one reading yet"),
        pytest.param(recent(60.0), finished_by(50, created=None), 1.0, id="it does not say when it began"),
        pytest.param(recent(60.0), finished_by(50, created=1001.0), 1.0, id="its clock is ahead"),
        pytest.param(recent(None), finished_by(0, created=990.0), 0.0, id="no traffic"),
        pytest.param(recent(60.0, seconds=0.0), finished_by(0, created=None), 0.0, id="a window of no length"),
    ],
)
def test_finishing_rate(window: Window | None, last: Reading, expected: float) -> None:
    assert finishing_rate(window, last) == expected


def test_three_deviations_hold_a_poisson_count() -> None:
    expected = 25.0
    lost = lost_requests(expected, 1.0)
    above = 1 - sum(math.exp(-expected) * expected**n / math.factorial(n) for n in range(int(lost) + 1))
    assert above < 0.003


LONG, SHORT = counters([(200, 0), (200, 0)]), counters([(20, 0)])
NO_BUCKETS = {key: value for key, value in LONG.items() if "/le/" not in key}


@pytest.mark.parametrize(
    ("increases", "config", "expected"),
    [
        pytest.param(SHORT, CONFIG, (0.0, 0.0, 0.0), id="a prompt of at most a block"),
        pytest.param(counters([(200, 0)]), CONFIG, (0.96, 0.96, 0.96), id="one prompt is exact"),
        pytest.param(
            {**LONG, **{f"own/cacheable_tokens/{bound}": value for bound, value in zip(BOUNDS, (60, 50, 70), strict=True)},
             "own/cacheable_prompt_tokens": 100.0},
            CONFIG, (0.6, 0.5, 0.7), id="interval by interval where it was watched",
        ),
        pytest.param({}, CONFIG, "no histogram of prompt lengths on this page", id="no histogram"),
        pytest.param(NO_BUCKETS, CONFIG, "no histogram of prompt lengths on this page", id="no buckets"),
        pytest.param(LONG, CacheConfig(), "the page does not state a block size", id="no block size"),
        pytest.param(counters([]), CONFIG, "no request finished", id="no request"),
        pytest.param({**LONG, "request_prompt_tokens/sum": 1.0}, CONFIG, "the prompt histogram contradicts itself", id="torn"),
    ],
)  # fmt: skip
def test_ceiling(
    increases: Mapping[str, float], config: CacheConfig, expected: tuple[float, float, float] | str
) -> None:
    found = hit_ratio_ceiling(increases, config)
    if isinstance(expected, str):
        assert found == Absent(expected)
    else:
        assert isinstance(found, Estimate)
        assert (found.estimate, found.lower, found.upper) == pytest.approx(expected)


def test_the_ceiling_holds_the_truth_between_its_bounds() -> None:
    found = hit_ratio_ceiling(LONG, CONFIG)
    assert isinstance(found, Estimate)
    assert found.lower <= 192 / 200 <= found.upper
    assert found.lower <= found.estimate <= found.upper


def test_since_the_start_all_requests_are_one_pool() -> None:
    level = level_since_start(reading(counters([(200, 160), (200, 0), (50, 32)])))
    truth = {"hit_ratio": (0.8 + 0.64) / 3, "mostly_cached": 2 / 3, "full": 1 / 3, "cold": 1 / 3}
    for name, true in truth.items():
        found = getattr(level, name)
        assert isinstance(found, Estimate)
        assert found.lower - 1e-9 <= true <= found.upper + 1e-9
    absent = level_since_start(reading({"queried_tokens": 1.0}))
    assert absent.cold == Absent("no count of requests on this page")
