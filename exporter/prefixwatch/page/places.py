"""Whose a sample is: the engines of one page, and which series belong to each.

Series of one engine may stand under several pids, and request counts under the names of its
adapters; a series may lack the labels altogether; a page may hold several processes.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from prefixwatch.page.dialects import ENGINE_GAUGES, LOOKUPS, SOURCES, Meaning, Role

# Labels that tell engines of one page apart beside `engine` and `model_name`: Ray's replicas on a
# node, or what a federating Prometheus or collector added.
_INSTANCE_LABELS = ("ReplicaId", "WorkerId", "instance", "pod")
_OF_ENGINES = ENGINE_GAUGES | set(LOOKUPS)
_UNSTATED = ("", "None")
# A page with more label sets than this is no page of engines and their adapters.
_MAX_PLACES = 1000

Place = tuple[str, str, str]
"""Whose a sample is: (engine, instance, model name), each empty where no label says."""


@dataclass(frozen=True, slots=True)
class Sample:
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


def engine_samples(samples: list[Sample]) -> tuple[dict[Place, list[Sample]], bool]:
    """Give each sample to its engine; say whether some found none."""
    groups: dict[Place, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.meaning.role is not Role.CONFIG:
            labels = sample.labels
            groups[labels.get("engine", ""), _instance(labels), labels.get("model_name", "")].append(sample)
    with_gauges = {
        place for place, of_place in groups.items() if any(s.meaning.quantity in _OF_ENGINES for s in of_place)
    }
    homes = {place: _home(place, groups, with_gauges) for place in groups}
    engines: dict[Place, list[Sample]] = defaultdict(list)
    for place, home in homes.items():
        if home is not None:
            # Labels that are missing are no second series of what the home states itself.
            is_filled_in = place != home and place[2] in ("", home[2])
            stated = {s.meaning.quantity for s in groups[home]} if is_filled_in else set()
            engines[home].extend(s for s in groups[place] if s.meaning.quantity not in stated)
    is_left_out = _join_unlabelled(engines)
    return dict(engines), is_left_out or None in homes.values()


def _join_unlabelled(engines: dict[Place, list[Sample]]) -> bool:
    """Give series without an engine label to engine 0, as which they would be shown; say whether some were left out.

    That is right where engine 0 is the only one. Else they may be of any, or of all.
    """
    is_left_out = False
    for place in [place for place in engines if not place[0]]:
        named = [other for other in engines if other[0] and other[1:] == place[1:]]
        if ("0", *place[1:]) not in named:
            continue
        unlabelled = engines.pop(place)
        if len(named) == 1:
            stated = {sample.meaning.quantity for sample in engines[named[0]]}
            engines[named[0]].extend(one for one in unlabelled if one.meaning.quantity not in stated)
        else:
            is_left_out = True
    return is_left_out


def _home(place: Place, groups: Collection[Place], with_gauges: Collection[Place]) -> Place | None:
    """Return the engine that a group of series belongs to, itself or another; None if unclear.

    Labels that the group has must agree; those that it lacks are filled in. The model name of an
    adapter differs from its engine's. `with_gauges`: the groups that hold what engines state.
    """
    engine, instance, model_name = place
    is_engine = bool(model_name) and place in with_gauges
    if engine and is_engine:
        return place
    if len(groups) > _MAX_PLACES:
        return None
    fitting = [
        other
        for other in groups
        if other != place and engine in ("", other[0]) and instance in ("", other[1]) and (other[2] or not model_name)
    ]
    engines = [other for other in fitting if other in with_gauges]
    named = [other for other in engines if model_name in ("", other[2])]
    of_adapter = [] if is_engine else engines
    # No engine-level series at all: each name stands for itself, and nameless series join it.
    nameless = [] if is_engine or engines else [other for other in fitting if model_name in ("", other[2])]
    for candidates in (named, of_adapter, nameless):
        homes = {_home(other, groups, with_gauges) for other in candidates}
        if homes:
            return homes.pop() if len(homes) == 1 else None
    return place


def configs_of(samples: list[Sample]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the labels of cache_config_info by (engine, instance); before 0.9 it names no engine.

    Where two of one place differ, what they do not agree on is left open.
    """
    configs: dict[tuple[str, str], dict[str, str]] = {}
    for sample in samples:
        if sample.meaning.role is not Role.CONFIG:
            continue
        place = sample.labels.get("engine", ""), _instance(sample.labels)
        stated = configs.setdefault(place, dict(sample.labels))
        for name, value in sample.labels.items():
            if stated.setdefault(name, value) in _UNSTATED:
                stated[name] = value
            elif value not in _UNSTATED and stated[name] != value:
                stated[name] = "differs"
    return configs


def config_of(place: Place, configs: Mapping[tuple[str, str], Mapping[str, str]]) -> Mapping[str, str]:
    """Return the labels of an engine's cache_config_info, empty where it cannot be told."""
    engine, instance, _ = place
    for key in ((engine, instance), ("", instance), (engine, ""), ("", "")):
        if key in configs:
            return configs[key]
    return next(iter(configs.values())) if len(configs) == 1 else {}


def _instance(labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in _INSTANCE_LABELS if labels.get(name)), "")
