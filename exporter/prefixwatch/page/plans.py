"""Which sample of a page belongs to which engine, and to which canonical quantity.

That depends on a page's series alone, not on their values.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter

from prefixwatch.page import caveats as known
from prefixwatch.page.caveats import Caveat, Era
from prefixwatch.page.dialects import LOOKUPS, NAMES, PREFIXES, Role, spelling_of
from prefixwatch.page.exposition import Page, Series
from prefixwatch.page.places import Place, Sample, config_of, configs_of, engine_samples
from prefixwatch.page.reading import CacheConfig, Reading

_OTHER_ENGINES = {
    "sglang": "SGLang",
    "tgi_": "Text Generation Inference",
    "nv_": "Triton",
    "trtllm": "TensorRT-LLM",
    "llamacpp": "llama.cpp",
    "lmdeploy": "LMDeploy",
    "prefixwatch_": "prefixwatch itself",
}


_SHARED_PLANS = 64
"""Engines of one model and configuration have one plan among them; so many are kept beside those in use."""

_MOST = 1e18
"""No counter gets there: tokens of a thousand years at a billion a second."""


def _is_sane(key: str, value: float) -> bool:
    """Say whether a gauge can have this value: a share is in 0..1, a number of requests is not negative."""
    if key == "kv_usage":
        return 0 <= value <= 1.001
    return 0 <= value < _MOST or key == "lifetime_hit_rate"


def extreme(of: Callable[[list[float]], float], values: tuple[float, ...], indexes: tuple[int, ...]) -> float | None:
    """Return the smallest or the largest of those values that are finite."""
    if len(indexes) == 1:
        value = values[indexes[0]]
        return value if math.isfinite(value) else None
    finite = [values[i] for i in indexes if math.isfinite(values[i])]
    return of(finite) if finite else None


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """Which values of a page make up one engine: canonical key to indexes of the values.

    Counters have a factor too, which turns blocks into tokens. `as_they_stand` picks the values of all
    counters where each is one sample without a factor, as on nearly every page.
    """

    model_name: str
    engine: str
    counters: tuple[tuple[str, float, tuple[int, ...]], ...]
    gauges: tuple[tuple[str, tuple[int, ...]], ...]
    created: tuple[tuple[str, tuple[int, ...]], ...]
    config: CacheConfig
    keys: tuple[str, ...]
    as_they_stand: Callable[[tuple[float, ...]], tuple[float, ...]] | None

    def reading(self, values: tuple[float, ...], time: float, created: Mapping[str, float]) -> Reading:
        """Fill in the values of a page. What is not finite, or a negative count, is left out."""
        gauges = {}
        for key, indexes in self.gauges:
            value = extreme(max, values, indexes)
            if value is not None and _is_sane(key, value):
                gauges[key] = value
        return Reading(
            time=time,
            model_name=self.model_name,
            engine=self.engine,
            counters=self._counters(values),
            gauges=gauges,
            created=created,
            config=self.config,
        )

    def created_at(self, values: tuple[float, ...]) -> dict[str, float]:
        """Return when the counters began, where that is stated."""
        began = ((key, extreme(min, values, indexes)) for key, indexes in self.created)
        return {key: time for key, time in began if time is not None}

    def _counters(self, values: tuple[float, ...]) -> dict[str, float]:
        if self.as_they_stand is not None:
            amounts = self.as_they_stand(values)
            # What is not a number makes the sum none, and no part of it is above it.
            if min(amounts) >= 0 and sum(amounts) < _MOST:
                return dict(zip(self.keys, amounts, strict=True))
        counters: dict[str, float] = {}
        for key, factor, indexes in self.counters:
            if len(indexes) == 1:
                value = values[indexes[0]]
            else:
                parts = [values[i] for i in indexes]
                value = sum(parts) if min(parts) >= 0 else math.nan
            if 0 <= value * factor < _MOST:
                counters[key] = value * factor
        return counters


@dataclass(frozen=True, slots=True)
class Plan:
    """How pages of one shape are read.

    `created`, `starts`, `moments`: indexes of the values that say when counters began, when a process did, and
    of all of them, those of single engines too. `why_empty`: what the page is, where it has no engine.
    """

    series: tuple[Series, ...]
    helps: Mapping[str, str]
    types: Mapping[str, str]
    release: str | None
    dialect: str
    era: Era
    caveats: tuple[Caveat, ...]
    engines: tuple[EnginePlan, ...]
    created: tuple[int, ...]
    starts: tuple[int, ...]
    moments: tuple[int, ...]
    other_names: tuple[str, ...]
    why_empty: str | None

    def is_of(self, page: Page, release: str | None) -> bool:
        """Say whether a page has the shape that this was made for."""
        return (
            self.series == page.series
            and self.release == release
            and self.helps == page.helps
            and self.types.keys() == page.types.keys()
            and self.other_names == page.other_names
        )


def plan_of(page: Page, release: str | None) -> Plan:
    """Return the plan for a page; `release` is what `/version` answered. Pages of one shape share it."""
    shape = (page.series, tuple(page.helps.items()), tuple(page.types), page.other_names, release)
    return _planned(_Shape(shape, page))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a plan depends on; the last of it is the release. The `page` is one that has this shape."""

    parts: tuple[tuple[Series, ...], tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...], str | None]
    page: Page = field(compare=False)


