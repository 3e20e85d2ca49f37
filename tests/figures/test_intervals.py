"""What one poll interval says of its requests, from the best group of counters that the page has."""

from collections.abc import Mapping

import pytest

from prefixwatch.figures.intervals import grain_of, pool_of
from prefixwatch.figures.pooled import Pool
from prefixwatch.page.reading import CacheConfig
from readings import histogram

EDGES = (10.0, 100.0)
FINISHED = {
    **histogram("request_prompt_tokens", [50, 200, 300], EDGES),
    **histogram("request_computed_tokens", [5, 8, 300], EDGES),
}
FIRST_TOKENS = {"time_to_first_token_seconds/count": 4.0, "prompt_tokens": 400.0, "cached_prompt_tokens": 100.0}
COUNT_ALONE = {"time_to_first_token_seconds/count": 4.0, "prompt_tokens": 400.0}
OF_FINISHED = Pool(
    requests=3, prompt_tokens=550.0, computed_tokens=313.0, prompt_counts=(0, 1, 2), computed_counts=(2, 0, 1),
    prompt_edges=EDGES, computed_edges=EDGES,
)  # fmt: skip


@pytest.mark.parametrize(
    ("increases", "expected"),
    [
        pytest.param(FINISHED, OF_FINISHED, id="both histograms"),
        pytest.param({**FINISHED, **FIRST_TOKENS}, OF_FINISHED, id="the finish group comes first"),
        pytest.param(FIRST_TOKENS, Pool(requests=4, prompt_tokens=400.0, computed_tokens=300.0), id="first tokens"),
        pytest.param(
            {**histogram("request_prompt_tokens", [50], EDGES), **FIRST_TOKENS},
            Pool(requests=4, prompt_tokens=400.0, computed_tokens=300.0),
            id="one histogram of two is not enough",
        ),
        pytest.param(
            {**histogram("request_prompt_tokens", [50], EDGES), **COUNT_ALONE},
            Pool(requests=1, prompt_tokens=None, computed_tokens=None),
            id="the number of finished requests",
        ),
        pytest.param(COUNT_ALONE, Pool(requests=4, prompt_tokens=None, computed_tokens=None), id="of first tokens"),
        pytest.param({"queried_tokens": 5.0}, None, id="nothing on requests"),
    ],
)
def test_pool(increases: Mapping[str, float], expected: Pool | None) -> None:
    assert pool_of(increases) == expected


def test_a_page_without_buckets_has_the_sums() -> None:
    found = pool_of({key: value for key, value in FINISHED.items() if "/le/" not in key})
    assert found is not None
    assert (found.requests, found.prompt_counts, found.computed_counts) == (3, None, None)
    assert (found.prompt_tokens, found.computed_tokens) == (550.0, 313.0)


@pytest.mark.parametrize(
    ("samples", "surplus"),
    [
        pytest.param({}, 0, id="not stated"),
        pytest.param({"samples_per_request/sum": 3.0, "samples_per_request/count": 3.0}, 0, id="one each"),
        pytest.param({"samples_per_request/sum": 7.0, "samples_per_request/count": 3.0}, 4, id="four more"),
        pytest.param({"samples_per_request/sum": 2.0, "samples_per_request/count": 3.0}, 0, id="torn"),
        pytest.param({"samples_per_request/sum": 7.0}, 0, id="half of it"),
    ],
)
def test_further_samples_of_a_request(samples: Mapping[str, float], surplus: int) -> None:
    found = pool_of({**FINISHED, **samples})
    assert found is not None
    assert found.surplus == surplus


@pytest.mark.parametrize(
    ("config", "counters", "expected"),
    [
        pytest.param(CacheConfig(cache_hit_alignment_tokens=16, block_size=32), {}, 16, id="stated alignment"),
        pytest.param(CacheConfig(effective_attention_block_size=32, block_size=32), {}, 32, id="stated block"),
        pytest.param(CacheConfig(block_size=32), {}, 1, id="before 0.32 it is not certain"),
        pytest.param(CacheConfig(cache_hit_alignment_tokens=16, is_hybrid=True), {}, 1, id="hybrid"),
        pytest.param(
            CacheConfig(cache_hit_alignment_tokens=16),
            {"external_queried_tokens": 5.0},
            1,
            id="a KV connector was asked",
        ),
        pytest.param(
            CacheConfig(cache_hit_alignment_tokens=16),
            {"external_queried_tokens": 0.0},
            16,
            id="a connector never asked",
        ),
    ],
)
def test_grain(config: CacheConfig, counters: Mapping[str, float], expected: int) -> None:
    assert grain_of(config, counters) == expected
