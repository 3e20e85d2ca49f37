"""Page to reading: which sample belongs to which engine, and to which canonical quantity.

What a page's series mean depends on its series alone, not on their values. So the meaning is
worked out once, as a plan, and a page with the same series again only fills in values.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from prefixwatch.page import caveats as known
from prefixwatch.page.caveats import Caveat, Era
from prefixwatch.page.dialects import CONFIG, ENGINE_GAUGES, NAMES, PREFIXES, SOURCES, Meaning, Role, spelling_of
from prefixwatch.page.exposition import Page, Series
from prefixwatch.page.reading import CacheConfig, PageReading, Reading

# Labels that tell engines of one page apart beside `engine` and `model_name`: Ray's replicas on a
# node, or what a federating Prometheus or collector added.
_INSTANCE_LABELS = ("ReplicaId", "WorkerId", "instance", "pod")
_LOOKUPS = ("queried", "hit")
_OTHER_ENGINES = {
    "sglang": "SGLang",
    "tgi_": "Text Generation Inference",
    "nv_": "Triton",
    "trtllm": "TensorRT-LLM",
    "llamacpp": "llama.cpp",
    "lmdeploy": "LMDeploy",
    "prefixwatch_": "prefixwatch itself",
}

type_of_place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Sample:
    """A series of the page with its meaning: where its value stands and whose it may be."""

    index: int
    meaning: Meaning
    labels: dict[str, str]

    @property
    def key(self) -> str | None:
        """The canonical name of the value; None where a label is missing or broken."""
        meaning = self.meaning
        if meaning.role is Role.SPLIT:
            word = self.labels.get(meaning.label or "", "")
            return f"{meaning.quantity}/{SOURCES.get(word, word)}"
        if meaning.role is Role.BUCKET:
            try:
                return f"{meaning.quantity}/le/{float(self.labels['le'])}"
            except (KeyError, ValueError):
                return None
        if meaning.role in (Role.SUM, Role.COUNT):
            return f"{meaning.quantity}/{meaning.role}"
        if meaning.role is Role.CREATED and meaning.label:
            word = self.labels.get(meaning.label, "")
            return f"{meaning.quantity}/{SOURCES.get(word, word)}"
        return meaning.quantity


@dataclass(frozen=True, slots=True)
class _EnginePlan:
    """Which values of a page make up one engine: canonical key to indexes of the values."""

    model_name: str
    engine: str
    counters: tuple[tuple[str, tuple[int, ...]], ...]
    gauges: tuple[tuple[str, tuple[int, ...]], ...]
    created: tuple[tuple[str, tuple[int, ...]], ...]
    config: CacheConfig
    lookup_factor: float | None
    lookup_unit: str

    def reading(self, values: tuple[float, ...], time: float) -> Reading:
        """Fill in the values of a page. What is not finite, or a negative count, is left out."""
        counters: dict[str, float] = {}
        for key, indexes in self.counters:
            value = values[indexes[0]] if len(indexes) == 1 else math.fsum(values[i] for i in indexes)
            if 0 <= value < math.inf:
                counters[key] = value
        gauges = {}
        for key, indexes in self.gauges:
            finite = [values[i] for i in indexes if math.isfinite(values[i])]
            if finite:
                gauges[key] = max(finite)
        for lookup in _LOOKUPS:
            if lookup in counters:
                counters[f"{lookup}_{self.lookup_unit}"] = counters.pop(lookup) * (self.lookup_factor or 1.0)
        return Reading(
            time=time,
            model_name=self.model_name,
            engine=self.engine,
            counters=counters,
            gauges=gauges,
            created={key: min(values[i] for i in indexes) for key, indexes in self.created},
            config=self.config,
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    series: tuple[Series, ...]
    helps: Mapping[str, str]
    types: Mapping[str, str]
    release: str | None
    dialect: str
    era: Era
    caveats: tuple[Caveat, ...]
    engines: tuple[_EnginePlan, ...]
    created: tuple[int, ...]
    process_start: int | None
    why_empty: str | None


class Interpreter:
    """Turn the pages of one target into readings."""

    def __init__(self) -> None:
        self._plan: _Plan | None = None

    def interpret(self, page: Page, *, time: float, release: str | None = None) -> PageReading:
        """Return what `page` says at `time` (unix seconds); never raises.

        `release` is what `/version` answered, if it did.
        """
        plan = self._plan
        if (
            plan is None
            or plan.series != page.series
            or plan.release != release
            or plan.helps != page.helps
            or plan.types.keys() != page.types.keys()
        ):
            plan = self._plan = _planned(page, release)
        values = page.values
        created = [values[i] for i in plan.created if math.isfinite(values[i])]
        start = values[plan.process_start] if plan.process_start is not None else None
        return PageReading(
            time=time,
            dialect=plan.dialect,
            release=release,
            era=plan.era,
            caveats=(*plan.caveats, known.CUT) if page.is_cut else plan.caveats,
            epoch=(min(created, default=None), start),
            engines=tuple(engine.reading(values, time) for engine in plan.engines),
            why_empty=plan.why_empty if page.series or page.helps or page.types else _why_unknown(page),
        )


def _planned(page: Page, release: str | None) -> _Plan:
    samples = [_Sample(i, NAMES[s.name], dict(s.labels)) for i, s in enumerate(page.series) if s.name in NAMES]
    spellings = Counter(sample.meaning.spelling for sample in samples if sample.meaning.spelling)
    declared = {spelling_of(name) for name in (*page.helps, *page.types)} - {""}
    spelling = spellings.most_common(1)[0][0] if spellings else min(declared, default="")
    used = [sample for sample in samples if sample.meaning.spelling == spelling]
    caveats = [known.MIXED_SPELLINGS] if len(spellings) > 1 else []
    engines, is_unassigned = _engine_samples(used)
    if is_unassigned:
        caveats.append(known.UNASSIGNED)
    if any("pid" in sample.labels for sample in used):
        caveats.append(known.MERGED_PROCESSES)
    configs = _configs(used)
    features = set(_features(used))
    era = known.era_of(release, features, {label for config in configs.values() for label in config})
    unit = _lookup_unit(page, used, features, era)
    if "lifetime_hit_rate" in features and not features & set(_LOOKUPS):
        caveats.append(known.V0)
    elif unit == "blocks":
        caveats.append(known.BLOCKS)
    elif unit == "units":
        caveats.append(known.UNKNOWN_UNIT)
    if spelling:
        caveats.extend(known.release_caveats(era))
    starts = [sample.index for sample in samples if sample.meaning.role is Role.PROCESS_START]
    return _Plan(
        series=page.series,
        helps=page.helps,
        types=page.types,
        release=release,
        dialect=PREFIXES.get(spelling, "unknown"),
        era=era,
        caveats=tuple(caveats),
        engines=tuple(
            _engine_plan(place, engines[place], configs.get(place[0]) or configs.get("") or {}, unit)
            for place in sorted(engines)
        ),
        created=tuple(s.index for s in used if s.meaning.role is Role.CREATED),
        process_start=starts[0] if starts else None,
        why_empty=None if engines else _why_empty(page, spelling),
    )


def _why_empty(page: Page, spelling: str) -> str:
    if spelling:
        return "no samples: are statistics switched off?"
    return _why_unknown(page)


def _why_unknown(page: Page) -> str:
    """Say what the page is, where it is not an engine's that the table knows."""
    if not page.other_names:
        return "no vLLM metrics on this page" if page.series else "the page is empty"
    for start, engine in _OTHER_ENGINES.items():
        if any(name.startswith(start) for name in page.other_names):
            return f"no vLLM metrics on this page: it looks like {engine}"
    return f"no vLLM metrics on this page: it begins with {page.other_names[0]}"


