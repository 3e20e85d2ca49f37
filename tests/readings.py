"""Readings of one engine, written for a test."""

import bisect
import itertools
from collections.abc import Mapping, Sequence

from prefixwatch.page.caveats import Era
from prefixwatch.page.reading import CacheConfig, PageReading, Reading

CONFIG = CacheConfig(enable_prefix_caching=True, block_size=32, num_gpu_blocks=200)
NONE: Mapping[str, float] = {}
BORN = 500.0
"""When the engines' counters began."""


def reading(
    counters: Mapping[str, float] = NONE,
    *,
    time: float = 1000.0,
    gauges: Mapping[str, float] = NONE,
    config: CacheConfig = CONFIG,
    created: float | None = BORN,
    engine: str = "0",
    model_name: str = "m",
) -> Reading:
    """Return what a page says of an engine; `created`: when all of its counters began, None for a page without."""
    return Reading(
        time=time,
        model_name=model_name,
        engine=engine,
        counters=counters,
        gauges=gauges,
        created={} if created is None else dict.fromkeys((key.split("/")[0] for key in counters), created),
        config=config,
    )


def page(*engines: Reading, started: float | None = None) -> PageReading:
    """Return a page of engines of one time; `started`: when its process did."""
    stated = [began for one in engines for began in one.created.values()]
    return PageReading(
        time=engines[0].time,
        dialect="vllm",
        release=None,
        era=Era(),
        caveats=(),
        epoch=(min(stated, default=None), started),
        engines=engines,
    )


def histogram(quantity: str, values: Sequence[float], edges: Sequence[float]) -> dict[str, float]:
    """Return the counters of a histogram that observed these values."""
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[bisect.bisect_left(edges, value)] += 1
    cumulative = dict(zip((*edges, float("inf")), itertools.accumulate(counts), strict=True))
    return {
        **{f"{quantity}/le/{edge}": float(count) for edge, count in cumulative.items()},
        f"{quantity}/count": float(len(values)),
        f"{quantity}/sum": float(sum(values)),
    }
