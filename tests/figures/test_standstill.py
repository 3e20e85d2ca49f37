"""Frozen counters are told from traffic that only looks like it."""

from collections.abc import Iterable, Mapping

import pytest

from prefixwatch.figures.standstill import ALL_STAND_SECONDS, LOOKUPS_STAND_SECONDS, Standstill

FIRST = "time_to_first_token_seconds/count"
Poll = tuple[float, Mapping[str, float], Mapping[str, float]]  # time, what grew, gauges
LOOKED_UP = {"queried_tokens": 1000.0}


def reason(polls: Iterable[Poll], counters: Mapping[str, float] = LOOKED_UP) -> str | None:
    standstill = Standstill()
    for time, grown, gauges in polls:
        standstill.observe(time, grown, counters, gauges)
    return standstill.reason


def polls(until: float, grown: Mapping[str, float], *, start: float = 0.0, **gauges: float) -> list[Poll]:
    """Poll every 5 s, both ends included."""
    count = int((until - start) / 5)
    named = {f"requests_{name}": value for name, value in gauges.items()}
    return [(start + 5.0 * step, grown, named) for step in range(count + 1)]


BUSY = {"queried_tokens": 100.0, FIRST: 1.0, "prompt_tokens": 100.0}
SERVED = {FIRST: 1.0, "prompt_tokens": 100.0, "generation_tokens": 5.0}
DECODING = {"generation_tokens": 50.0}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(
            [*polls(0, BUSY, running=2), *polls(60, SERVED, start=5, running=2)],
            "frozen counters: 12 first tokens in 60 s without one lookup",
            id="first tokens come and nothing is looked up",
        ),
        pytest.param(
            [*polls(0, BUSY, running=2), *polls(120, {}, start=5, running=3)],
            "frozen counters: requests run, and no counter moved for 120 s",
            id="requests run and nothing moves",
        ),
        pytest.param(polls(120, {}, running=1), "frozen counters: requests run", id="from the first page on"),
    ],
)
def test_frozen(seen: list[Poll], expected: str) -> None:
    found = reason(seen)
    assert found is not None
    assert found.startswith(expected)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([], id="nothing read"),
        pytest.param(polls(300, BUSY, running=2), id="traffic"),
        pytest.param(polls(600, {}), id="idle"),
        pytest.param(polls(600, {}, waiting=3), id="a queue without a running request"),
        pytest.param([*polls(0, BUSY, running=2), *polls(600, DECODING, start=5, running=2)], id="a long decode"),
        pytest.param(
            [*polls(0, BUSY, running=1, waiting=2), *polls(55, {}, start=5, running=3),
             (60.0, {FIRST: 3.0, "prompt_tokens": 300.0}, {"requests_running": 3.0})],
            id="a long prefill of what was in flight",
        ),
        pytest.param([*polls(600, {}), (605.0, BUSY, {}), *polls(650, SERVED, start=610)], id="idle, then a burst"),
        pytest.param([*polls(0, BUSY), *polls(55, SERVED, start=5, running=1)], id="not for long enough yet"),
        pytest.param(
            [*polls(0, BUSY), *polls(55, SERVED, start=5), (60.0, BUSY, {})], id="a lookup at the last moment"
        ),
        pytest.param([*polls(0, BUSY), *polls(115, {}, start=5, running=1)], id="nothing moves, not long enough yet"),
        pytest.param(
            [*polls(115, {}, running=1), (116.0, DECODING, {"requests_running": 1.0}),
             *polls(230, {}, start=120, running=1)],
            id="something moved on the way",
        ),
        pytest.param([*polls(115, {}, running=1), (117.0, {}, {}), *polls(230, {}, start=120, running=1)], id="a pause"),
        pytest.param([*polls(300, {}), *polls(400, {}, start=305)], id="no gauge of running requests"),
    ],
)  # fmt: skip
def test_not_frozen(seen: list[Poll]) -> None:
    assert reason(seen) is None


@pytest.mark.parametrize("counters", [{"queried_tokens": 0.0}, {}], ids=["off", "not on the page"])
def test_an_engine_that_never_looks_up_is_not_frozen(counters: Mapping[str, float]) -> None:
    assert reason(polls(600, SERVED, running=2), counters) is None
    assert reason(polls(600, {}, running=2), counters) is None


@pytest.mark.parametrize("unit", ["tokens", "blocks", "units"])
def test_lookups_count_in_any_unit(unit: str) -> None:
    seen = [*polls(0, BUSY, running=1), *polls(60, SERVED, start=5, running=1)]
    assert reason(seen, {f"queried_{unit}": 9.0}) is not None
    moving = polls(60, {**SERVED, f"queried_{unit}": 1.0}, running=1)
    assert reason(moving, {f"queried_{unit}": 9.0}) is None


def test_a_restart_forgets() -> None:
    standstill = Standstill()
    for time, grown, gauges in polls(ALL_STAND_SECONDS, {}, running=1):
        standstill.observe(time, grown, LOOKED_UP, gauges)
    assert standstill.reason is not None
    standstill.reset()
    assert standstill.reason is None
    standstill.observe(ALL_STAND_SECONDS + 5, {}, LOOKED_UP, {"requests_running": 1.0})
    assert standstill.reason is None


def test_it_ends_with_the_first_lookup() -> None:
    frozen = [*polls(0, BUSY, running=2), *polls(LOOKUPS_STAND_SECONDS, SERVED, start=5, running=2)]
    assert reason(frozen) is not None
    assert reason([*frozen, (65.0, BUSY, {"requests_running": 2.0})]) is None
