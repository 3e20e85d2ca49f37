"""All figures of one engine over one window: each present or absent with a reason of its own."""

import dataclasses
from collections.abc import Mapping

import pytest

from prefixwatch.figures.engine import WindowFigures, may_retry, since_start, window_figures
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.savings import Saving, TokenCost
from prefixwatch.figures.windows import Window
from prefixwatch.page.caveats import Era
from prefixwatch.page.reading import CacheConfig
from readings import CONFIG, histogram, reading

EDGES = (100.0, 1000.0)
COUNTERS = {
    "queried_tokens": 1000.0, "hit_tokens": 600.0, "prompt_tokens": 1000.0, "cached_prompt_tokens": 600.0,
    "generation_tokens": 100.0, "preemptions": 2.0, "requests_finished/stop": 5.0,
    "prefill_seconds/sum": 1.0, "inference_seconds/sum": 4.0, "time_to_first_token_seconds/count": 5.0,
    **histogram("request_prompt_tokens", [200.0] * 5, EDGES),
    **histogram("request_computed_tokens", [80.0] * 5, EDGES),
}  # fmt: skip
PEAKS = {"kv_usage": 0.7, "requests_running": 3.0, "requests_waiting": 2.0}
NOW = {"kv_usage": 0.1, "requests_running": 1.0, "requests_waiting": 0.0}
COST = TokenCost(seconds=0.01, standard_error=0.001)


def figures(increases: Mapping[str, float] = COUNTERS, **options: object) -> WindowFigures:
    one = reading({key: 10 * value for key, value in increases.items()}, gauges=NOW)
    window = Window(start=900.0, end=1000.0, increases=increases, peaks=PEAKS)
    return window_figures(one, window, **{"cost": COST, **options})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("window_seconds", 100.0),
        ("requests", 5.0),
        ("token_hit_ratio", 0.6),
        ("cached_prompt_ratio", 0.6),
        ("prompt_tokens_per_request", 200.0),
        ("output_per_prompt_token", 0.1),
        ("prefill_share", 0.25),
        ("block_tokens", 32),
        ("pool_tokens", 6400),
        ("pool_filled", False),
        ("turnover_seconds", 6400 * 100 / 500),
        ("kv_usage_max", 0.7),
        ("requests_running", 1.0),
        ("requests_waiting", 0.0),
        ("requests_waiting_max", 2.0),
        ("preemptions", 2.0),
        ("prefill_saved_share", 6 / 10),
        ("caching_enabled", True),
        ("is_idle", False),
        ("frozen", None),
        ("caveats", ()),
    ],
)
def test_value(name: str, expected: object) -> None:
    assert getattr(figures(), name) == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_saving_is_of_finished_requests() -> None:
    saved = figures().prefill_seconds_saved
    assert isinstance(saved, Saving)
    assert (saved.estimate, saved.standard_error) == pytest.approx((6.0, 0.6)), "600 cached tokens at finish"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("external_hit_ratio", "no KV connector on this page"),
        ("prompt_tokens_by_source", "no prompt tokens by source on this page (from vLLM 0.16)"),
        ("residency", "no residency histograms on this page: vLLM writes them with --kv-cache-metrics"),
        ("avoidable_miss_ratio", "the engine's cache events are not watched"),
        ("working_set_ratio", "the engine's cache events are not watched"),
    ],
)
def test_absent(name: str, reason: str) -> None:
    assert getattr(figures(), name) == Absent(reason)


@pytest.mark.parametrize("name", ["kv_usage", "requests_running", "requests_waiting"])
def test_a_gauge_that_is_not_there_is_absent(name: str) -> None:
    window = Window(start=0, end=1, increases={}, peaks={})
    found = window_figures(reading(), window)
    field = {"kv_usage": "kv_usage_max"}.get(name, name)
    assert getattr(found, field) == Absent(f"no {name.replace('_', ' ')} gauge on this page")


def test_without_a_window_every_figure_of_one_says_so() -> None:
    why = Absent("only one reading yet: a window needs two")
    found = window_figures(reading(COUNTERS, gauges=NOW), None, cost=COST, absent=why)
    of_now = {"model_name", "engine", "block_tokens", "pool_tokens", "pool_filled", "requests_running", "requests_waiting",
              "avoidable_miss_ratio", "working_set_ratio", "caching_enabled", "frozen", "is_idle", "is_still", "caching_evidence", "caveats"}  # fmt: skip
    for field in dataclasses.fields(found):
        if field.name not in of_now:
            assert getattr(found, field.name) == why, field.name
    assert found.requests_running == 1.0
    assert found.is_idle is False, "nothing is known of the window"


