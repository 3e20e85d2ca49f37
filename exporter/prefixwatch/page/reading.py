"""One engine at one instant, in canonical quantities."""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from prefixwatch.page.caveats import Caveat, Era

_SIZE = re.compile(r"[1-9][0-9]{0,14}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """What `cache_config_info` states. None: not stated by this release or engine.

    Sizes are in tokens, `num_gpu_blocks` in blocks.
    """

    enable_prefix_caching: bool | None = None
    block_size: int | None = None
    num_gpu_blocks: int | None = None
    kv_cache_size_tokens: int | None = None
    cache_hit_alignment_tokens: int | None = None
    effective_attention_block_size: int | None = None
    is_hybrid: bool = False

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> "CacheConfig":
        """Read the label values as vLLM writes them: Python's str() of each setting."""
        flag = {"True": True, "true": True, "False": False, "false": False}
        block, effective = _size(labels, "block_size"), _size(labels, "effective_attention_block_size")
        return cls(
            enable_prefix_caching=flag.get(labels.get("enable_prefix_caching", "")),
            block_size=block,
            num_gpu_blocks=_size(labels, "num_gpu_blocks"),
            kv_cache_size_tokens=_size(labels, "kv_cache_size_tokens"),
            cache_hit_alignment_tokens=_size(labels, "cache_hit_alignment_tokens"),
            effective_attention_block_size=effective,
            # A model with state-space layers, or whose attention blocks are not block_size.
            is_hybrid=_size(labels, "mamba_block_size") is not None or (effective is not None and effective != block),
        )

    @property
    def effective_block(self) -> int | None:
        """What a hit is a multiple of, in tokens: B of every definition."""
        return self.cache_hit_alignment_tokens or self.effective_attention_block_size or self.block_size

    @property
    def pool_tokens(self) -> int | None:
        """The KV pool in tokens. None: not stated, or a hybrid model, whose blocks do not say."""
        if self.kv_cache_size_tokens:
            return self.kv_cache_size_tokens
        if self.is_hybrid or not self.num_gpu_blocks or not self.block_size:
            return None
        return self.num_gpu_blocks * self.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one page says of one engine at `time` (unix seconds).

    `counters`, `gauges`: canonical names as `dialects` explains; what has no finite value on the
    page is not in them. `created`: unix seconds at which a counter began, where stated.
    `values` of `sleep_state/...` and the like are gauges too.
    """

    time: float
    model_name: str
    engine: str
    counters: Mapping[str, float]
    gauges: Mapping[str, float]
    created: Mapping[str, float] = field(default_factory=dict)
    config: CacheConfig = CacheConfig()

    def histogram(self, quantity: str) -> "Histogram | None":
        """Return a histogram of this reading, or None where it is not on the page."""
        return histogram_of(self.counters, quantity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A histogram of one instant or of an increase.

    `edges`: finite upper edges, ascending; `counts`: observations per bucket (not cumulative),
    one more than edges, the last above the last edge. `count`, `total`: of all observations.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    count: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReading:
    """What one page says: its engines, and what to know of it.

    `dialect` is "vllm", "ray", "kserve" or "unknown"; `why_empty` says why there is no engine.
    `epoch` tells one process from another: (first `_created` of the page, start of the process),
    each None where it is not stated.
    """

    time: float
    dialect: str
    release: str | None
    era: Era
    caveats: tuple[Caveat, ...]
    epoch: tuple[float | None, float | None]
    engines: tuple[Reading, ...]
    why_empty: str | None = None


def histogram_of(counters: Mapping[str, float], quantity: str) -> Histogram | None:
    """Gather a histogram from flat counters. A missing +Inf bucket is made up for by the count."""
    count, total = counters.get(f"{quantity}/count"), counters.get(f"{quantity}/sum")
    if total is None:
        return None
    edges, keys, open_ended = _buckets(tuple(counters), f"{quantity}/le/")
    if count is None:
        if open_ended is None:
            return None
        count = counters[open_ended]
    bounds = [0.0, *map(counters.__getitem__, keys), count]
    counts = tuple([max(0.0, upper - lower) for lower, upper in itertools.pairwise(bounds)])
    return Histogram(edges=edges, counts=counts, count=count, total=total)


def parts_of(counters: Mapping[str, float], quantity: str) -> dict[str, float]:
    """Return the values of a quantity that is split by a label, by the label's value."""
    return {part: counters[key] for part, key in _parts(tuple(counters), f"{quantity}/")}


# The names of counters are the same poll after poll: what belongs together is sorted out once.
@lru_cache(maxsize=1024)
def _parts(keys: tuple[str, ...], prefix: str) -> tuple[tuple[str, str], ...]:
    return tuple((key.removeprefix(prefix), key) for key in keys if key.startswith(prefix))


@lru_cache(maxsize=1024)
def _buckets(keys: tuple[str, ...], prefix: str) -> tuple[tuple[float, ...], tuple[str, ...], str | None]:
    """Return the finite upper edges, their keys, and the key of the bucket without one, if there is one."""
    buckets = sorted((float(edge), key) for edge, key in _parts(keys, prefix))
    finite = [(edge, key) for edge, key in buckets if math.isfinite(edge)]
    open_ended = buckets[-1][1] if buckets and math.isinf(buckets[-1][0]) else None
    return tuple(edge for edge, _ in finite), tuple(key for _, key in finite), open_ended


def _size(labels: Mapping[str, str], name: str) -> int | None:
    text = labels.get(name, "")
    return int(text) if _SIZE.fullmatch(text) else None