@lru_cache(maxsize=_SHARED_PLANS)
def _planned(shape: _Shape) -> Plan:
    page, release = shape.page, shape.parts[-1]
    samples = [Sample(i, NAMES[s.name], dict(s.labels)) for i, s in enumerate(page.series) if s.name in NAMES]
    spellings = Counter(sample.meaning.spelling for sample in samples if sample.meaning.spelling)
    declared = {spelling_of(name) for name in (*page.helps, *page.types, *page.other_names)} - {""}
    spelling = spellings.most_common(1)[0][0] if spellings else min(declared, default="")
    used = [sample for sample in samples if spelling and sample.meaning.spelling == spelling]
    caveats = [known.MIXED_SPELLINGS] if len(spellings) > 1 else []
    engines, is_unassigned = engine_samples(used)
    if is_unassigned:
        caveats.append(known.UNASSIGNED)
    if any("pid" in sample.labels for sample in used):
        caveats.append(known.MERGED_PROCESSES)
    configs = configs_of(used)
    features = set(_features(used))
    era = known.era_of(release, features, {label for config in configs.values() for label in config})
    instances = {place[1] for place in engines}
    unit = _lookup_unit(page, features, era)
    if "lifetime_hit_rate" in features and not features & set(LOOKUPS):
        caveats.append(known.V0)
    elif unit == "blocks":
        caveats.append(known.BLOCKS)
    elif unit == "units":
        caveats.append(known.UNKNOWN_UNIT)
    if spelling:
        caveats.extend(known.release_caveats(era))
    plans = {
        (plan.model_name, plan.engine): plan
        for plan in (
            _engine_plan(place, engines[place], config_of(place, configs), unit, is_one_process=len(instances) < 2)
            for place in sorted(engines, reverse=True)
        )
    }
    if len(plans) < len(engines) and known.UNASSIGNED not in caveats:
        caveats.append(known.UNASSIGNED)  # two that would be shown under one name: the first counts
    # A page of several processes has no one start.
    created = [s.index for s in used if s.meaning.role is Role.CREATED and len(instances) < 2]
    starts = [s.index for s in samples if s.meaning.role is Role.PROCESS_START and len(instances) < 2]
    moments = {*created, *starts, *(i for plan in plans.values() for _, indexes in plan.created for i in indexes)}
    return Plan(
        series=page.series,
        helps=page.helps,
        types=page.types,
        release=release,
        dialect=PREFIXES.get(spelling, "unknown"),
        era=era,
        caveats=tuple(caveats),
        engines=tuple(reversed(plans.values())),
        created=tuple(created),
        starts=tuple(starts),
        moments=tuple(sorted(moments)),
        other_names=page.other_names,
        why_empty=None if engines else _why_empty(page, spelling),
    )


