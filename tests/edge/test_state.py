"""What a restart does to each figure, as README's table has it."""

import pytest

from edge.engines import Engine, of_process, trace
from edge.polled import OF_WINDOWS, PASSED_THROUGH, Polled
from prefixwatch.config import Config

TRACE = trace("thrash_low_usage")
HALF = len(TRACE) // 2


async def test_the_exporter_restarts(engine: Engine) -> None:
    async with Polled(engine, Config()) as before:
        await before.play(TRACE[:HALF])
        passed = {name: before.value(name) for name in PASSED_THROUGH - {"prompt_tokens_total"}}
        observed = before.value("requests_observed_total")
    async with Polled(engine, Config()) as after:
        await after.play(TRACE[HALF - 1 : HALF])
        assert {name: after.value(name) for name in passed} == passed, "passed through: no step"
        assert after.value("pool_filled") == 1
        assert after.value("requests_observed_total") is None
        assert after.exported() & OF_WINDOWS == {"window_coverage_ratio"}
        assert after.value("diagnosis", cause="eviction") is None

        await after.play(TRACE[HALF : HALF + 2])
        assert 0 < after.value("requests_observed_total") < observed
        assert after.exported() & OF_WINDOWS == {"window_coverage_ratio"}
        figures = after.status.snapshot(60).engines[0]
        assert figures.token_hit_ratio == pytest.approx(0.5, abs=0.5), "the page and the JSON have what was seen"
        await after.play(TRACE[HALF + 2 :])
        assert after.value("diagnosis", cause="eviction") == 1


async def test_the_engine_restarts(engine: Engine) -> None:
    async with Polled(engine, Config()) as polled:
        await polled.play(TRACE)
        tokens, observed = polled.value("hit_tokens_total"), polled.value("requests_observed_total")
        ratio = polled.value("token_hit_ratio", window="1m")
        end = TRACE[-1][0]
        pages = [(end + 1 + i, page) for i, (_, page) in enumerate(trace("healthy")[:2])]
        await polled.play([(time, of_process(page, end + 0.5)) for time, page in pages])
        assert polled.value("engine_restarts_total") == 1
        assert polled.value("hit_tokens_total") < tokens, "a reset, as the engine's own is"
        assert polled.value("requests_observed_total") >= observed, "the exporter's own go on"
        assert polled.value("token_hit_ratio", window="1m") == pytest.approx(ratio, abs=0.2), "and so do windows"
