"""The scenarios that the boards are asked over: recorded traces and a stand-in, in one database.

Each is a cluster of its own. An hour before and a day before the same happened: that is what
"settled" and "baseline" look back at.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dashboards.boards_as_json import ALL_TARGETS, BOARDS
from dashboards.database import RULE_SECONDS, load
from dashboards.stories import DAY, SCRAPED, Pages, Sample, Story, moved, series
from drawing.answers import Span
from prefixwatch.demo.offline import EPOCH, record
from prefixwatch.page.reading import PageReading
from prefixwatch.replaying import RecordedFeed
from prefixwatch.targetpoller import TargetStatus
from recorded import pages, pages_of

LENGTH = 12 * RULE_SECONDS
END = EPOCH + LENGTH + RULE_SECONDS
SPAN = Span(start=END - LENGTH, end=END)
EARLIER = (70 * 60.0, DAY)
OLD = END - 3 * DAY
SCRAPE_SECONDS = 5.0
RESTART_TURN = 4

Counters = Mapping[tuple[str, str], Mapping[str, float]]
"""Counters by (model name, engine)."""

# Cluster: the traces of its targets. The same model everywhere.
RECORDED: dict[str, tuple[str, ...]] = {
    "healthy": ("healthy", "healthy"),
    "thrash_low_usage": ("thrash_low_usage",),
    "template_change": ("template_change",),
    "pressure": ("pressure",),
    "decode_bound": ("decode_bound",),
    "short_prompts": ("short_prompts",),
    "salted": ("salted",),
    "caching_disabled": ("caching_disabled",),
    "mixed_long_warm": ("mixed_long_warm",),
    "two_engines": ("two_engines",),
    "restart": ("healthy",),
    "idle": ("idle",),
}
BY_HAND, STANDIN = "by_hand", "standin"
CLUSTERS = (*RECORDED, STANDIN, BY_HAND)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What was loaded: of each (cluster, target) the exporter's last word, and its own counters by time."""

    folder: Path
    ends: dict[tuple[str, str], TargetStatus]
    counters: dict[tuple[str, str], dict[float, Mapping[str, float]]]


def fill(folder: Path) -> Loaded:
    """Load everything."""
    stories = [
        Story(cluster=cluster, target=f"gpu-{number}:8000", pages=_pages(cluster, trace), scrape_seconds=SCRAPE_SECONDS)
        for cluster, traces in RECORDED.items()
        for number, trace in enumerate(traces, start=1)
    ]
    stories.append(_standin(folder / "standin"))
    samples = [sample for story in stories for sample in story.samples()]
    healthy = [sample for sample in samples if 'cluster="healthy"' in sample[0]]
    samples += [sample for seconds in EARLIER for sample in moved(healthy, seconds)]
    samples += _by_hand()
    spans = [SPAN, *(Span(start=SPAN.start - seconds, end=SPAN.end - seconds) for seconds in EARLIER)]
    asked = [target["expr"] for _, _, target in ALL_TARGETS]
    asked += [str(one.get("expr", "")) for board in BOARDS.values() for one in board["annotations"]["list"]]
    load(samples, spans, folder, wanted=asked)
    ends = {(story.cluster, story.target): story.end for story in stories if story.end is not None}
    counters = {(story.cluster, story.target): story.own for story in stories}
    return Loaded(folder=folder, ends=ends, counters=counters)


