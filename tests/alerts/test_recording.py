"""The recorded figures: each engine once, sums at every level, idle absent, whoever scrapes and wherever it is evaluated."""

from dataclasses import replace

import pytest

from alerts.engines import RESTART, Engine, Phase, gone, idle, together, watched_twice
from alerts.promtool import Batch, Case, Query, Samples
from alerts.rulefiles import RULES, records

MODEL = {"namespace": "chat", "model_name": "m"}
ONE = Engine(phases=[Phase(minutes=60, queried=6000, ratio=0.9)])
TWO = Engine(phases=[Phase(minutes=60, queried=2000, ratio=0.1)], target="gpu-2:8000")
BATCH = Batch()


def gives(record: str, samples: Samples, at: str = "50m") -> Query:
    return f"round({record}, 0.0001)", at, samples


def tokens(level: str) -> str:
    return f"{level}:prefixwatch_queried_tokens:rate5m"


def ratio(level: str, window: str = "5m") -> str:
    return f"{level}:prefixwatch_hit_tokens_per_queried_token:ratio_rate{window}"


BATCH.add(
    "replicas add up at every level, and ratios come last",
    Case(
        series=together(ONE, TWO),
        queries=[
            gives(tokens("engine"), [(ONE.labels, 100.0), (TWO.labels, 33.3333)]),
            gives(tokens("model"), [(MODEL, 133.3333)]), gives(tokens("fleet"), [({}, 133.3333)]),
            gives(ratio("engine"), [(ONE.labels, 0.9), (TWO.labels, 0.1)]),
            gives(ratio("model"), [(MODEL, 0.7)]), gives(ratio("fleet"), [({}, 0.7)]),
        ],
    ),
)  # fmt: skip
BATCH.add(
    "a sidecar and a central exporter that watch one engine are one engine",
    Case(
        series=together(*watched_twice(ONE), TWO),
        queries=[gives(tokens("model"), [(MODEL, 133.3333)]), gives(ratio("model"), [(MODEL, 0.7)])],
    ),
)
HERE, THERE = {"cluster": "west", "prometheus_replica": "a"}, {"cluster": "east", "prometheus_replica": "a"}
BATCH.add(
    "over clusters and pairs of Prometheus, as Thanos and Mimir see them",
    Case(
        series=together(
            replace(ONE, extra=HERE), replace(ONE, extra={**HERE, "prometheus_replica": "b"}), replace(TWO, extra=THERE)
        ),
        queries=[
            gives(tokens("engine"), [({**ONE.labels, "cluster": "west"}, 100.0), ({**TWO.labels, "cluster": "east"}, 33.3333)]),
            gives(tokens("model"), [({**MODEL, "cluster": "west"}, 100.0), ({**MODEL, "cluster": "east"}, 33.3333)]),
            gives(tokens("fleet"), [({"cluster": "west"}, 100.0), ({"cluster": "east"}, 33.3333)]),
            gives(f"sum({tokens('fleet')})", [({}, 133.3333)]),
        ],
    ),
)  # fmt: skip
BATCH.add(
    "an idle engine is absent from ratios, and 0 in sums",
    Case(
        series=together(ONE, replace(TWO, phases=[idle(60)])),
        queries=[
            gives(ratio("engine"), [(ONE.labels, 0.9)]), gives(ratio("model"), [(MODEL, 0.9)]),
            gives(tokens("engine"), [(ONE.labels, 100.0), (TWO.labels, 0.0)]),
        ],
    ),
)  # fmt: skip
BATCH.add(
    "nobody asks: no ratio at all, and no NaN",
    Case(
        series=together(replace(ONE, phases=[idle(60)])),
        queries=[gives(ratio(level), []) for level in ("engine", "model", "fleet")],
    ),
)
BATCH.add(
    "a restart and an exporter that is replaced change nothing",
    Case(
        series=together(
            Engine(phases=[Phase(minutes=30), Phase(minutes=30, kind=RESTART)]),
            replace(TWO, phases=[Phase(minutes=30), gone(30)], extra={"instance": "old"}),
            replace(TWO, phases=[gone(30), Phase(minutes=30)], extra={"instance": "new"}),
        ),
        queries=[gives(ratio("model", "1h"), [(MODEL, 0.8)], "55m")],
    ),
)
BATCH.add(
    "cached prompt tokens: engines that do not say where they came from are left out",
    Case(
        series={
            **together(ONE),
            'prefixwatch_prompt_tokens_total{namespace="chat",target="old:8000",model_name="m",engine="0",source="unsplit"}': "0+6000x60",
        },
        queries=[
            gives("model:prefixwatch_cached_prompt_tokens_per_prompt_token:ratio_rate5m", [(MODEL, 0.9)]),
            gives("model:prefixwatch_prompt_tokens:rate5m", [(MODEL, 200.0)]),
        ],
    ),
)
BOUNDS = {"lower": 0.4, "estimate": 0.5, "upper": 0.7}
BATCH.add(
    "request level keeps its bounds",
    Case(
        series={
            **together(ONE),
            **{
                f'prefixwatch_request_hit_ratio_sum_total{{namespace="chat",target="gpu-1:8000",model_name="m",engine="0",bound="{bound}"}}': f"0+{12 * value:g}x60"
                for bound, value in BOUNDS.items()
            },
        },
        queries=[
            gives(
                "model:prefixwatch_request_hit_ratio_sum_per_observed_request:ratio_rate5m",
                [({**MODEL, "bound": bound}, value) for bound, value in BOUNDS.items()],
            )
        ],
    ),
)
VLLM = {"job": "vllm", "model_name": "m", "namespace": "chat"}


def vllm(name: str, grown: float, **labels: str) -> dict[str, str]:
    inside = ",".join(f'{key}="{value}"' for key, value in {**VLLM, **labels}.items())
    return {f"vllm:{name}_total{{{inside}}}": f"0+{grown}x60"}


BATCH.add(
    "without the exporter: blocks of an old engine are not added to the tokens of a new one",
    Case(
        series=vllm("prefix_cache_queries", 6000, instance="new:8000", engine="0")
        | vllm("prefix_cache_hits", 5400, instance="new:8000", engine="0")
        | vllm("gpu_prefix_cache_queries", 100, instance="old:8000")
        | vllm("gpu_prefix_cache_hits", 50, instance="old:8000"),
        queries=[
            gives(
                "engine:vllm_prefix_cache_hits_per_query:ratio_rate5m",
                [({**VLLM, "instance": "new:8000", "engine": "0"}, 0.9), ({**VLLM, "instance": "old:8000"}, 0.5)],
            ),
            gives("model:vllm_prefix_cache_hits_per_query:ratio_rate5m", [(MODEL, 0.9)]),
            gives("model:vllm_prefix_cache_queries:rate5m", [(MODEL, 100.0)]),
        ],
    ),
)
BATCH.add(
    "without the exporter: a fleet of old engines has a ratio of blocks",
    Case(
        series=vllm("gpu_prefix_cache_queries", 100, instance="old:8000")
        | vllm("gpu_prefix_cache_hits", 50, instance="old:8000"),
        queries=[gives("model:vllm_prefix_cache_hits_per_query:ratio_rate5m", [(MODEL, 0.5)])],
    ),
)


@pytest.mark.parametrize("title", BATCH.cases)
def test_figures(title: str) -> None:
    fault = BATCH.fault(title)
    assert not fault, fault


def test_every_level_has_every_ratio() -> None:
    names = records(RULES)
    for name in names:
        if name.startswith("engine:") and "ratio_rate" in name:
            assert {name.replace("engine:", f"{level}:", 1) for level in ("model", "fleet")} <= names.keys()