def _engine_samples(samples: list[_Sample]) -> tuple[dict[type_of_place, list[_Sample]], bool]:
    """Give each sample to its engine: (engine, instance, model name); say whether some found none.

    Series of one engine may stand under several pids, and request counts under the names of
    its adapters; a series may lack the labels altogether.
    """
    groups: dict[type_of_place, list[_Sample]] = defaultdict(list)
    for sample in samples:
        if sample.meaning.role is not Role.CONFIG:
            labels = sample.labels
            instance = next((labels[name] for name in _INSTANCE_LABELS if labels.get(name)), "")
            groups[labels.get("engine", ""), instance, labels.get("model_name", "")].append(sample)
    homes = {place: _home(place, groups) for place in groups}
    engines: dict[type_of_place, list[_Sample]] = defaultdict(list)
    for place, home in homes.items():
        if home is not None:
            engines[home].extend(groups[place])
    return dict(engines), None in homes.values()


def _home(place: type_of_place, groups: Mapping[type_of_place, list[_Sample]]) -> type_of_place | None:
    """Return the engine that a group of series belongs to, itself or another; None if unclear."""
    if place[0] and place[2] and _is_engine(groups[place]):
        return place
    # Labels that the group has must agree; those that it lacks are filled in. The model name of
    # an adapter differs from its engine's.
    matching = [
        other
        for other, samples in groups.items()
        if _is_engine(samples) and other[2] and place[0] in ("", other[0]) and place[1] in ("", other[1])
    ]
    named = [other for other in matching if place[2] in ("", other[2])]
    if place in matching:
        return place
    for candidates in (named, matching):
        if len(candidates) == 1:
            return candidates[0]
    if matching:
        return None
    # No engine-level series at all: each name stands for itself, and nameless series join it.
    bearers = [other for other in groups if other[2]]
    if place[2] or not bearers:
        return place
    return bearers[0] if len(bearers) == 1 else None


