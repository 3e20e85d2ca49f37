"""One engine at one instant, in canonical quantities."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import sub

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


class Counted(dict[str, float]):
    """Counters that much is asked of: what belongs together among their names is looked up once. The names stay."""

    __slots__ = ("groups",)

    def __init__(self, counters: Mapping[str, float] | Iterable[tuple[str, float]]) -> None:
        super().__init__(counters)
        self.groups = _groups(tuple(self))

    @classmethod
    def of(cls, counters: Mapping[str, float]) -> "Counted":
        """Return these counters themselves where they are such, else a copy."""
        return counters if isinstance(counters, Counted) else cls(counters)


def histogram_of(counters: Mapping[str, float], quantity: str) -> Histogram | None:
    """Gather a histogram from flat counters. A missing +Inf bucket is made up for by the count."""
    found = _groups_of(counters).histogram(quantity)
    if found is None:
        return None
    bounds = [0.0, *map(counters.__getitem__, found.names)]
    counts = tuple(map(sub, bounds[1:], bounds))
    if min(counts) < 0:
        counts = tuple([max(0.0, count) for count in counts])
    return Histogram(edges=found.edges, counts=counts, count=bounds[-1], total=counters[found.total])


def parts_of(counters: Mapping[str, float], quantity: str) -> dict[str, float]:
    """Return the values of a quantity that is split by a label, by the label's value."""
    return {part: counters[key] for part, key in _groups_of(counters).parts(quantity)}


@dataclass(frozen=True, slots=True)
class _HistogramNames:
    """The names of a histogram's counters: `names` of its finite buckets, by their edges, then of all observations."""

    edges: tuple[float, ...]
    names: tuple[str, ...]
    total: str


class _Groups:
    """What belongs together among the names of counters, sorted out when it is first asked for."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._parts: dict[str, tuple[tuple[str, str], ...]] = {}
        self._histograms: dict[str, _HistogramNames | None] = {}

    def parts(self, quantity: str) -> tuple[tuple[str, str], ...]:
        """Return the values of the label by which a quantity is split, and the names that have them."""
        if quantity not in self._parts:
            prefix = f"{quantity}/"
            found = ((name.removeprefix(prefix), name) for name in self._names if name.startswith(prefix))
            self._parts[quantity] = tuple(found)
        return self._parts[quantity]

    def histogram(self, quantity: str) -> _HistogramNames | None:
        """Return the names of a histogram; None where there is no sum, or nothing says how many observations there are."""
        if quantity not in self._histograms:
            self._histograms[quantity] = self._histogram(quantity)
        return self._histograms[quantity]

    def _histogram(self, quantity: str) -> _HistogramNames | None:
        count, total = f"{quantity}/count", f"{quantity}/sum"
        buckets = sorted((float(edge), name) for edge, name in self.parts(f"{quantity}/le"))
        finite = [(edge, name) for edge, name in buckets if math.isfinite(edge)]
        if count not in self._names and buckets and math.isinf(buckets[-1][0]):
            count = buckets[-1][1]
        if total not in self._names or count not in self._names:
            return None
        return _HistogramNames(tuple(edge for edge, _ in finite), (*(name for _, name in finite), count), total)


def _groups_of(counters: Mapping[str, float]) -> _Groups:
    return counters.groups if isinstance(counters, Counted) else _groups(tuple(counters))


# The names of counters are the same poll after poll, and those of most engines.
@lru_cache(maxsize=256)
def _groups(names: tuple[str, ...]) -> _Groups:
    return _Groups(names)


def _size(labels: Mapping[str, str], name: str) -> int | None:
    text = labels.get(name, "")
    return int(text) if _SIZE.fullmatch(text) else None
