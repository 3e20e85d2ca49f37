"""The stand-in over time: restart, reset, switching, two engines."""

import re

import pytest

from prefixwatch.demo.pool import Cleared, Removed
from prefixwatch.demo.scenarios import scenario_named
from prefixwatch.demo.standin import StandIn


def standin(name: str, **options: float) -> StandIn:
    """Return a stand-in whose traffic has begun."""
    started = StandIn(scenario_named(name), seed=11, half_time=options.get("half_time", 30.0))
    started.start()
    return started


def value(page: bytes, name: str) -> float:
    """Return a family's sum over its series."""
    return sum(float(number) for number in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page.decode(), re.MULTILINE))


def hit_ratio(page: bytes, since: bytes | None = None) -> float:
    """Return the token hit ratio since an earlier page."""
    names = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
    hits, queries = (value(page, name) - (value(since, name) if since else 0.0) for name in names)
    return hits / queries


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("healthy", 0.75, 0.95),
        ("divergent", 0.0, 0.0),
        ("mid_variable", 0.2, 0.35),
        ("thrash_low_usage", 0.3, 0.6),
        ("pressure", 0.4, 0.8),
        ("divergent_small_pool", 0.0, 0.0),
        ("decode_bound", 0.4, 0.9),
        ("short_prompts", 0.0, 0.0),
        ("salted", 0.0, 0.0),
        ("mixed_long_warm", 0.7, 0.9),
        ("mixed_short_warm", 0.3, 0.5),
        ("two_engines", 0.6, 0.95),
    ],
)
def test_a_scenarios_picture_shows_within_half_a_minute(name: str, low: float, high: float) -> None:
    made = standin(name)
    made.advance(30.0)
    assert low <= hit_ratio(made.page()) <= high


def test_pressure_is_seen_in_usage_preemptions_and_a_bounded_queue() -> None:
    made, usage = standin("pressure"), []
    for tick in range(60):
        made.advance(tick / 2)
        usage.append(value(made.page(), "vllm:kv_cache_usage_perc"))
        assert made.in_flight <= (scenario_named("pressure").clients or 0)
    assert max(usage) > 0.9
    assert value(made.page(), "vllm:num_preemptions_total") > 0


def test_low_usage_hides_thrashing() -> None:
    made, usage = standin("thrash_low_usage"), []
    for tick in range(60):
        made.advance(tick / 2)
        usage.append(value(made.page(), "vllm:kv_cache_usage_perc"))
    assert sum(usage) / len(usage) < 0.1
    assert len(made.evictions) > 500


def test_caching_disabled_counts_prompts_but_no_queries() -> None:
    made = standin("caching_disabled")
    made.advance(10.0)
    page = made.page()
    assert value(page, "vllm:prompt_tokens_total") > 0
    assert value(page, "vllm:prefix_cache_queries_total") == 0
    assert b'enable_prefix_caching="False"' in page


def test_idle_serves_nothing() -> None:
    made = standin("idle")
    made.advance(60.0)
    assert value(made.page(), "vllm:prompt_tokens_total") == 0


def test_a_restart_is_seen_in_created_and_counters() -> None:
    made = standin("restart", half_time=10.0)
    made.advance(10.0)
    before = made.page()
    made.advance(11.0)
    assert not made.is_up
    made.advance(20.0)
    after = made.page()
    assert made.is_up
    assert value(after, "vllm:prefix_cache_queries_created") == 13.0
    assert value(after, "process_start_time_seconds") == 10.0
    assert 0 < value(after, "vllm:prompt_tokens_total") < value(before, "vllm:prompt_tokens_total")


def test_a_reset_empties_the_cache_and_no_counter() -> None:
    events: list[object] = []
    made = StandIn(scenario_named("reset"), seed=11, half_time=10.0, on_event=lambda _, event: events.append(event))
    made.start()
    made.advance(10.0)
    before = made.page()
    made.advance(25.0)
    after = made.page()
    assert sum(isinstance(event, Cleared) for event in events) == made.clears == 1
    assert not any(isinstance(event, Removed) for event in events)
    assert value(after, "vllm:prefix_cache_queries_total") > value(before, "vllm:prefix_cache_queries_total")
    assert 0.5 < hit_ratio(after, before) < 0.84


def test_the_template_change_drops_the_ratio_half_way() -> None:
    made = standin("template_change", half_time=15.0)
    made.advance(15.0)
    before = made.page()
    made.advance(30.0)
    assert hit_ratio(before) > 0.6
    assert hit_ratio(made.page(), before) < 0.1


def test_switching_keeps_the_engine_where_it_can() -> None:
    made = standin("healthy")
    made.advance(5.0)
    before = value(made.page(), "vllm:prefix_cache_queries_total")
    made.switch(scenario_named("divergent"))
    made.advance(6.0)
    assert made.restarts == 0
    assert value(made.page(), "vllm:prefix_cache_queries_total") > before


@pytest.mark.parametrize("name", ["pressure", "caching_disabled", "two_engines"])
def test_switching_restarts_the_engine_where_it_must(name: str) -> None:
    made = standin("healthy")
    made.advance(5.0)
    made.switch(scenario_named(name))
    assert made.restarts == 1
    assert value(made.page(), "vllm:prompt_tokens_total") == 0
    assert value(made.page(), "vllm:prompt_tokens_created") == 5.0 * len(made.engines)


def test_switching_while_the_server_is_down_brings_it_up() -> None:
    made = standin("restart", half_time=5.0)
    made.advance(6.0)
    made.switch(scenario_named("healthy"))
    made.advance(8.0)
    assert made.is_up
    assert value(made.page(), "vllm:prompt_tokens_total") > 0


def test_two_engines_share_the_load() -> None:
    made = standin("two_engines")
    made.advance(30.0)
    loads = re.findall(r'^vllm:prompt_tokens_total\{engine="\d".*\} (\S+)$', made.page().decode(), re.MULTILINE)
    one, other = map(float, loads)
    assert 0.8 < one / other < 1.25


def test_all_truth_adds_up_with_the_page() -> None:
    made = standin("mixed_long_warm")
    made.advance(20.0)
    made.stop()
    made.advance(30.0)
    assert made.in_flight == 0
    assert sum(done.prompt for done in made.requests) == value(made.page(), "vllm:prompt_tokens_total")
    assert sum(done.cached for done in made.requests) == value(made.page(), "vllm:prefix_cache_hits_total")


@pytest.mark.parametrize(
    ("release", "is_inflated"),
    [pytest.param("0.16.0", True, id="0.16"), pytest.param("0.32.0", False, id="0.32")],
)
def test_retried_lookups_inflate_the_counter_pair_of_older_releases(*, release: str, is_inflated: bool) -> None:
    made = StandIn(scenario_named("pressure"), seed=11, release=release)
    made.start()
    made.advance(20.0)
    queries = value(made.page(), "vllm:prefix_cache_queries_total")
    assert (queries > 1.2 * value(made.page(), "vllm:prompt_tokens_total")) == is_inflated
