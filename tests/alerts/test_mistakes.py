"""The mistakes that rules for this use are published with: each must fail on the same check that ours pass."""

import pytest

from alerts.engines import Engine, Phase, idle, together, watched_twice
from alerts.promtool import Batch, Case

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
ADDED = f"(sum {BY} (rate(vllm:prefix_cache_{{0}}_total[5m])) + sum {BY} (rate(vllm:gpu_prefix_cache_{{0}}_total[5m])))"


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


PEERS = [
    (
        RATIO, f"sum {BY} ({HITS}) / sum {BY} ({QUERIES})", CHANGED, "85m", [(MODEL, 0.2)],
        "lifetime ratio: the past outweighs the present",
    ),
    (
        RATIO, f"avg {BY} (rate({HITS}[5m]) / rate({QUERIES}[5m]))", UNEQUAL, "50m", [(MODEL, 0.82)],
        "average of ratios: an idle replica counts as much as a busy one",
    ),
    (
        RATIO, f"sum {BY} (rate({HITS}[5m])) / (sum {BY} (rate({QUERIES}[5m])) > 0) or sum {BY} (rate({QUERIES}[5m])) * 0",
        IDLE, "80m", [], "idle as zero: no traffic looks like no hits",
    ),
    (
        RATIO, f"sum {BY} (rate({HITS}[5m])) / sum {BY} (rate({QUERIES}[5m]))",
        IDLE, "80m", [], "unguarded: idle is NaN, and poisons every sum",
    ),
    (
        RATIO, f"sum {BY} (rate({HITS}[5m])) / clamp_min(sum {BY} (rate({QUERIES}[5m])), 1)", SLOW, "50m", [(MODEL, 0.8)],
        "clamp_min on a rate: below a token a second the ratio shrinks",
    ),
    (
        RATIO, f"sum {BY} (rate({QUERIES}[5m])) / (sum {BY} (rate({HITS}[5m])) > 0)", CHANGED, "50m", [(MODEL, 0.9)],
        "upside-down ratio",
    ),
    (
        RATIO, f"sum {BY} (rate({HITS}[5m])) / sum {BY} (rate({QUERIES}[5m]))", TWICE, "50m", [(MODEL, 0.5)],
        "an engine counted twice: it weighs as two",
    ),
    (
        TOKENS, f"sum {BY} (rate({QUERIES}[5m]))", TWICE, "50m", [(MODEL, 200.0)],
        "an engine counted twice: its tokens too",
    ),
    (
        "model:vllm_prefix_cache_queries:rate5m",
        ADDED.format("queries"), TWINS, "50m", [(MODEL, 200.0)],
        "twins added: tokens twice",
    ),
    (
        "model:vllm_prefix_cache_hits_per_query:ratio_rate5m",
        f"{ADDED.format('hits')} / {ADDED.format('queries')}", TWINS, "50m", [(MODEL, 0.5)], "twins added: the old release weighs as two",
    ),
]  # fmt: skip

BATCH = Batch()
for record, peers, series, at, truth, mistake in PEERS:
    for whose, expr in (("ours", record), ("peers", peers)):
        BATCH.add(f"{whose}: {mistake}", Case(series=series, queries=[(f"round({expr}, 0.0001)", at, truth)]))


@pytest.mark.parametrize("mistake", [mistake for *_, mistake in PEERS])
def test_the_mistake_fails_where_ours_passes(mistake: str) -> None:
    assert not BATCH.fault(f"ours: {mistake}")
    assert "exp:" in BATCH.fault(f"peers: {mistake}")
