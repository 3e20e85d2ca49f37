"""Ratios of token counters: each definition, and each reason to be absent."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.figures import ratios
from prefixwatch.figures.figure import Absent

Increases = Mapping[str, float]
SOURCE = "prompt_tokens_by_source/"
FIRST = "time_to_first_token_seconds/count"


@pytest.mark.parametrize(
    ("increases", "expected"),
    [
        pytest.param({"queried_tokens": 100, "hit_tokens": 70}, 0.7, id="tokens"),
        pytest.param({"queried_blocks": 50, "hit_blocks": 10}, 0.2, id="blocks do as well"),
        pytest.param({"queried_units": 8, "hit_units": 2}, 0.25, id="and a unit that nobody knows"),
        pytest.param({"queried_tokens": 57, "hit_tokens": 0}, 0.0, id="nothing found is a measured zero"),
        pytest.param({"queried_tokens": 0, "hit_tokens": 0}, "nothing was looked up", id="no queries"),
        pytest.param({}, "no usable lookup counters on this page", id="no counters"),
        pytest.param({"hit_tokens": 1}, "no usable queries counter on this page", id="hits alone"),
        pytest.param({"queried_tokens": 1}, "no usable hits counter on this page", id="queries alone"),
        pytest.param({"queried_tokens": 5, "hit_tokens": 6}, "more hits than queries", id="torn"),
    ],
)
def test_token_hit_ratio(increases: Increases, expected: float | str) -> None:
    assert_is(ratios.token_hit_ratio(increases), expected)


RETRIED = {
    "queried_tokens": 1000.0, "hit_tokens": 900.0, "prompt_tokens": 400.0, FIRST: 4.0,
    SOURCE + "computed": 300.0, SOURCE + "local_cache": 100.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "options", "expected"),
    [
        pytest.param({}, {}, 0.25, id="the first-token group gives the ratio"),
        pytest.param({}, {"may_retry": False}, 0.9, id="a release that counts once is believed"),
        pytest.param({}, {"running": 5.6}, 0.9, id="requests in flight explain 560 queries more"),
        pytest.param({}, {"running": 5.5}, 0.25, id="but not one less"),
        pytest.param({"queried_tokens": 440.0, "hit_tokens": 110.0}, {}, 0.25, id="a tenth more is within the margin"),
        pytest.param({"queried_tokens": 441.0, "hit_tokens": 0.0}, {}, 0.25, id="beyond the margin"),
        pytest.param({SOURCE + "computed": None, SOURCE + "local_cache": None}, {}, 0.9, id="no first-token group"),
        pytest.param({SOURCE + "computed": None}, {}, 0.9, id="only what was cached: no group"),
        pytest.param({FIRST: 0.0}, {}, 0.9, id="no first token: all is in flight"),
        pytest.param({"prompt_tokens": None}, {}, 0.9, id="no prompt tokens to compare with"),
        pytest.param({SOURCE + "external": 100.0}, {}, 0.2, id="external tokens are no local hits"),
    ],
)
def test_retried_lookups(changes: dict[str, float | None], options: dict[str, float], expected: float) -> None:
    increases = {key: value for key, value in {**RETRIED, **changes}.items() if value is not None}
    assert ratios.token_hit_ratio(increases, **options) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("figure", "increases", "expected"),
    [
        pytest.param(
            ratios.external_hit_ratio, {"external_queried_tokens": 20, "external_hit_tokens": 10}, 0.5, id="external"
        ),
        pytest.param(ratios.external_hit_ratio, {}, "no KV connector on this page", id="external: no connector"),
        pytest.param(
            ratios.external_hit_ratio,
            {"external_queried_tokens": 0, "external_hit_tokens": 0},
            "nothing was looked up in a KV connector",
            id="external: no queries",
        ),
        pytest.param(
            ratios.external_hit_ratio,
            {"external_queried_tokens": 1, "external_hit_tokens": 2},
            "more hits than queries",
            id="external: torn",
        ),
        pytest.param(
            ratios.cached_prompt_ratio,
            {SOURCE + "computed": 80, SOURCE + "local_cache": 100, SOURCE + "external": 20, "prompt_tokens": 999},
            0.6,
            id="cached: the sources divide among themselves",
        ),
        pytest.param(
            ratios.cached_prompt_ratio,
            {SOURCE + "computed": 50, SOURCE + "local_cache": 30, SOURCE + "host_cache": 20},
            0.3,
            id="cached: an unknown source is a part of the whole, and no hit",
        ),
        pytest.param(
            ratios.cached_prompt_ratio,
            {SOURCE + "local_cache": 100, "prompt_tokens": 400, "cached_prompt_tokens": 100},
            0.25,
            id="cached: sources that are all cached are not the whole",
        ),
        pytest.param(
            ratios.cached_prompt_ratio, {"cached_prompt_tokens": 3, "prompt_tokens": 4}, 0.75, id="cached: first tokens"
        ),
        pytest.param(
            ratios.cached_prompt_ratio,
            {"request_prompt_tokens/sum": 100, "request_computed_tokens/sum": 25},
            0.75,
            id="cached: at finish",
        ),
        pytest.param(ratios.cached_prompt_ratio, {"prompt_tokens": 4}, "no cached prompt tokens", id="cached: before"),
        pytest.param(
            ratios.cached_prompt_ratio, {"cached_prompt_tokens": 0, "prompt_tokens": 0}, "no prompt tokens", id="idle"
        ),
        pytest.param(
            ratios.cached_prompt_ratio,
            {"cached_prompt_tokens": 5, "prompt_tokens": 4},
            "more cached than prompt tokens",
            id="cached: torn",
        ),
        pytest.param(ratios.output_per_prompt_token, {"generation_tokens": 30, "prompt_tokens": 60}, 0.5, id="output"),
        pytest.param(
            ratios.output_per_prompt_token,
            {"generation_tokens": 30, SOURCE + "computed": 40, SOURCE + "local_cache": 20},
            0.5,
            id="output: the sources make up for the total",
        ),
        pytest.param(ratios.output_per_prompt_token, {"prompt_tokens": 1}, "no generation tokens", id="output: none"),
        pytest.param(
            ratios.output_per_prompt_token, {"generation_tokens": 1}, "no prompt tokens counter", id="output: prompts"
        ),
        pytest.param(
            ratios.output_per_prompt_token,
            {"generation_tokens": 9, "prompt_tokens": 0},
            "no prompt tokens",
            id="decode",
        ),
        pytest.param(
            ratios.prompt_tokens_per_request,
            {"request_prompt_tokens/sum": 900, "request_prompt_tokens/count": 3, "prompt_tokens": 1, FIRST: 1},
            300.0,
            id="mean prompt",
        ),
        pytest.param(
            ratios.prompt_tokens_per_request, {"prompt_tokens": 600, FIRST: 3}, 200.0, id="mean prompt: first tokens"
        ),
        pytest.param(
            ratios.prompt_tokens_per_request,
            {"request_prompt_tokens/sum": 0, "request_prompt_tokens/count": 0},
            "no request",
            id="mean prompt: none",
        ),
        pytest.param(ratios.prompt_tokens_per_request, {}, "no count of requests", id="mean prompt: unknown"),
        pytest.param(
            ratios.prefill_share, {"prefill_seconds/sum": 1, "inference_seconds/sum": 4}, 0.25, id="prefill share"
        ),
        pytest.param(
            ratios.prefill_share, {"prefill_seconds/sum": 5, "inference_seconds/sum": 4}, 1.0, id="never above 1"
        ),
        pytest.param(ratios.prefill_share, {"prefill_seconds/sum": 1}, "no prefill and inference", id="no inference"),
        pytest.param(ratios.prefill_share, {"inference_seconds/sum": 1}, "no prefill and inference", id="no prefill"),
        pytest.param(
            ratios.prefill_share,
            {"prefill_seconds/sum": 0, "inference_seconds/sum": 0},
            "no request finished",
            id="prefill share: idle",
        ),
        pytest.param(
            ratios.requests_finished,
            {"requests_finished/stop": 3, "requests_finished/abort": 2, "request_prompt_tokens/count": 4},
            5.0,
            id="finished for whatever reason",
        ),
        pytest.param(ratios.requests_finished, {"request_prompt_tokens/count": 4}, 4.0, id="finished: the histogram"),
        pytest.param(ratios.requests_finished, {}, "no count of finished requests", id="finished: unknown"),
        pytest.param(ratios.prompt_tokens_by_source, {"prompt_tokens": 3}, "no prompt tokens by source", id="sources"),
    ],
)
def test_definitions(
    figure: Callable[[Increases], float | Absent], increases: Increases, expected: float | str
) -> None:
    assert_is(figure(increases), expected)


def test_an_unknown_source_is_kept_under_its_own_name() -> None:
    increases = {SOURCE + "computed": 1.0, SOURCE + "from_the_moon": 2.0, "prompt_tokens": 3.0}
    assert ratios.prompt_tokens_by_source(increases) == {"computed": 1.0, "from_the_moon": 2.0}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([(2015, 0), (8015, 7168), (32015, 28672), (47074, 46592)], [0, 0.8943, 0.8956, 0.9898], id="3584"),
        pytest.param([(1024, 0), (1025, 1024), (2047, 1024), (4096, 3072)], [0, 0.9990, 0.5002, 0.7500], id="1024"),
    ],
)
def test_large_blocks(steps: list[tuple[int, int]], expected: list[float]) -> None:
    """Cases people reported: 0 means "shorter than one block" here, not "broken"."""
    found = [ratios.token_hit_ratio({"queried_tokens": queried, "hit_tokens": hit}) for queried, hit in steps]
    assert found == pytest.approx(expected, abs=5e-5)


_KEYS = (
    *(f"{part}_{unit}" for part in ("queried", "hit") for unit in ratios.LOOKUP_UNITS),
    "external_queried_tokens", "external_hit_tokens", "prompt_tokens", "cached_prompt_tokens", "generation_tokens",
    "request_prompt_tokens/sum", "request_computed_tokens/sum", "prefill_seconds/sum", "inference_seconds/sum", FIRST,
    *(SOURCE + source for source in ("computed", "local_cache", "external", "new")),
)  # fmt: skip
_AMOUNTS = st.one_of(st.just(0.0), st.integers(0, 100).map(float), st.floats(0, 1e15, allow_subnormal=False))


@given(st.dictionaries(st.sampled_from(_KEYS), _AMOUNTS), st.integers(0, 50), st.booleans())
def test_a_ratio_is_within_0_and_1_or_absent(increases: dict[str, float], running: int, may_retry: bool) -> None:
    found = (
        ratios.token_hit_ratio(increases, running=running, may_retry=may_retry),
        ratios.external_hit_ratio(increases),
        ratios.cached_prompt_ratio(increases),
        ratios.prefill_share(increases),
    )
    for value in found:
        assert (isinstance(value, Absent) and value.reason) or 0.0 <= value <= 1.0


def assert_is(found: float | Absent, expected: float | str) -> None:
    """Compare a figure; a text is how the reason begins."""
    if isinstance(expected, str):
        assert isinstance(found, Absent)
        assert found.reason.startswith(expected)
    else:
        assert found == pytest.approx(expected)
