"""Figures to diagnose: an engine at rest in the middle of every rule, and what one changes of it."""

from dataclasses import fields, replace
from typing import Any

from prefixwatch.diagnosis import Diagnosis, EventEvidence, diagnose
from prefixwatch.figures.engine import WindowFigures
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.residency import Residency

UNKNOWN = Absent("not on this page")


def estimate(value: float) -> Estimate:
    return Estimate(estimate=value, lower=value - 0.02, upper=value + 0.02, method="pooled")


def residency(**changes: Any) -> Residency:
    """Return blocks in use that are evicted too early."""
    base = Residency(
        evictions=500.0,
        lifetime_seconds={0.5: 4.0},
        idle_seconds={0.5: 2.0},
        reuse_gap_seconds={0.5: 1.2},
        mean_lifetime_seconds=4.0,
        mean_idle_seconds=2.0,
        gaps_per_eviction=0.5,
        late_reuse_share=0.45,
        evicted_reuse_share=0.4,
    )
    return replace(base, **changes)


def figures(**changes: Any) -> WindowFigures:
    """Return half a ratio, a pool that has filled, and nothing that tells why."""
    unknown: dict[str, Any] = {
        field.name: UNKNOWN for field in fields(WindowFigures) if field.name not in ("frozen", "is_idle", "caveats")
    }
    base: dict[str, Any] = {
        "model_name": "m", "engine": "0", "window_seconds": 300.0, "requests": 400.0, "token_hit_ratio": 0.5,
        "hit_ratio_ceiling": estimate(1.0), "block_tokens": 32, "prompt_tokens_per_request": 500.0, "pool_tokens": 6400,
        "pool_filled": True, "turnover_seconds": 3.0, "kv_usage_max": 0.6, "preemptions": 0.0,
        "requests_waiting_max": 0.0, "prefill_share": 0.4, "output_per_prompt_token": 0.1, "caching_enabled": True,
    }  # fmt: skip
    return WindowFigures(**{**unknown, **base, **changes})


def events(**changes: float) -> EventEvidence:
    """Return events that show neither eviction nor split keys."""
    return replace(EventEvidence(stored=1000.0, avoidable_miss_ratio=0.0, key_split_ratio=0.0), **changes)


def found(*, events: EventEvidence | None = None, age: float | None = 3600.0, **changes: Any) -> Diagnosis:
    return diagnose(figures(**changes), events=events, age=age)
