"""Each alert on both sides of each threshold, from pending to firing, with its whole text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rulebook.settings import Settings, seconds

from alerts.promtool import Batch, Case, selector, state
from alerts.rulefiles import ALERTS, alerts

SETTINGS = Settings.read(ALERTS / "config.yaml")
EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())
"""What each alert says, label by label and word by word."""

MODEL = {"cluster": "west", "namespace": "chat", "model_name": "org/m"}
ENGINE = {**MODEL, "target": "gpu-1:8000", "engine": "0"}
TARGET = {"cluster": "west", "namespace": "chat", "target": "gpu-1:8000"}
EXPORTER = {"cluster": "west", "namespace": "chat", "job": "prefixwatch", "instance": "exporter:9840"}
HOUR = 60


def of(name: str, key: str) -> float:
    return float(SETTINGS[f"alerts.{name}.{key}"])


def shared(key: str) -> float:
    return float(SETTINGS[f"shared.{key}"])


Held = tuple[str, float]
"""A series, and the value that it holds all the time."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """An alert, or one of its two rules: what makes it fire, and what each value must be for it not to.

    `since`: the minute from which the condition can hold. `also`: other rules of the same name that fire.
    """

    name: str
    key: str
    fires: Sequence[Held]
    stops: Mapping[str, Held]
    since: int = 0
    also: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def lasting(self) -> int:
        return int(seconds(SETTINGS[f"alerts.{self.name}.for"]) // 60)

    def series(self, *changed: Held) -> dict[str, str]:
        held = dict(self.fires) | dict(changed)
        return {name: f"{value!r}+0x{self.since + self.lasting + 90}" for name, value in held.items()}


def model(record: str, value: float, **labels: str) -> Held:
    return selector({**MODEL, **labels}, f"model:prefixwatch_{record}"), value


def engine(record: str, value: float, **labels: str) -> Held:
    return selector({**ENGINE, **labels}, f"engine:prefixwatch_{record}"), value


def own(metric: str, value: float, labels: Mapping[str, str] = ENGINE, **more: str) -> Held:
    return selector({**labels, **more}, f"prefixwatch_{metric}"), value


JUST = 0.004
_DROP, _LONG, _SHORT = (
    "PrefixCacheHitRatioDropped",
    "settled_hit_tokens_per_settled_queried_token:ratio_rate1h",
    "settled_hit_tokens_per_settled_queried_token:ratio_rate5m",
)
_BASELINE = "hit_tokens_per_queried_token:ratio_rate1d_offset1d"
_FIRST = "first_token_seconds_per_first_token:ratio_rate"
_QUEUE = "queue_seconds_per_finished_request:ratio_rate"


def dropped(share: float) -> list[Held]:
    return [
        model(_LONG, 0.8 * share - JUST), model(_SHORT, 0.8 * share - JUST), model(_BASELINE, 0.8),
        model("settled_queried_tokens:rate5m", shared("tokens_per_second") + 1),
        model("requests_finished:rate1h", (shared("requests_an_hour") + 1) / 3600),
    ]  # fmt: skip


def kept(share: float) -> dict[str, Held]:
    return {
        "the hour": model(_LONG, 0.8 * share + JUST),
        "the last minutes": model(_SHORT, 0.8 * share + JUST),
        "the baseline's least": model(_BASELINE, of(_DROP, "baseline_ratio")),
        "the tokens": model("settled_queried_tokens:rate5m", shared("tokens_per_second")),
        "the requests": model("requests_finished:rate1h", shared("requests_an_hour") / 3600),
    }


_RISE, _FLOOR = of(_DROP, "latency_rise"), of(_DROP, "latency_floor_seconds")
_CRITICAL, _WARNING = of(_DROP, "share_critical"), of(_DROP, "share_warning")
_EVICT = "PrefixCacheEvictingReusedBlocks"
_AGAIN = "blocks_stored_again_per_stored_block:ratio_rate"
_NONE, _GAP, _PRESSURE = "PrefixCacheNoReuse", "PrefixCacheTokenRequestGap", "PrefixCacheKvPressure"
_CEILING = "cacheable_tokens_per_observed_prompt_token:ratio_rate1h"
_CACHED, _REQUESTS = (
    "observed_cached_tokens_per_observed_prompt_token:ratio_rate",
    "request_hit_ratio_sum_per_observed_request:ratio_rate",
)
_IMBALANCE, _DEVIATION = "PrefixCacheReplicaImbalance", "replica_hit_ratio_deviation:rate"

THRESHOLDS = [
    Threshold(name=_DROP, key="warning", fires=dropped(_WARNING), stops=kept(_WARNING)),
    Threshold(
        name=_DROP, key="critical by first token", since=24 * HOUR, also=["warning"],
        fires=[*dropped(_CRITICAL), model(f"{_FIRST}5m", 0.8 * _RISE + JUST), model(f"{_FIRST}1d", 0.8)],
        stops={"the rise": model(f"{_FIRST}5m", 0.8 * _RISE - JUST), "the share": model(_LONG, 0.8 * _CRITICAL + JUST)},
    ),
    Threshold(
        name=_DROP, key="critical by queue", since=24 * HOUR, also=["warning"],
        fires=[*dropped(_CRITICAL), model(f"{_QUEUE}5m", _FLOOR + JUST), model(f"{_QUEUE}1d", 0.01)],
        stops={"the floor": model(f"{_QUEUE}5m", _FLOOR - JUST), "the rise": model(f"{_QUEUE}1d", _FLOOR)},
    ),
    Threshold(
        name=_NONE, key="warning",
        fires=[
            model(_LONG, of(_NONE, "ratio") - 0.001), model(_SHORT, of(_NONE, "ratio") - 0.001),
            model("settled_queried_tokens:rate5m", shared("tokens_per_second") + 1),
            model("requests_finished:rate1h", (shared("requests_an_hour") + 1) / 3600),
            model(_CEILING, of(_NONE, "ceiling") + JUST, bound="lower"), model(_CEILING, 1.0, bound="upper"),
            model("hit_tokens_per_queried_token:max_ratio_rate1d", of(_NONE, "has_hit_ratio") + JUST),
            own("prefix_caching_enabled", 1.0),
        ],
        stops={
            "the hour": model(_LONG, of(_NONE, "ratio") + 0.001),
            "the last minutes": model(_SHORT, of(_NONE, "ratio") + 0.001),
            "the tokens": model("settled_queried_tokens:rate5m", shared("tokens_per_second")),
            "the requests": model("requests_finished:rate1h", shared("requests_an_hour") / 3600),
            "the ceiling": model(_CEILING, of(_NONE, "ceiling") - JUST, bound="lower"),
            "it never hit": model("hit_tokens_per_queried_token:max_ratio_rate1d", of(_NONE, "has_hit_ratio") - JUST),
            "caching off": own("prefix_caching_enabled", 0.0),
        },
    ),
    Threshold(
        name=_GAP, key="info",
        fires=[
            model(f"{_CACHED}1h", 0.9), model(f"{_CACHED}5m", 0.9),
            model(f"{_REQUESTS}1h", 0.9 - of(_GAP, "gap") - JUST, bound="upper"),
            model(f"{_REQUESTS}5m", 0.9 - of(_GAP, "gap") - JUST, bound="upper"),
            model(f"{_REQUESTS}1h", 0.1, bound="lower"), model(f"{_REQUESTS}5m", 0.1, bound="lower"),
            model("requests_observed:rate1h", (of(_GAP, "requests_an_hour") + 1) / 3600),
        ],
        stops={
            "the hour": model(f"{_REQUESTS}1h", 0.9 - of(_GAP, "gap") + JUST, bound="upper"),
            "the last minutes": model(f"{_REQUESTS}5m", 0.9 - of(_GAP, "gap") + JUST, bound="upper"),
            "few requests": model("requests_observed:rate1h", of(_GAP, "requests_an_hour") / 3600),
        },
    ),
    Threshold(
        name=_IMBALANCE, key="warning",
        fires=[model(f"{_DEVIATION}1h", of(_IMBALANCE, "deviation") + JUST), model(f"{_DEVIATION}5m", of(_IMBALANCE, "deviation") + JUST)],
        stops={
            "the hour": model(f"{_DEVIATION}1h", of(_IMBALANCE, "deviation") - JUST),
            "the last minutes": model(f"{_DEVIATION}5m", of(_IMBALANCE, "deviation") - JUST),
        },
    ),
    Threshold(
        name=_EVICT, key="events",
        fires=[
            engine(f"{_AGAIN}1h", of(_EVICT, "avoidable_ratio") + JUST), engine(f"{_AGAIN}5m", of(_EVICT, "avoidable_ratio") + JUST),
            engine("blocks_stored:rate5m", of(_EVICT, "blocks_per_second") + 0.1),
        ],
        stops={
            "the hour": engine(f"{_AGAIN}1h", of(_EVICT, "avoidable_ratio") - JUST),
            "the last minutes": engine(f"{_AGAIN}5m", of(_EVICT, "avoidable_ratio") - JUST),
            "few blocks": engine("blocks_stored:rate5m", of(_EVICT, "blocks_per_second")),
        },
    ),
    Threshold(
        name=_EVICT, key="diagnosis",
        fires=[
            own("diagnosis", 1.0, cause="eviction"), own("diagnosis_confidence", 1.0),
            engine("queried_tokens:rate5m", shared("tokens_per_second") + 1),
            engine("hit_tokens_per_queried_token:ratio_rate5m", 0.44), engine("blocks_stored:rate1h", 0.0),
        ],
        stops={
            "another cause": own("diagnosis", 0.0, cause="eviction"),
            "not sure": own("diagnosis_confidence", 0.5),
            "the tokens": engine("queried_tokens:rate5m", shared("tokens_per_second")),
            "events know better": engine("blocks_stored:rate1h", 1.0),
        },
    ),
    Threshold(
        name=_PRESSURE, key="preemptions",
        fires=[engine("preemptions:rate5m", (of(_PRESSURE, "preemptions_a_minute") + 0.1) / 60)],
        stops={"few": engine("preemptions:rate5m", (of(_PRESSURE, "preemptions_a_minute") - 0.1) / 60)},
    ),
    Threshold(
        name=_PRESSURE, key="waiting",
        fires=[own("kv_usage_max_ratio", of(_PRESSURE, "usage") + JUST, window="1m"), own("requests_waiting", 1.0)],
        stops={
            "no queue: high usage alone": own("requests_waiting", 0.0),
            "the usage": own("kv_usage_max_ratio", of(_PRESSURE, "usage") - JUST, window="1m"),
        },
    ),
    Threshold(
        name="PrefixCacheDisabled", key="info",
        fires=[engine("prompt_tokens:rate5m", shared("tokens_per_second") + 1), own("prefix_caching_enabled", 0.0)],
        stops={
            "the tokens": engine("prompt_tokens:rate5m", shared("tokens_per_second")),
            "caching on": own("prefix_caching_enabled", 1.0),
            "marked as intended": own("prefix_caching_enabled", 0.0, prefix_cache_intended="off"),
        },
    ),
    Threshold(
        name="PrefixCacheCountersFrozen", key="by the exporter",
        fires=[
            own("counters_frozen", 1.0), own("prefix_caching_enabled", 1.0), engine("prompt_tokens:rate5m", 40.0),
            engine("queried_tokens:rate5m", 0.1), engine("queried_tokens:rate1d", 30.0),
        ],
        stops={
            "not frozen": own("counters_frozen", 0.0), "caching off": own("prefix_caching_enabled", 0.0),
            "never looked up": engine("queried_tokens:rate1d", 0.0),
        },
    ),
    Threshold(
        name="PrefixCacheCountersFrozen", key="by the counters",
        fires=[
            own("counters_frozen", 0.0), engine("prompt_tokens:rate5m", 40.0), engine("queried_tokens:rate5m", 0.0),
            engine("queried_tokens:rate1d", 30.0),
        ],
        stops={"lookups move": engine("queried_tokens:rate5m", 0.1), "no first tokens": engine("prompt_tokens:rate5m", 0.0)},
    ),
]  # fmt: skip

BATCH = Batch()
IDS = []
for one in THRESHOLDS:
    title, last = f"{one.name}, {one.key}", one.since + one.lasting
    severity = {"severity": EXPECTED[title][-1]["labels"]["severity"], **one.labels}
    BATCH.add(
        title,
        Case(
            series=one.series(),
            records=False,
            queries=[
                *state(one.name, f"{last - 1}m", pending=1, **severity),
                *state(one.name, f"{last}m", firing=1, **severity),
            ],
            alerts=[(one.name, f"{last}m", [(said["labels"], said["annotations"]) for said in EXPECTED[title]])],
        ),
    )
    IDS.append(title)
    for reason, held in one.stops.items():
        BATCH.add(
            f"{title}: not {reason}",
            Case(series=one.series(held), records=False, queries=state(one.name, f"{last + 30}m", **severity)),
        )
        IDS.append(f"{title}: not {reason}")


@pytest.mark.parametrize("title", IDS)
def test_threshold(title: str) -> None:
    fault = BATCH.fault(title)
    assert not fault, fault


def test_every_alert_has_a_test_of_its_thresholds() -> None:
    elsewhere = {"PrefixCacheEngineUnreachable", "PrefixCacheExporterDown"}
    assert {one.name for one in THRESHOLDS} == {alert["alert"] for alert in alerts()} - elsewhere