def _is_engine(samples: list[_Sample]) -> bool:
    return any(s.meaning.quantity in ENGINE_GAUGES or s.meaning.quantity in _LOOKUPS for s in samples)


def _configs(samples: list[_Sample]) -> dict[str, dict[str, str]]:
    """Return the labels of each engine's cache_config_info; before 0.9 it names no engine."""
    return {s.labels.get("engine", ""): s.labels for s in samples if s.meaning.role is Role.CONFIG}


def _features(samples: list[_Sample]) -> Iterator[str]:
    """Name what bounds the release of a page, as `caveats.era_of` wants it."""
    for sample in samples:
        yield sample.meaning.quantity
        if "engine" in sample.labels:
            yield "engine_label"
        if sample.meaning.quantity in _LOOKUPS:
            yield "old_names" if sample.meaning.rank else "new_names"


def _lookup_unit(page: Page, samples: list[_Sample], features: set[str], era: Era) -> str:
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
    place: type_of_place, samples: list[_Sample], config_labels: Mapping[str, str], unit: str
) -> _EnginePlan:
    newest = _newest_names(samples)
    counters: dict[str, list[int]] = defaultdict(list)
    gauges: dict[str, list[int]] = defaultdict(list)
    created: dict[str, list[int]] = defaultdict(list)
    for sample in samples:
        meaning, key = sample.meaning, sample.key
        if key is None or meaning.rank != newest.get(meaning.quantity, meaning.rank):
            continue
        if meaning.role is Role.CREATED:
            created[key].append(sample.index)
        else:
            (counters if meaning.is_counter else gauges)[key].append(sample.index)
    config = CacheConfig.of_labels(config_labels)
    factor = float(config.block_size) if unit == "blocks" and config.block_size else None
    engine, instance, model_name = place
    return _EnginePlan(
        model_name=model_name,
        engine="/".join(part for part in (engine or "0", instance) if part),
        counters=tuple((key, tuple(indexes)) for key, indexes in counters.items()),
        gauges=tuple((key, tuple(indexes)) for key, indexes in gauges.items()),
        created=tuple((key, tuple(indexes)) for key, indexes in created.items()),
        config=config,
        lookup_factor=factor,
        lookup_unit="tokens" if factor else unit,
    )


def _newest_names(samples: list[_Sample]) -> dict[str, int]:
    """Return the rank of the newest name that has a sample, by quantity: twins are never added."""
    newest: dict[str, int] = {}
    for sample in samples:
        if sample.meaning.role is not Role.CREATED:
            quantity, rank = sample.meaning.quantity, sample.meaning.rank
            newest[quantity] = min(rank, newest.get(quantity, rank))
    return newest