def _pages(cluster: str, trace: str) -> Pages:
    """Yield LENGTH seconds of a trace over and over, the last page at END; in the cluster restart one restart."""
    recorded = pages(trace)[::2]
    seconds = recorded[-1].time - recorded[0].time + 2.0
    count = int(LENGTH // seconds) + 1
    carried: dict[tuple[str, str], Mapping[str, float]] = {}
    began = OLD
    for turn in range(count):
        shift = END - recorded[-1].time - (count - 1 - turn) * seconds
        before = {} if turn == 0 else _counters(recorded[0])
        if cluster == "restart" and turn == RESTART_TURN:
            carried, before, began = {}, {}, recorded[0].time + shift
            yield from ((began - gap, None) for gap in (6.0, 4.0, 2.0))
        for page in recorded[1 if turn else 0 :]:
            yield page.time + shift, _moved(page, page.time + shift, carried, before, began)
        carried = {
            key: _sum(_sum(carried.get(key, {}), counters), before.get(key, {}), -1)
            for key, counters in _counters(recorded[-1]).items()
        }


def _moved(page: PageReading, at: float, carried: Counters, before: Counters, began: float) -> PageReading:
    """Return the page at another time, its counters where the last turn left them."""
    engines = []
    for one in page.engines:
        key = (one.model_name, one.engine)
        counters = _sum(_sum(one.counters, carried.get(key, {})), before.get(key, {}), -1)
        engines.append(replace(one, time=at, counters=counters, created=dict.fromkeys(one.created, began)))
    return replace(page, time=at, epoch=(began, began), engines=tuple(engines))


def _counters(page: PageReading) -> Counters:
    return {(one.model_name, one.engine): one.counters for one in page.engines}


def _sum(one: Mapping[str, float], other: Mapping[str, float], sign: int = 1) -> dict[str, float]:
    return {name: value + sign * other.get(name, 0.0) for name, value in one.items()} if other or one else {}


def _standin(folder: Path) -> Story:
    """Return what the demo's engine shows while it thrashes, its cache events watched; simulated time is ours."""
    record("thrash_low_usage", folder, seconds=END - EPOCH, period=SCRAPE_SECONDS)
    seen = ((page.time, page) for page in pages_of(folder) if page.time <= END)
    return Story(
        cluster=STANDIN, target="gpu-1:8000", pages=seen, scrape_seconds=SCRAPE_SECONDS, feed=RecordedFeed(folder)
    )


def _by_hand() -> Iterator[Sample]:
    """Yield what no recorded engine has: a KV connector, event channels, a faulty targets file, an alert."""
    engine = {
        "cluster": BY_HAND,
        "namespace": "chat",
        "target": "gpu-1:8000",
        "model_name": "tiny",
        "engine": "0",
        **SCRAPED,
    }
    growing = {
        "external_queried_tokens_total": 500.0, "external_hit_tokens_total": 200.0,
        "queried_tokens_total": 1000.0, "hit_tokens_total": 500.0,
    }  # fmt: skip
    of_channel = {
        "events_connected": 0.0, "events_lag_seconds": 0.5, "events_missed_batches_total": 3.0, "events_errors_total": 2.0,
    }  # fmt: skip
    firing = {"cluster": BY_HAND, "namespace": "chat", "target": "gpu-1:8000", "model_name": "tiny", "engine": "0"}
    alert = {"alertname": "PrefixCacheKvPressure", "alertstate": "firing", "severity": "warning", "evidence": "waiting"}
    for step in range(int(LENGTH / 15) + 1):
        at = SPAN.start + 15 * step
        for name, a_second in growing.items():
            yield series(f"prefixwatch_{name}", engine), at, 15 * step * a_second
        yield series("prefixwatch_counters_frozen", engine), at, 0.0
        yield series("prefixwatch_targets_file_last_reload_success", SCRAPED), at, 0.0
        target = {**firing, **SCRAPED, "engine": "", "model_name": ""}
        yield series("prefixwatch_up", target), at, 1.0
        yield series("prefixwatch_up", {**target, "target": "gpu-2:8000"}), at, 0.0
        yield series("prefixwatch_caveat", {**target, "caveat": "retried_lookups_counted"}), at, 1.0
        for name, found in of_channel.items():
            reason = {"reason": "gap"} if "errors" in name else {}
            yield series(f"prefixwatch_{name}", {**target, "rank": "0", **reason}), at, found
        yield series("ALERTS", {**firing, **alert}), at, 1.0
