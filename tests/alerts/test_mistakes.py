"""The mistakes that rules for this use are published with: each must fail on the same check that ours pass."""

from pathlib import Path

import pytest
from alerts.engines import Engine, Phase, idle, together, watched_twice
from alerts.promtool import Samples, check
from alerts.rulefiles import ALERTS, ENGINE_ONLY, RULES

MODEL = {"namespace": "chat", "model_name": "m"}
RATIO = "model:prefixwatch_hit_tokens_per_queried_token:ratio_rate5m"
TOKENS = "model:prefixwatch_queried_tokens:rate5m"
HITS, QUERIES = "prefixwatch_hit_tokens_total", "prefixwatch_queried_tokens_total"

CHANGED = together(Engine(phases=[Phase(minutes=60, ratio=0.9), Phase(minutes=30, ratio=0.2)]))
UNEQUAL = together(
    Engine(phases=[Phase(minutes=60, ratio=0.9, queried=9000)]),
    Engine(phases=[Phase(minutes=60, ratio=0.1, queried=1000)], target="gpu-2:8000"),
)
IDLE = together(Engine(phases=[Phase(minutes=60), idle(30)]))
SLOW = together(Engine(phases=[Phase(minutes=60, queried=30, ratio=0.8)]))
TWICE = together(
    *watched_twice(Engine(phases=[Phase(minutes=60, ratio=0.9)])),
    Engine(phases=[Phase(minutes=60, ratio=0.1)], target="gpu-2:8000"),
)
BY = "by (namespace, model_name)"

_OLD = {"job": "vllm", "instance": "gpu-1:8000", "model_name": "m", "engine": "0", "namespace": "chat"}


def _vllm(names: str, queries: int, hits: int, instance: str) -> dict[str, str]:
    labels = f'{{job="vllm",instance="{instance}",model_name="m",engine="0",namespace="chat"}}'
    return {
        f"vllm:{name}prefix_cache_{what}_total{labels}": f"0+{value}x60"
        for name in names.split()
        for what, value in (("queries", queries), ("hits", hits))
    } | {
        f"vllm:{name}prefix_cache_{what}_total{labels}": f"0+{value}x60"
        for name in ([""] if "new" in names else [])
        for what, value in (("queries", queries), ("hits", hits))
    }


TWINS = {
    **{
        f'vllm:{twin}prefix_cache_{what}_total{{job="vllm",instance="old:8000",model_name="m",engine="0",namespace="chat"}}': f"0+{grown}x60"
        for twin in ("", "gpu_")
        for what, grown in (("queries", 6000), ("hits", 600))
    },
    **{
        f'vllm:prefix_cache_{what}_total{{job="vllm",instance="new:8000",model_name="m",engine="0",namespace="chat"}}': f"0+{grown}x60"
        for what, grown in (("queries", 6000), ("hits", 5400))
    },
}


@pytest.mark.parametrize(
    ("record", "peers", "series", "at", "truth"),
    [
        pytest.param(
            RATIO, f"sum {BY} ({HITS}) / sum {BY} ({QUERIES})", CHANGED, "85m", [(MODEL, 0.2)],
            id="lifetime ratio: the past outweighs the present",
        ),
        pytest.param(
            RATIO, f"avg {BY} (rate({HITS}[5m]) / rate({QUERIES}[5m]))", UNEQUAL, "50m", [(MODEL, 0.82)],
            id="average of ratios: an idle replica counts as much as a busy one",
        ),
        pytest.param(
            RATIO, f"sum {BY} (rate({HITS}[5m])) / (sum {BY} (rate({QUERIES}[5m])) > 0) or sum {BY} (rate({QUERIES}[5m])) * 0",
            IDLE, "80m", [], id="idle as zero: no traffic looks like no hits",
        ),
        pytest.param(
            RATIO, f"sum {BY} (rate({HITS}[5m])) / sum {BY} (rate({QUERIES}[5m]))",
            IDLE, "80m", [], id="unguarded: idle is NaN, and poisons every sum",
        ),
        pytest.param(
            RATIO, f"sum {BY} (rate({HITS}[5m])) / clamp_min(sum {BY} (rate({QUERIES}[5m])), 1)", SLOW, "50m", [(MODEL, 0.8)],
            id="clamp_min on a rate: below a token a second the ratio shrinks",
        ),
        pytest.param(
            RATIO, f"sum {BY} (rate({QUERIES}[5m])) / (sum {BY} (rate({HITS}[5m])) > 0)", CHANGED, "50m", [(MODEL, 0.9)],
            id="upside-down ratio",
        ),
        pytest.param(
            RATIO, f"sum {BY} (rate({HITS}[5m])) / sum {BY} (rate({QUERIES}[5m]))", TWICE, "50m", [(MODEL, 0.5)],
            id="an engine counted twice: it weighs as two",
        ),
        pytest.param(
            TOKENS, f"sum {BY} (rate({QUERIES}[5m]))", TWICE, "50m", [(MODEL, 200.0)],
            id="an engine counted twice: its tokens too",
        ),
        pytest.param(
            "model:vllm_prefix_cache_queries:rate5m",
            f'sum {BY} (rate({{__name__=~"vllm:(gpu_)?prefix_cache_queries_total"}}[5m]))', TWINS, "50m", [(MODEL, 200.0)],
            id="twins added: tokens twice",
        ),
        pytest.param(
            "model:vllm_prefix_cache_hits_per_query:ratio_rate5m",
            f'sum {BY} (rate({{__name__=~"vllm:(gpu_)?prefix_cache_hits_total"}}[5m]))'
            f' / sum {BY} (rate({{__name__=~"vllm:(gpu_)?prefix_cache_queries_total"}}[5m]))',
            TWINS, "50m", [(MODEL, 0.5)], id="twins added: the old release weighs as two",
        ),
    ],
)  # fmt: skip
def test_the_mistake_fails_where_ours_passes(
    tmp_path: Path, record: str, peers: str, series: dict[str, str], at: str, truth: Samples
) -> None:
    def rounded(expr: str) -> str:
        return f"round({expr}, 0.0001)"

    check(series, rules=[ALERTS / RULES, ALERTS / ENGINE_ONLY], queries=[(rounded(record), at, truth)])
    with pytest.raises(AssertionError, match="FAILED"):
        check(series, rules=[ALERTS / RULES], queries=[(rounded(peers), at, truth)])