def test_a_page_alone_covers_the_time_since_the_start() -> None:
    one = reading(COUNTERS, gauges=NOW)
    found = window_figures(one, since_start(one))
    assert found.token_hit_ratio == 0.6
    assert found.window_seconds == Absent("one page does not say how long it covers")
    assert found.turnover_seconds == found.window_seconds
    assert isinstance(found.prefill_seconds_saved, Absent)
    assert isinstance(found.request_hit_ratio, Estimate)


@pytest.mark.parametrize(
    ("config", "counters", "gauges", "expected"),
    [
        pytest.param(CONFIG, {}, {}, True, id="the flag says so"),
        pytest.param(CacheConfig(enable_prefix_caching=False), {"queried_tokens": 5.0}, {}, False, id="or says not"),
        pytest.param(CacheConfig(), {}, {"lifetime_hit_rate": -1.0}, False, id="V0: -1 is off"),
        pytest.param(CacheConfig(), {}, {"lifetime_hit_rate": 0.4}, None, id="V0: a rate"),
        pytest.param(CacheConfig(), {"queried_tokens": 0.0, "hit_tokens": 0.0, "prompt_tokens": 9.0}, {}, False,
                     id="prompts are served and none is looked up"),
        pytest.param(CacheConfig(), {"queried_tokens": 9.0, "hit_tokens": 0.0}, {}, True, id="lookups"),
        pytest.param(CacheConfig(), {"queried_tokens": 0.0, "hit_tokens": 0.0}, {}, None, id="nothing served yet"),
        pytest.param(CacheConfig(), {"prompt_tokens": 9.0}, {}, None, id="no counters to tell by"),
    ],
)  # fmt: skip
def test_caching_enabled(
    config: CacheConfig, counters: Mapping[str, float], gauges: Mapping[str, float], expected: bool | None
) -> None:
    one = reading(counters, config=config, gauges=gauges)
    found = window_figures(one, since_start(one))
    assert (None if isinstance(found.caching_enabled, Absent) else found.caching_enabled) is expected
    if expected is False:
        assert found.token_hit_ratio == Absent("prefix caching is off")


def test_a_hit_rate_since_the_start_gives_no_window() -> None:
    one = reading(gauges={"lifetime_hit_rate": 0.4}, config=CacheConfig())
    assert window_figures(one, since_start(one)).token_hit_ratio == Absent(
        "the V0 engine states only its hit rate since the start (0.400): no window can be made of it"
    )


def test_frozen_counters_have_no_ratio() -> None:
    found = figures(frozen="frozen counters: why")
    assert (found.token_hit_ratio, found.frozen) == (Absent("frozen counters: why"), "frozen counters: why")


def test_idle() -> None:
    assert figures({"queried_tokens": 0.0, "hit_tokens": 0.0}).is_idle is True
    assert figures({}).is_idle is False, "without the counter nobody knows"


def test_a_cache_that_was_emptied_is_not_known_to_be_full() -> None:
    assert isinstance(figures(was_emptied=True).pool_filled, Absent)


RETRIED = {**COUNTERS, "queried_tokens": 5000.0, "hit_tokens": 4500.0,
           "prompt_tokens_by_source/computed": 700.0, "prompt_tokens_by_source/local_cache": 300.0}  # fmt: skip


@pytest.mark.parametrize(
    ("era", "ratio", "is_noted"),
    [
        pytest.param(Era(), 0.3, True, id="unknown release"),
        pytest.param(Era(first=(0, 16), until=(0, 25)), 0.3, True, id="a release that counts retries"),
        pytest.param(Era(first=(0, 28)), 0.9, False, id="a release that does not"),
        pytest.param(Era(first=(0, 28), until=(0, 29)), 0.9, False, id="0.28 itself"),
        pytest.param(Era(first=(0, 27)), 0.3, True, id="perhaps not"),
    ],
)
def test_retried_lookups_are_noted_where_the_release_counts_them(era: Era, ratio: float, is_noted: bool) -> None:
    found = figures(RETRIED, era=era)
    assert found.token_hit_ratio == pytest.approx(ratio)
    assert may_retry(era) is is_noted
    assert bool(found.caveats) is is_noted
    assert figures(era=era).caveats == (), "ordinary counters need no note"


def test_requests_in_flight_are_no_retries() -> None:
    """3 requests of 200 tokens ran: so many more queries than prompt tokens are not yet counted at first token."""
    assert figures({**RETRIED, "queried_tokens": 1700.0, "hit_tokens": 850.0}).caveats == ()
    assert figures({**RETRIED, "queried_tokens": 1701.0, "hit_tokens": 850.0}).caveats != ()
