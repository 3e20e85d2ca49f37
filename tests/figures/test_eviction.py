"""The pool: its size, what is written into it, how fast it is written over, whether it was ever full."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.figures import eviction
from prefixwatch.figures.figure import Absent
from prefixwatch.page.reading import CacheConfig

SOURCE = "prompt_tokens_by_source/"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(CacheConfig(num_gpu_blocks=200, block_size=32), 6400, id="blocks"),
        pytest.param(CacheConfig(num_gpu_blocks=320, block_size=8, kv_cache_size_tokens=463_459), 463_459, id="stated"),
        pytest.param(CacheConfig(num_gpu_blocks=320, block_size=8, is_hybrid=True), "a hybrid model", id="hybrid"),
        pytest.param(CacheConfig(num_gpu_blocks=320), "the page does not state the size", id="no block size"),
        pytest.param(CacheConfig(block_size=16), "the page does not state the size", id="no blocks"),
    ],
)
def test_pool_tokens(config: CacheConfig, expected: int | str) -> None:
    found = eviction.pool_tokens(config)
    if isinstance(expected, str):
        assert isinstance(found, Absent)
        assert found.reason.startswith(expected)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("increases", "expected"),
    [
        pytest.param(
            {SOURCE + "computed": 70, SOURCE + "local_cache": 200, SOURCE + "external": 20, "generation_tokens": 5},
            95,
            id="computed, loaded from outside and generated",
        ),
        pytest.param(
            {SOURCE + "computed": 70, SOURCE + "new": 3, "generation_tokens": 5}, 78, id="an unknown source is written"
        ),
        pytest.param({"prompt_tokens": 100, "cached_prompt_tokens": 60, "generation_tokens": 5}, 45, id="first tokens"),
        pytest.param(
            {"request_prompt_tokens/sum": 100, "request_computed_tokens/sum": 30, "generation_tokens": 5},
            35,
            id="finish",
        ),
        pytest.param({"prompt_tokens": 100, "hit_tokens": 60, "generation_tokens": 5}, 45, id="the counter pair"),
        pytest.param({"prompt_tokens": 100, "hit_tokens": 160, "generation_tokens": 5}, 5, id="more hits than prompt"),
        pytest.param(
            {"prompt_tokens": 100, "cached_prompt_tokens": 160, "generation_tokens": 5},
            5,
            id="a torn page writes nothing",
        ),
        pytest.param({"prompt_tokens": 100, "hit_tokens": 60}, "no generation tokens", id="no generation"),
        pytest.param({"prompt_tokens": 100, "generation_tokens": 5}, "no counters that tell", id="nothing on cached"),
    ],
)
def test_written_tokens(increases: Mapping[str, float], expected: float | str) -> None:
    found = eviction.written_tokens(increases)
    if isinstance(expected, str):
        assert isinstance(found, Absent)
        assert found.reason.startswith(expected)
    else:
        assert found == expected


_KEYS = (
    "generation_tokens", "prompt_tokens", "cached_prompt_tokens", "hit_tokens", "request_prompt_tokens/sum",
    "request_computed_tokens/sum", *(SOURCE + source for source in ("computed", "local_cache", "external", "new")),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(_KEYS), st.integers(0, 10**12).map(float)))
def test_what_is_written_never_falls(increases: dict[str, float]) -> None:
    found = eviction.written_tokens(increases)
    assert isinstance(found, Absent) or found >= 0


@pytest.mark.parametrize(
    ("pool", "written", "seconds", "expected"),
    [
        pytest.param(6400, 3200.0, 10.0, 20.0, id="pool over written a second"),
        pytest.param(Absent("no pool"), 1.0, 1.0, "no pool", id="pool unknown"),
        pytest.param(1, Absent("no tokens"), 1.0, "no tokens", id="written unknown"),
        pytest.param(1, 1.0, Absent("no time"), "no time", id="one page"),
        pytest.param(1, 0.0, 1.0, "nothing was written into the pool", id="nothing written"),
    ],
)
def test_turnover(
    pool: float | Absent, written: float | Absent, seconds: float | Absent, expected: float | str
) -> None:
    found = eviction.turnover_seconds(pool, written, seconds)
    assert found == (Absent(expected) if isinstance(expected, str) else expected)


@pytest.mark.parametrize(
    ("computed", "was_emptied", "expected"),
    [
        pytest.param(99, False, False, id="less than the pool holds"),
        pytest.param(100, False, True, id="as much as it holds"),
        pytest.param(100, True, None, id="slept or cleared: unknown"),
        pytest.param(None, False, None, id="written unknown"),
    ],
)
def test_pool_filled(computed: int | None, was_emptied: bool, expected: bool | None) -> None:
    counters = {"generation_tokens": 0.0}
    if computed is not None:
        counters |= {"prompt_tokens": computed + 500.0, "cached_prompt_tokens": 500.0}
    found = eviction.is_pool_filled(100, counters, was_emptied=was_emptied)
    assert (None if isinstance(found, Absent) else found) is expected


def test_pool_filled_is_unknown_where_the_pool_is() -> None:
    assert eviction.is_pool_filled(Absent("why"), {}, was_emptied=True) == Absent("why")


@pytest.mark.parametrize(
    ("gauges", "expected"),
    [
        pytest.param({}, False, id="not stated"),
        pytest.param({"sleep_state/awake": 1.0, "sleep_state/discard_all": 0.0}, False, id="awake"),
        pytest.param({"sleep_state/awake": 0.0, "sleep_state/discard_all": 1.0}, True, id="level 2"),
        pytest.param({"sleep_state/weights_offloaded": 1.0}, True, id="level 1"),
    ],
)
def test_sleep(gauges: Mapping[str, float], expected: bool) -> None:
    assert eviction.is_asleep(gauges) is expected
