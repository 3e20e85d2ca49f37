"""Engines under watch: what is a restart, what moves no baseline, what is never lost or counted twice."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from prefixwatch.diagnosis import Cause, Diagnosis
from prefixwatch.enginestate import engine_age
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.page.reading import PageReading
from prefixwatch.snapshot import EngineFigures
from prefixwatch.targetwatch import ACCEPT_AFTER, SEVERAL_ENGINES, Refused, TargetWatch
from readings import BORN, CONFIG, histogram, page, reading

EDGES = (10.0, 100.0, 1000.0)


def served(requests: int, *, prompt: int = 200, cached: int = 150, **more: float) -> dict[str, float]:
    """Return the counters of an engine that has served so many equal requests."""
    return {
        "queried_tokens": float(requests * prompt), "hit_tokens": float(requests * cached),
        "prompt_tokens": float(requests * prompt), "cached_prompt_tokens": float(requests * cached),
        "generation_tokens": 10.0 * requests, "preemptions": 0.0,
        "time_to_first_token_seconds/count": float(requests), "time_to_first_token_seconds/sum": 0.1 * requests,
        **histogram("request_prompt_tokens", [prompt] * requests, EDGES),
        **histogram("request_computed_tokens", [prompt - cached] * requests, EDGES), **more,
    }  # fmt: skip


def at(time: float, requests: int, *, created: float | None = BORN, **options: Any) -> PageReading:
    """Return a page of one engine; `options` are those of `served` and of `reading`."""
    of_reading = {name: options.pop(name) for name in ("gauges", "config", "engine", "model_name") if name in options}
    return page(reading(served(requests, **options), time=time, created=created, **of_reading))


def without(found: PageReading, *names: str) -> PageReading:
    """Return a page that lacks these counters."""
    return replace(
        found,
        engines=tuple(
            replace(one, counters={key: value for key, value in one.counters.items() if not key.startswith(names)})
            for one in found.engines
        ),
    )


def watched(*pages: PageReading, **options: Any) -> TargetWatch:
    watch = TargetWatch("localhost:8000", **options)
    for one in pages:
        watch.add(one)
    return watch


def figures(watch: TargetWatch, seconds: float | None = None) -> EngineFigures:
    (found,) = watch.state((seconds,)).snapshot(seconds).engines
    return found


def own(watch: TargetWatch) -> Mapping[str, float]:
    (state,) = watch.state().engines
    return state.own


def restarts(watch: TargetWatch) -> list[int]:
    return [state.restarts for state in watch.state().engines]


# Restarts.


def test_growth_between_pages() -> None:
    found = figures(watched(at(1000, 10), at(1005, 14)))
    assert (found.requests, found.token_hit_ratio, found.window_seconds) == (4.0, 0.75, 5.0)


@pytest.mark.parametrize(
    ("after", "created"),
    [
        pytest.param(3, None, id="told by a value that fell"),
        pytest.param(3, 1002.0, id="told by _created and by value"),
        pytest.param(25, 1002.0, id="told by _created alone: the value has overtaken"),
    ],
)
def test_a_restart_counts_what_the_new_process_served(after: int, created: float | None) -> None:
    before = None if created is None else BORN
    watch = watched(
        at(1000, 10, created=before), at(1005, 14, created=before), at(1010, after, created=created and 1007)
    )
    assert figures(watch).requests == 4.0 + after
    assert restarts(watch) == [1]


def test_a_restart_of_nothing_yet_is_no_negative_growth() -> None:
    watch = watched(at(1000, 10), at(1005, 0, created=1003.0), at(1010, 2, created=1003.0))
    assert figures(watch).requests == 2.0
    assert restarts(watch) == [1]


def test_a_counter_alone_that_falls_is_no_restart() -> None:
    watch = watched(at(1000, 10, preemptions=9.0), at(1005, 14, preemptions=2.0))
    assert figures(watch).preemptions == 2.0
    assert restarts(watch) == [0]


def test_requests_lost_at_a_restart_widen_the_bounds() -> None:
    """1 request a second, and 4 s between the last reading and the end of the process: up to 10 were never read."""
    steady = [at(1000 + second, 10 + second) for second in range(60)]
    watch = watched(*steady, at(1070, 1, created=1063.0))
    assert own(watch)["lost_requests"] == 10.0
    found = figures(watch).request_hit_ratio
    assert isinstance(found, Estimate)
    assert (found.lower, found.estimate, found.upper) == pytest.approx((0.75 * 60 / 70, 0.75, (0.75 * 60 + 10) / 70))
    watch.add(at(1071, 2, created=1063.0))
    last = figures(watch, 1.0).request_hit_ratio
    assert isinstance(last, Estimate)
    assert (last.lower, last.upper) == pytest.approx((0.75, 0.75)), "the second after it lost none"


def test_the_start_of_the_process_says_when_the_old_one_ended() -> None:
    steady = [at(1000 + second, 10 + second) for second in range(60)]
    watch = watched(*steady, replace(at(1070, 5, created=1063.0), epoch=(1063.0, 1060.0)))
    assert own(watch)["lost_requests"] == 4.0, "1 s at 1 request a second, and three deviations"


def test_an_older_process_than_the_last_page_is_a_new_baseline() -> None:
    watch = watched(at(1000, 10), at(1005, 14), at(1010, 500, created=700.0), at(1015, 503, created=700.0))
    assert figures(watch).requests == 4.0 + 3.0, "nobody knows what it served in between"
    assert restarts(watch) == [0]


def test_a_counter_that_begins_late_counts_in_full() -> None:
    one, other = at(1000, 10), at(1005, 14, external_queried_tokens=40.0, external_hit_tokens=10.0)
    other = replace(other, engines=tuple(replace(e, created={**e.created, "external_queried_tokens": 1003.0,
                    "external_hit_tokens": 1003.0}) for e in other.engines))  # fmt: skip
    assert figures(watched(one, other)).external_hit_ratio == 0.25
    assert isinstance(figures(watched(one, at(1005, 14, external_queried_tokens=40.0))).external_hit_ratio, Absent)


@pytest.mark.parametrize(
    ("created", "grown"),
    [
        pytest.param(None, (2.0, 3.0), id="told by value: of that engine alone"),
        pytest.param(1003.0, (2.0, 103.0), id="told by _created: of all"),
    ],
)
def test_a_restart_on_a_page_of_two(created: float | None, grown: tuple[float, float]) -> None:
    pages = []
    for time, requests, began in ((1000, (10, 100), created and BORN), (1005, (2, 103), created)):
        sides = [
            reading(served(count), time=time, created=began, engine=str(rank)) for rank, count in enumerate(requests)
        ]
        pages.append(page(*sides))
    engines = watched(*pages).state().snapshot().engines
    assert tuple(one.requests for one in engines) == grown


# What moves no baseline.


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(("hit_tokens",), id="hits"),
        pytest.param(("queried_tokens", "hit_tokens"), id="both lookups: no restart by value"),
        pytest.param(("prompt_tokens",), id="prompt tokens: no restart by value"),
        pytest.param(("request_",), id="histograms"),
    ],
)
@pytest.mark.parametrize("created", [BORN, None], ids=["with _created", "without"])
def test_an_incomplete_page_moves_no_baseline(missing: tuple[str, ...], created: float | None) -> None:
    """The case people reported: 25/100, a cut page, 95/200 give 70/100 from first to last."""
    watch = watched(at(1000, 10, created=created))
    cut = without(at(1005, 12, created=created), *missing)
    with pytest.raises(Refused, match=r"the page lacks \S+, which was there before: was it cut off\?") as refused:
        watch.add(cut)
    assert refused.value.kind == "incomplete"
    watch.add(at(1010, 20, created=created))
    found = figures(watch)
    assert (found.requests, found.token_hit_ratio, found.window_seconds) == (10.0, 0.75, 10.0)
    assert restarts(watch) == [0]
    assert own(watch)["requests"] == 10.0


def test_after_three_pages_in_a_row_it_is_the_engines_new_shape() -> None:
    watch = watched(at(1000, 10))
    for poll in range(1, ACCEPT_AFTER):
        with pytest.raises(Refused):
            watch.add(without(at(1000 + poll, 10 + poll), "hit_tokens"))
    watch.add(without(at(1003, 13), "hit_tokens"))
    watch.add(without(at(1004, 14), "hit_tokens"))
    assert figures(watch).requests == 1.0, "its history begins anew: no window goes over both shapes"
    assert isinstance(figures(watch).token_hit_ratio, Absent), "no hits since"
    for poll in range(5, 8):
        watch.add(at(1000 + poll, 10 + poll))
    found = figures(watch)
    assert (found.requests, found.token_hit_ratio) == (2.0, 0.75), "and anew once more when it is whole again"


def test_a_whole_page_in_between_starts_the_count_over() -> None:
    watch = watched(at(1000, 10))
    for poll in range(1, 9):
        one = at(1000 + poll, 10 + poll)
        if poll % 2:
            with pytest.raises(Refused):
                watch.add(without(one, "hit_tokens"))
        else:
            watch.add(one)
    assert figures(watch).requests == 8.0


@pytest.mark.parametrize("time", [1005.0, 1004.0, 0.0])
def test_a_page_out_of_order_moves_nothing(time: float) -> None:
    watch = watched(at(1000, 10), at(1005, 14))
    with pytest.raises(Refused, match=r"time went from 1005\.000 to ") as refused:
        watch.add(at(time, 99))
    assert refused.value.kind == "time_went_back"
    assert figures(watch).requests == 4.0


def two(time: float, requests: int, other: int | None) -> PageReading:
    """A page of two engines, or of the first alone."""
    engines = [reading(served(requests), time=time)]
    if other is not None:
        engines.append(reading(served(other), time=time, engine="1"))
    return page(*engines)


def test_engines_of_a_page_are_apart() -> None:
    engines = watched(two(1000, 10, 100), two(1005, 14, 103)).state().snapshot().engines
    assert [(one.engine, one.requests) for one in engines] == [("0", 4.0), ("1", 3.0)]


def test_an_engine_that_vanishes_from_a_page() -> None:
    watch = watched(two(1000, 10, 100), two(1005, 14, 103))
    for poll in (1, 2):
        with pytest.raises(Refused, match="the page lacks all of an engine's counters"):
            watch.add(two(1005 + poll, 14, None))
    watch.add(two(1010, 15, None))
    assert [one.engine for one in watch.state().snapshot().engines] == ["0"]
    watch.add(two(1015, 16, 500))
    back = watch.state().engines[1]
    assert (back.reading.engine, back.own.get("requests", 0.0)) == ("1", 0.0), "it begins anew, with nothing counted"
    assert isinstance(back.figures().requests, Absent)


def test_another_model_begins_anew() -> None:
    watch = watched(at(1000, 10), at(1005, 14))
    for poll in (6, 7):
        with pytest.raises(Refused, match="all of an engine's counters"):
            watch.add(at(1000 + poll, 2, model_name="other"))
    watch.add(at(1010, 3, model_name="other"))
    watch.add(at(1015, 5, model_name="other"))
    found = figures(watch)
    assert (found.model_name, found.requests) == ("other", 2.0)


def test_a_restart_with_another_model_is_believed_at_once() -> None:
    watch = watched(at(1000, 10), at(1005, 14), at(1010, 3, model_name="other", created=1007.0))
    assert [state.reading.model_name for state in watch.state().engines] == ["other"]


# Several engines in turn.


def test_several_engines_in_turn_give_nothing() -> None:
    one, other = {"created": 500.0}, {"created": 700.0}
    watch = watched(at(1000, 10, **one), at(1005, 500, **other))
    for poll in range(2, 8):
        with pytest.raises(Refused) as refused:
            watch.add(at(1000 + 5 * poll, 500 + poll, **(other if poll % 2 else one)))
        assert (refused.value.kind, str(refused.value)) == ("several_engines", SEVERAL_ENGINES)
        assert watch.state().engines == ()
        assert watch.state().snapshot().engines == ()


def test_an_address_that_answers_for_one_engine_for_long_is_believed_again() -> None:
    watch = watched(at(1000, 10, created=500.0), at(1005, 500, created=700.0))
    with pytest.raises(Refused):
        watch.add(at(1010, 12, created=500.0))
    with pytest.raises(Refused):
        watch.add(at(1500, 20, created=500.0))
    watch.add(at(1700, 30, created=500.0))
    watch.add(at(1705, 33, created=500.0))
    assert figures(watch).requests == 3.0


# What else is known of an engine.


@pytest.mark.parametrize("state", ["weights_offloaded", "discard_all"])
def test_after_a_sleep_nobody_knows_how_full_the_pool_is(state: str) -> None:
    asleep = {"sleep_state/awake": 0.0, f"sleep_state/{state}": 1.0}
    awake = {"sleep_state/awake": 1.0, f"sleep_state/{state}": 0.0}
    watch = watched(at(1000, 200, gauges=awake))
    assert figures(watch).pool_filled is True, "200 requests wrote 60 tokens each into 6,400"
    watch.add(at(1005, 200, gauges=asleep))
    watch.add(at(1010, 200, gauges=awake))
    assert isinstance(figures(watch).pool_filled, Absent)
    watch.add(at(1015, 1, gauges=awake, created=1012.0))
    assert figures(watch).pool_filled is False, "a restarted engine has an empty pool"


def test_own_counters_never_fall() -> None:
    pages = [
        at(1000, 10), at(1005, 14), without(at(1010, 16), "hit_tokens"), at(1015, 20), at(1020, 2, created=1018.0),
        at(1025, 900, created=400.0), at(1030, 905, created=400.0),
        at(1035, 905, created=400.0, cached_prompt_tokens=10.0**9),  # torn
    ]  # fmt: skip
    watch, before = TargetWatch("localhost:8000", spans=(60.0,)), dict[str, float]()
    for one in pages:
        try:
            watch.add(one)
        except Refused:
            continue
        now = own(watch)
        assert all(now[name] >= value for name, value in before.items())
        assert now.keys() >= before.keys()
        before = dict(now)
    assert before["requests"] == 10.0 + 2.0 + 5.0
    assert before["written_tokens"] >= 60.0 * 17


def test_cached_tokens_save_what_the_fit_says() -> None:
    watch, requests, seconds = TargetWatch("localhost:8000"), [0, 0], 0.0
    for second in range(40):
        computed = 50 + 40 * (second % 5)
        requests[0] += 1
        requests[1] += computed
        seconds += 0.001 * computed + 0.02
        counters = {
            "queried_tokens": 200.0 * requests[0], "hit_tokens": 200.0 * requests[0] - requests[1],
            "request_prompt_tokens/count": 1.0 * requests[0], "request_prompt_tokens/sum": 300.0 * requests[0],
            "request_computed_tokens/count": 1.0 * requests[0], "request_computed_tokens/sum": 1.0 * requests[1],
            "prefill_seconds/sum": seconds, "prefill_seconds/count": 1.0 * requests[0],
            "inference_seconds/sum": 2 * seconds,
        }  # fmt: skip
        watch.add(page(reading(counters, time=1000.0 + second)))
    found = figures(watch)
    assert not isinstance(found.prefill_seconds_saved, Absent)
    assert found.prefill_seconds_saved.estimate == pytest.approx(0.001 * (300 * 39 - (requests[1] - 50)))
    saved = own(watch)["prefill_saved_seconds"]
    assert 0 < saved < found.prefill_seconds_saved.estimate, "counted from the first sound fit on, never revised"


@pytest.mark.parametrize(
    ("seconds", "is_covered"),
    [pytest.param(50.0, True, id="covered"), pytest.param(55.0, True, id="nine tenths"),
     pytest.param(56.0, False, id="less than nine tenths"), pytest.param(300.0, False, id="hardly begun")],
)  # fmt: skip
def test_figures_may_require_a_covered_window(seconds: float, is_covered: bool) -> None:
    watch = watched(*(at(1000 + 5 * poll, 10 + poll) for poll in range(11)))
    (state,) = watch.state((seconds,)).engines
    assert state.figures(seconds).requests == 10.0, "without the demand everything seen counts"
    found = state.figures(seconds, require_coverage=True)
    if is_covered:
        assert found.requests == 10.0
    else:
        why = Absent(f"window not yet covered: 50 s of {seconds:.0f} s")
        assert (found.requests, found.request_hit_ratio, found.diagnosis) == (why, why, why)


def test_one_reading_gives_no_window() -> None:
    found = figures(watched(at(1000, 10)))
    why = Absent("only one reading yet: a window needs two")
    assert (found.token_hit_ratio, found.diagnosis) == (why, why)
    assert found.pool_tokens == 6400, "what needs no window is there"


def test_a_state_is_of_its_moment() -> None:
    watch = watched(at(1000, 10), at(1005, 14))
    state = watch.state()
    watch.add(at(1010, 99))
    assert state.snapshot().engines[0].requests == 4.0


def test_a_target_that_fails_says_why() -> None:
    watch = watched(at(1000, 10), at(1005, 14))
    watch.fail("connection refused")
    found = watch.state().snapshot(is_up=False)
    assert (found.error, found.is_up, len(found.engines)) == ("connection refused", False, 1)
    watch.add(at(1010, 15))
    assert watch.error is None


def test_a_trend_step_by_step() -> None:
    ratios = [0.75, 0.75, 0.0, 0.5]
    hits, pages = 0.0, [at(1000, 10)]
    for step, ratio in enumerate(ratios):
        hits += 1000 * ratio
        pages.append(at(1005 + 5 * step, 15 + 5 * step, hit_tokens=1500 + hits))
    (engine,) = watched(*pages).state().engines
    assert engine.trend(20.0, 4) == pytest.approx(ratios)
    assert engine.trend(40.0, 8)[:4] == [None] * 4, "nothing was read then"


@pytest.mark.parametrize(("created", "age"), [(900.0, 100.0), (1005.0, 0.0), (None, None)])
def test_age(created: float | None, age: float | None) -> None:
    assert engine_age(reading(served(1), created=created)) == age


def test_a_frozen_engine_is_said_to_be() -> None:
    running = {"requests_running": 2.0}
    watch = watched(*(at(1000 + 10 * poll, 10, gauges=running) for poll in range(14)))
    found = figures(watch)
    assert isinstance(found.token_hit_ratio, Absent)
    assert found.token_hit_ratio.reason.startswith("frozen counters")
    watch.add(at(1145, 1, gauges=running, created=1142.0))
    assert figures(watch).frozen is None, "a restart ends it"


# What is diagnosed holds.


def cause(watch: TargetWatch, span: float = 30.0) -> str:
    (state,) = watch.state((span, 60.0)).engines
    found = state.figures(span).diagnosis
    return str(found.cause) if isinstance(found, Diagnosis) else found.reason


def test_a_diagnosis_holds_until_another_has_lasted() -> None:
    watch = TargetWatch("localhost:8000", spans=(30.0, 60.0), diagnosed=30.0, hold_seconds=60.0)
    seen, requests, hits = [], 10, 0.0
    for second in range(0, 200, 5):
        requests += 5
        hits += 950.0 if second < 50 else 0.0
        watch.add(at(1000 + second, requests, hit_tokens=hits, cached_prompt_tokens=hits))
        seen.append(cause(watch))
    assert seen[:4] == ["too little was seen yet for a diagnosis"] * 4
    healthy, other = seen.index(Cause.HEALTHY), len(seen) - 1
    assert seen[healthy : seen.index(seen[other])] == [Cause.HEALTHY] * (seen.index(seen[other]) - healthy)
    assert seen[other] != Cause.HEALTHY
    assert 50 + 60 <= 5 * seen.index(seen[other]) <= 50 + 60 + 30, "a minute after the window showed it"


@pytest.mark.parametrize(
    ("polls", "last", "is_made"),
    [
        pytest.param(5, at(1025, 35), False, id="5 s later"),
        pytest.param(7, at(1035, 45), True, id="15 s later"),
        pytest.param(5, at(1025, 3, created=1022.0), True, id="a restart"),
        pytest.param(5, at(1025, 35, gauges={"sleep_state/discard_all": 1.0}), True, id="the cache was emptied"),
        pytest.param(5, at(1025, 35, config=replace(CONFIG, enable_prefix_caching=False)), True, id="caching is off"),
        pytest.param(5, at(1025, 35, config=replace(CONFIG, num_gpu_blocks=400)), True, id="another pool"),
    ],
)
def test_a_diagnosis_is_made_once_a_quarter_of_the_hold_and_where_it_must_not_wait(
    polls: int, last: PageReading, is_made: bool
) -> None:
    watch = TargetWatch("localhost:8000", spans=(30.0, 60.0), diagnosed=30.0, hold_seconds=60.0)
    states = []
    for one in [*(at(1000 + 5 * poll, 10 + 5 * poll) for poll in range(polls)), last]:
        watch.add(one)
        states.extend(watch.state((30.0, 60.0)).engines)
    assert (states[-1].held is not states[-2].held) is is_made


def test_the_figures_beside_a_held_diagnosis_are_the_newest() -> None:
    watch = TargetWatch("localhost:8000", spans=(30.0, 60.0), diagnosed=30.0, hold_seconds=60.0)
    requests = []
    for second in range(0, 30, 5):
        watch.add(at(1000 + second, 10 + second))
        (state,) = watch.state((30.0, 60.0)).engines
        requests.append(state.figures(30.0).requests)
    assert requests[1:] == [5.0, 10.0, 15.0, 20.0, 25.0]


def test_another_span_than_the_held_one_answers_at_once() -> None:
    watch = TargetWatch("localhost:8000", spans=(30.0, 60.0), diagnosed=30.0, hold_seconds=600.0)
    for second in range(0, 100, 5):
        hits = 950.0 * min(second // 5 + 1, 11)
        watch.add(at(1000 + second, 10 + second, hit_tokens=hits, cached_prompt_tokens=hits))
        (state,) = watch.state((60.0, 30.0)).engines
    held, free = state.figures(30.0).diagnosis, state.figures(60.0).diagnosis
    assert isinstance(held, Diagnosis)
    assert isinstance(free, Diagnosis)
    assert (held.cause is Cause.HEALTHY, free.cause is Cause.HEALTHY) == (True, False)


def test_the_held_span_need_not_be_asked_for() -> None:
    watch = TargetWatch("localhost:8000", diagnosed=30.0)
    for second in range(0, 40, 5):
        watch.add(at(1000 + second, 10 + second))
    (state,) = watch.state().engines
    assert isinstance(state.figures().diagnosis, Diagnosis)


def test_a_config_of_another_pool_is_read_anew() -> None:
    watch = watched(at(1000, 10), at(1005, 14, config=replace(CONFIG, num_gpu_blocks=400)))
    assert figures(watch).pool_tokens == 12_800


def test_a_restart_in_the_window_is_said() -> None:
    watch = TargetWatch("engine")
    for time, queried, began in ((1000.0, 100.0, 900.0), (1010.0, 300.0, 900.0), (1040.0, 50.0, 1030.0)):
        counters = {"queried_tokens": queried, "hit_tokens": queried / 2}
        watch.add(page(reading(counters, time=time, created=began), started=began - 5))
    assert any(caveat.startswith("engine_restarted: ") for caveat in watch.state().snapshot().caveats)
    before = TargetWatch("engine")
    for time in (1000.0, 1010.0):
        before.add(page(reading({"queried_tokens": time}, time=time), started=900.0))
    assert before.state().snapshot().caveats == ()


def test_a_restart_that_its_own_clock_hides_is_said_and_makes_bounds_wider() -> None:
    """The engine's clock is a minute behind: by its times, the new process is older than the last page of the old one."""

    def seen(began: float) -> tuple[TargetWatch, EngineFigures]:
        watch = TargetWatch("engine")
        for time in (1000, 1005, 1010):
            watch.add(replace(at(time, time), epoch=(100.0, 90.0)))
        for time in (1030, 1035, 1040):
            watch.add(replace(at(time, time - 1025), epoch=(began, began - 10)))
        return watch, figures(watch)

    (hidden, wide), (plain, told) = seen(965.0), seen(1025.0)
    assert hidden.state().snapshot().caveats[0].startswith("process_changed: ")
    assert plain.state().snapshot().caveats[0].startswith("engine_restarted: ")
    assert (hidden.state().engines[0].restarts, plain.state().engines[0].restarts) == (0, 1)
    assert (wide.requests, told.requests) == (20, 25), "what it did before its first page is not counted"
    assert isinstance(wide.request_hit_ratio, Estimate)
    assert isinstance(told.request_hit_ratio, Estimate)
    assert wide.request_hit_ratio.upper - wide.request_hit_ratio.lower > 0.5, "25 requests may be missing"
