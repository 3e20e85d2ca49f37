"""Recording rules for people without the exporter: token ratios from vLLM's own counters.

Before 0.9 vLLM had `gpu_prefix_cache_*` alone, in blocks; 0.9 to 0.11 repeat the tokens under that
name. So the old name counts only where the new one is missing, the two are never added, and
blocks are not added to tokens.
"""

from collections.abc import Iterator

from rulebook.document import Group, Record, query
from rulebook.recording import ALL, FLEET, MODEL
from rulebook.settings import Settings

ENGINE = "cluster, namespace, job, instance, model_name, engine"
_NAMES = {"queries": "prefix_cache_queries", "hits": "prefix_cache_hits"}
_ABSENT_WHEN_IDLE = "Ratio of sums; absent, not NaN and not 0, when idle."


def groups(settings: Settings) -> list[Group]:
    """Return the rules, one group a window."""
    return [
        Group(
            name=f"vllm_prefix_cache.rules.{window}",
            interval=settings[f"intervals.{window}"],
            rules=[*_rates(window, settings[f"windows.{window}"]), *_ratios(window)],
        )
        for window in ALL
    ]


def _rates(window: str, span: str) -> Iterator[Record]:
    for name in _NAMES.values():
        yield Record(
            name=f"engine:vllm_{name}:rate{window}",
            expr=f"max by ({ENGINE}) (rate(vllm:{name}_total[{span}]))",
            why="Tokens, from 0.9 on.",
        )
    for name in _NAMES.values():
        yield Record(
            name=f"engine:vllm_gpu_{name}:rate{window}",
            expr=query(f"""
                max by ({ENGINE}) (rate(vllm:gpu_{name}_total[{span}]))
                unless
                  engine:vllm_{name}:rate{window}
            """),
            why="Blocks, before 0.9. Where the new name exists this one is its twin, and left out.",
        )
    for level, labels, below in (("model", MODEL, "engine"), ("fleet", FLEET, "model")):
        for name in _NAMES.values():
            yield Record(
                name=f"{level}:vllm_{name}:rate{window}",
                expr=f"sum by ({labels}) ({below}:vllm_{name}:rate{window})",
                why=f"Sum over the {below}s; a ratio comes after it.",
            )
    for name in _NAMES.values():
        yield Record(
            name=f"model:vllm_gpu_{name}:rate{window}",
            expr=f"sum by ({MODEL}) (engine:vllm_gpu_{name}:rate{window})",
            why="Blocks have no sum with tokens, so the fleet has none of these.",
        )


def _ratios(window: str) -> Iterator[Record]:
    for level in ("engine", "model"):
        yield Record(
            name=f"{level}:vllm_prefix_cache_hits_per_query:ratio_rate{window}",
            expr=query(f"""
                {level}:vllm_prefix_cache_hits:rate{window} / ({level}:vllm_prefix_cache_queries:rate{window} > 0)
                or
                  {level}:vllm_gpu_prefix_cache_hits:rate{window} / ({level}:vllm_gpu_prefix_cache_queries:rate{window} > 0)
            """),
            why=f"{_ABSENT_WHEN_IDLE} Of tokens, or else of blocks.",
        )
    yield Record(
        name=f"fleet:vllm_prefix_cache_hits_per_query:ratio_rate{window}",
        expr=f"fleet:vllm_prefix_cache_hits:rate{window} / (fleet:vllm_prefix_cache_queries:rate{window} > 0)",
        why=f"{_ABSENT_WHEN_IDLE} Engines that count tokens.",
    )