def _why_empty(page: Page, spelling: str) -> str:
    """Say what the page is, where it has no engine that the table knows."""
    if spelling and any(spelling_of(name) for name in page.other_names):
        return "no sample of the families that are read here: a page of vLLM with only others"
    if spelling:
        return "no samples: are statistics switched off?"
    if not page.other_names:
        return "no vLLM metrics on this page" if page.series else "the page is empty"
    for start, engine in _OTHER_ENGINES.items():
        if any(name.startswith(start) for name in page.other_names):
            return f"no vLLM metrics on this page: it looks like {engine}"
    return f"no vLLM metrics on this page: it begins with {page.other_names[0]}"


def _features(samples: list[Sample]) -> Iterator[str]:
    """Name what bounds the release of a page, as `caveats.era_of` wants it."""
    for sample in samples:
        yield sample.meaning.quantity
        if "engine" in sample.labels:
            yield "engine_label"
        if sample.meaning.quantity in LOOKUPS:
            yield "old_names" if sample.meaning.rank else "new_names"


def _lookup_unit(page: Page, features: set[str], era: Era) -> str:
    """Return "tokens", "blocks", or "units" where nothing says which of the two.

    The new names always count tokens, and the old ones do beside them (0.9 to 0.11). Alone, the
    old names counted blocks in 0.8, as their HELP says.
    """
    declared = {name.removesuffix("_total") for name in (*page.helps, *page.types)}
    if "new_names" in features or any(
        name.endswith(("prefix_cache_queries", "prefix_cache_hits")) and "gpu_" not in name and "external" not in name
        for name in declared
    ):
        return "tokens"
    helps = " ".join(text for name, text in page.helps.items() if "gpu_prefix_cache_" in name and "rate" not in name)
    if "block" in helps:
        return "blocks"
    if "token" in helps or "old_names" not in features:
        return "tokens"
    if era.first is not None and era.first >= (0, 9):
        return "tokens"
    return "blocks" if era.until is not None and era.until <= (0, 9) else "units"


def _engine_plan(
    place: Place, samples: list[Sample], config_labels: Mapping[str, str], unit: str, *, is_one_process: bool
) -> EnginePlan:
    newest = _newest_names(samples)
    counters: dict[str, list[int]] = defaultdict(list)
    gauges: dict[str, list[int]] = defaultdict(list)
    created: dict[str, list[int]] = defaultdict(list)
    for sample in samples:
        meaning, key = sample.meaning, sample.key
        rank, is_bare = newest.get(meaning.quantity, (meaning.rank, meaning.is_bare))
        if key is None or meaning.rank != rank:
            continue
        if meaning.role is Role.CREATED:
            created[key].append(sample.index)
        elif meaning.is_bare == is_bare:
            (counters if meaning.is_counter else gauges)[key].append(sample.index)
    config = CacheConfig.of_labels(config_labels)
    factor = 1.0
    if unit == "blocks" and config.block_size is not None:
        unit, factor = "tokens", float(config.block_size)
    engine, instance, model_name = place
    are_plain = factor == 1.0 and len(counters) > 1 and all(len(indexes) == 1 for indexes in counters.values())
    return EnginePlan(
        model_name=model_name,
        engine=f"{engine or '0'}/{instance}" if instance and not is_one_process else engine or "0",
        counters=tuple(
            (f"{key}_{unit}", factor, tuple(indexes)) if key in LOOKUPS else (key, 1.0, tuple(indexes))
            for key, indexes in counters.items()
        ),
        gauges=tuple((key, tuple(indexes)) for key, indexes in gauges.items()),
        created=tuple((key, tuple(indexes)) for key, indexes in created.items()),
        config=config,
        keys=tuple(f"{key}_{unit}" if key in LOOKUPS else key for key in counters),
        as_they_stand=itemgetter(*(indexes[0] for indexes in counters.values())) if are_plain else None,
    )


def _newest_names(samples: list[Sample]) -> dict[str, tuple[int, bool]]:
    """Return (rank, is_bare) of the best name that has a sample, by quantity: twins are never added."""
    newest: dict[str, tuple[int, bool]] = {}
    for sample in samples:
        if sample.meaning.role is not Role.CREATED:
            quantity, name = sample.meaning.quantity, (sample.meaning.rank, sample.meaning.is_bare)
            newest[quantity] = min(name, newest.get(quantity, name))
    return newest
