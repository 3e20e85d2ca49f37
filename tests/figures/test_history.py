"""Counters over time: increases survive resets, gaps and thinning; windows say what they cover."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.figures.history import POINTS_PER_WINDOW, History
from prefixwatch.figures.windows import Window

HOUR = 3600.0
SPANS = (60.0, 300.0, HOUR)


def history_of(values: Sequence[float], *, spans: Sequence[float] = (), step: float = 1.0) -> History:
    """Return a history of one counter `c` and one gauge `g` that have the same values."""
    history = History(spans)
    for position, value in enumerate(values):
        history.add(position * step, {"c": value}, {"g": value})
    return history


def increases(window: Window | None) -> Mapping[str, float]:
    assert window is not None
    return window.increases


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0, 10, 30], 30, id="plain growth"),
        pytest.param([100, 5], 5, id="a reset counts the new value"),
        pytest.param([10, 40, 5, 25], 55, id="a reset on the way"),
        pytest.param([10, 40, 0, 0], 30, id="a reset to nothing"),
        pytest.param([7, 7, 7], 0, id="standing still is a measured zero"),
    ],
)
def test_increase(values: list[float], expected: float) -> None:
    assert increases(history_of(values).window()) == {"c": expected}


@pytest.mark.parametrize("values", [[], [7.0]], ids=["nothing", "one reading"])
def test_too_few_readings_give_no_window(values: list[float]) -> None:
    history = history_of(values)
    assert history.window() is None
    assert history.window(60) is None
    assert history.intervals(["c"]).shape == (0, 1)


def test_ends_are_known() -> None:
    assert (History().start, History().end) == (None, None)
    history = history_of([1, 2, 3])
    assert (history.start, history.end) == (0.0, 2.0)


@pytest.mark.parametrize("time", [5.0, 4.0, math.nextafter(5.0, 0.0)])
def test_time_must_move_forward(time: float) -> None:
    history = History()
    history.add(5.0, {"c": 1.0}, {})
    with pytest.raises(ValueError, match=r"time went from 5\.000 to "):
        history.add(time, {"c": 9.0}, {})
    history.add(6.0, {"c": 2.0}, {})
    assert increases(history.window()) == {"c": 1.0}, "what was refused moved nothing"


def test_a_restart_counts_a_value_that_has_overtaken_the_old_one() -> None:
    history = History()
    history.add(0.0, {"c": 10.0}, {})
    assert history.add(1.0, {"c": 15.0}, {}, restarted=True) == {"c": 15.0}
    assert history.add(2.0, {"c": 16.0}, {}) == {"c": 1.0}
    assert increases(history.window()) == {"c": 16.0}


def test_a_restart_before_the_first_reading_is_no_growth() -> None:
    history = History()
    assert history.add(0.0, {"c": 10.0}, {}, restarted=True) == {}


def test_a_counter_that_a_restart_took_away_starts_anew() -> None:
    history = History()
    history.add(0.0, {"c": 10.0, "d": 10.0}, {})
    history.add(1.0, {"c": 1.0}, {}, restarted=True)
    assert history.add(2.0, {"c": 2.0, "d": 50.0}, {}) == {"c": 1.0}, "d is a baseline again"
    assert history.add(3.0, {"c": 2.0, "d": 53.0}, {}) == {"c": 0.0, "d": 3.0}


def test_a_counter_that_was_born_counts_in_full_at_once() -> None:
    history = History()
    history.add(0.0, {"c": 10.0}, {})
    assert history.add(1.0, {"c": 10.0, "late": 4.0, "other": 7.0}, {}, born={"late"}) == {"c": 0.0, "late": 4.0}
    assert increases(history.window()) == {"c": 0.0, "late": 4.0}, "nobody saw the other begin"


def test_a_counter_that_vanishes_goes_on_where_it_comes_back() -> None:
    history = History()
    for time, counters in enumerate(({"c": 10.0, "d": 1.0}, {"d": 2.0}, {"c": 25.0, "d": 3.0})):
        history.add(float(time), counters, {})
    assert increases(history.window()) == {"c": 15.0, "d": 2.0}


def test_a_counter_that_stays_away_is_unknown_and_not_zero() -> None:
    history = History()
    for time in range(10):
        history.add(float(time), {"d": 1.0} if time > 3 else {"c": float(time), "d": 1.0}, {})
    assert increases(history.window(4.0)) == {"d": 0.0}
    assert increases(history.window()) == {"c": 3.0, "d": 0.0}


def test_a_new_baseline_counts_nothing() -> None:
    history = History()
    history.add(0.0, {"c": 10.0}, {})
    assert history.add(1.0, {"c": 500.0}, {}, counts=False) == {}
    assert history.add(2.0, {"c": 501.0}, {}) == {"c": 1.0}
    assert increases(history.window()) == {"c": 1.0}


@pytest.mark.parametrize(
    ("seconds", "start"),
    [
        pytest.param(4.0, 6.0, id="exactly on a reading"),
        pytest.param(4.4, 6.0, id="the nearest is later"),
        pytest.param(4.6, 5.0, id="the nearest is earlier"),
        pytest.param(4.5, 5.0, id="of two as near the older"),
        pytest.param(0.1, 9.0, id="shorter than an interval: one interval"),
        pytest.param(99.0, 0.0, id="longer than the history"),
    ],
)
def test_a_window_starts_at_the_nearest_reading(seconds: float, start: float) -> None:
    window = history_of(range(11)).window(seconds)
    assert window is not None
    assert (window.start, window.end, window.increases["c"]) == (start, 10.0, 10.0 - start)


def test_a_window_may_end_in_the_past() -> None:
    history = history_of(range(11))
    window = history.window(3.0, end=7.5)
    assert window is not None
    assert (window.start, window.end, window.increases, window.peaks) == (4.0, 7.0, {"c": 3.0}, {"g": 7.0})
    assert history.window(3.0, end=0.5) is None


@pytest.mark.parametrize(("seconds", "coverage"), [(None, 1.0), (10.0, 1.0), (20.0, 0.5), (5.0, 1.0)])
def test_coverage(seconds: float | None, coverage: float) -> None:
    window = history_of(range(11)).window(seconds)
    assert window is not None
    assert window.coverage == pytest.approx(coverage)
    assert window.seconds == (5.0 if seconds == 5.0 else 10.0)


def test_a_peak_before_the_window_is_none_of_its() -> None:
    history = history_of([90, 5, 7, 3])
    window = history.window(2.0)
    assert window is not None
    assert window.peaks == {"g": 7.0}


def test_steps_cut_a_window_in_a_row() -> None:
    history = history_of(range(11))
    steps = history.steps(10.0, 5)
    assert [(step.start, step.end) for step in steps if step] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    assert sum(increases(step)["c"] for step in steps) == 10.0


def test_steps_without_a_reading_are_unknown() -> None:
    assert History().steps(10.0, 3) == [None, None, None]
    history = History()
    for time in (0.0, 1.0, 9.0, 10.0):
        history.add(time, {"c": time}, {})
    found = history.steps(20.0, 4)
    assert found[:2] == [None, None], "before the first reading"
    assert [(step.start, step.end) if step else None for step in found[2:]] == [(0.0, 1.0), (1.0, 10.0)]


def test_intervals_are_what_grew_from_one_point_to_the_next() -> None:
    history = History()
    history.add(0.0, {"c": 1.0}, {})
    history.add(1.0, {"c": 2.0, "d": 10.0}, {})
    history.add(2.0, {"c": 4.0, "d": 11.0}, {})
    history.add(3.0, {"c": 1.0, "d": 15.0}, {})
    np.testing.assert_array_equal(history.intervals(["c"]), [[2.0], [1.0]], "the first growth is where it begins")
    np.testing.assert_array_equal(history.intervals(["d", "c"]), [[4.0, 1.0]])
    assert history.intervals(["c", "nothing"]).shape == (0, 2)


def test_sums_kept_elsewhere_are_found_at_both_ends() -> None:
    history = History()
    for time in range(5):
        history.add(float(time), {}, {})
        history.accumulate({"own/x": 2.0}, np.array([float(time), 10.0 * time]))
    window = history.window(2.0)
    assert window is not None
    assert window.ledger is not None
    np.testing.assert_array_equal(window.ledger, [[2.0, 20.0], [4.0, 40.0]])
    assert window.increases == {"own/x": 4.0}
    assert history.past().sums("own/") == {"x": 10.0}, "all since the watch began, the first poll's too"


# What the properties hold for: (seconds since the last, value read or None, restarted, counts).
_EVENTS = st.lists(
    st.tuples(
        st.integers(1, 40), st.none() | st.integers(0, 10**9), st.integers(0, 9).map(lambda n: n == 0),
        st.integers(0, 9).map(lambda n: n > 0),
    ),
    min_size=2, max_size=120,
)  # fmt: skip


def _fed(history: History, events: Sequence[tuple[int, int | None, bool, bool]]) -> list[tuple[float, float]]:
    """Feed a history; return when it grew, and by how much."""
    time, grown = 0.0, []
    for seconds, value, restarted, counts in events:
        time += seconds
        counters = {} if value is None else {"c": float(value)}
        gauges = {} if value is None else {"g": float(value)}
        grown.append(
            (time, history.add(time, counters, gauges, restarted=restarted, counts=counts).get("c", 0.0))
        )  # fmt: skip
    return grown


@given(_EVENTS, st.data())
def test_increases_over_a_split_add_up_to_the_whole(
    events: list[tuple[int, int | None, bool, bool]], data: st.DataObject
) -> None:
    history = History()
    grown = _fed(history, events)
    whole = history.window()
    assert whole is not None
    assert whole.increases.get("c", 0.0) == sum(amount for _, amount in grown)
    cut = data.draw(st.sampled_from(grown[1:]))[0]
    before, after = history.window(end=cut), history.window(whole.end - cut) if cut < whole.end else None
    parts = [part.increases.get("c", 0.0) for part in (before, after) if part is not None]
    assert sum(parts) == whole.increases.get("c", 0.0)
    assert sum(step.increases.get("c", 0.0) for step in history.steps(whole.seconds, 7) if step) == sum(parts)


@given(_EVENTS)
def test_running_totals_never_fall(events: list[tuple[int, int | None, bool, bool]]) -> None:
    history = History(SPANS)
    assert all(amount >= 0 for _, amount in _fed(history, events))
    assert (history.intervals(["c"]) >= 0).all()


@given(_EVENTS)
def test_thinning_keeps_increases_and_peaks_exact(events: list[tuple[int, int | None, bool, bool]]) -> None:
    spans = (20.0, 200.0)
    history, exact = History(spans), History()
    grown = _fed(history, events)
    _fed(exact, events)
    for span in spans:
        window = history.window(span)
        assert window is not None
        later = [position for position, (time, _) in enumerate(grown) if time > window.start]
        assert window.increases.get("c", 0.0) == sum(grown[position][1] for position in later)
        values = [value for _, value, _, _ in (events[position] for position in later) if value is not None]
        assert window.peaks == ({"g": max(values)} if values else {})
        untouched = exact.window(span)
        assert untouched is not None
        assert abs(window.start - untouched.start) <= 2 * span / POINTS_PER_WINDOW + 40, "a gap may be that long"


def test_an_hour_of_polls_costs_little() -> None:
    """Three windows, 1 s polls, the counters of a whole vLLM page: a bounded number of points and bytes."""
    counters = [f"c{number}" for number in range(150)]
    history = History(SPANS)
    for time in range(2 * int(HOUR)):
        history.add(float(time), dict.fromkeys(counters, float(time)), {"g": float(time % 977)})
    assert history._points.count <= POINTS_PER_WINDOW * len(SPANS) + 2 + POINTS_PER_WINDOW // 4
    growth, ledgers = history._points.growth, history._points.ledgers
    assert growth.narrow.nbytes + growth.wide.nbytes + ledgers.nbytes < 150_000
    assert history.end == 2 * HOUR - 1
    for span in SPANS:
        window = history.window(span)
        assert window is not None
        assert window.seconds == pytest.approx(span, rel=1 / POINTS_PER_WINDOW), "the start is placed that finely"
        assert window.increases["c7"] == window.seconds
        assert window.coverage > 1 - 1 / POINTS_PER_WINDOW
    assert history.start is not None
    assert history.start <= 2 * HOUR - 1 - HOUR, "the longest window is covered in full"


def test_great_and_broken_increases_stay_exact() -> None:
    """However an increase is kept, and whatever it is added to when older points are thinned."""
    history, grown, totals = History((20.0, 200.0)), [dict.fromkeys("abcd", 0.0)], dict.fromkeys("abcd", 0.0)
    history.add(0.0, totals, {})
    for time in range(1, 400):
        grown.append({"a": 7.0, "b": 3e9, "c": 1.0 if time < 250 else 0.1, "d": 2.0**52 if time == 300 else 0.0})
        totals = {key: totals[key] + amount for key, amount in grown[-1].items()}
        history.add(float(time), totals, {})
        history.accumulate({f"own/{key}": amount for key, amount in grown[-1].items()})
    window = history.window(200.0)
    assert window is not None
    expected = {key: sum(one[key] for one in grown[int(window.start) + 1 :]) for key in totals}
    for own in ("", "own/"):
        found = {key: window.increases[own + key] for key in totals}
        assert found == expected | {"c": pytest.approx(expected["c"], rel=1e-9)}


@pytest.mark.parametrize("spike", range(200, 400, 7))
def test_a_peak_outlives_the_point_that_it_was_read_at(spike: int) -> None:
    history = History((20.0, 200.0))
    for time in range(400):
        history.add(float(time), {"c": float(time)}, {"g": 9.0 if time == spike else 1.0})
    window = history.window(200.0)
    assert window is not None
    assert window.peaks == {"g": 9.0 if window.start < spike else 1.0}


def test_without_windows_everything_is_kept() -> None:
    assert history_of(range(1000))._points.count == 1000


def test_a_past_stays_what_it_is():
    history = History([60.0])
    for time in range(0, 200, 5):
        history.add(float(time), {"a": 2.0 * time, "still": 7.0}, {"load": float(time % 50)})
        history.accumulate({"own/a": 1.0}, np.array([float(time)]))
    past = history.past()
    before = [past.window(60.0), past.window(), past.sums("own/"), past.steps(60.0, 4), past.coverage(60.0)]
    for time in range(200, 500, 5):
        history.add(float(time), {"a": 3.0 * time, "still": 8.0, "new": float(time)}, {"load": 99.0, "other": 1.0})
        history.accumulate({"own/a": 1.0, "own/b": 1.0}, np.array([float(time)]))
    again = [past.window(60.0), past.window(), past.sums("own/"), past.steps(60.0, 4), past.coverage(60.0)]
    assert repr(again) == repr(before)
    assert again[0].increases == {"a": 120.0, "still": 0.0, "own/a": 12.0}
    assert history.window(60.0).increases.keys() == {"a", "still", "new", "own/a", "own/b"}


def test_what_first_moves_later_was_zero_before():
    history = History()
    for time, late in ((0, 5.0), (1, 5.0), (2, 5.0), (3, 9.0), (4, 9.0)):
        history.add(float(time), {"late": late, "a": float(time)}, {})
    assert history.window(end=2.0).increases == {"late": 0.0, "a": 2.0}
    assert history.window().increases == {"late": 4.0, "a": 4.0}
    assert history.intervals(["late", "a"]).tolist() == [[0, 1], [4, 1], [0, 1]]
