"""The scenarios that the boards are asked over: recorded traces and a stand-in, in one database.

Each is a cluster of its own. An hour before and a day before the same happened: that is what
"settled" and "baseline" look back at.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dashboards.boards_as_json import ALL_TARGETS, BOARDS
from dashboards.database import RULE_SECONDS, load
from dashboards.stories import DAY, SCRAPED, Sample, Story, moved, series
from drawing.answers import Span
from edge.engines import of_process
from prefixwatch.demo.offline import EPOCH, record
from prefixwatch.poller import TargetStatus
from prefixwatch.trace import scrapes
from prometheus.timeline import Timeline

END = 1_795_984_020.0
LENGTH = 12 * RULE_SECONDS
SPAN = Span(start=END - LENGTH, end=END)
EARLIER = (70 * 60.0, DAY)
OLD = END - 3 * DAY
SCRAPE_SECONDS = 5.0

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
    stories.append(Story(cluster=STANDIN, target="gpu-1:8000", pages=_standin(folder), scrape_seconds=SCRAPE_SECONDS))
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


def _pages(cluster: str, trace: str) -> Iterator[tuple[float, bytes | None]]:
    """Yield LENGTH seconds of a trace over and over, every other page, the last one at END."""
    is_restart = cluster == "restart"
    found = _repeated(trace, restarts=(9,) if is_restart else ())
    last = found[-1][0]
    for position, (at, page) in enumerate(found):
        if position % 2 or at < last - LENGTH:
            continue
        is_down = is_restart and last - 200 < at < last - 180
        yield END + at - last, None if is_down else page if is_restart else of_process(page, OLD)


@functools.cache
def _repeated(trace: str, *, restarts: tuple[int, ...]) -> Sequence[tuple[float, bytes]]:
    return list(Timeline(traces=[trace] * 12, start=0.0, restarts=frozenset(restarts)).pages())[-int(LENGTH) - 20 :]


def _standin(folder: Path) -> Iterator[tuple[float, bytes | None]]:
    """Yield what the demo's engine shows while it thrashes."""
    record("thrash_low_usage", folder / "standin", seconds=LENGTH - 10, period=SCRAPE_SECONDS)
    found = [(scrape.time, scrape.body) for scrape in scrapes(folder / "standin")]
    shift = END - found[-1][0]
    assert found[0][0] >= EPOCH
    return ((at + shift, page) for at, page in found)


def _by_hand() -> Iterator[Sample]:
    """Yield what no recorded engine has: cache events, a KV connector, a faulty targets file, an alert."""
    engine = {"cluster": BY_HAND, "namespace": "chat", "target": "gpu-1:8000", "model_name": "tiny", "engine": "0", **SCRAPED}
    growing = {
        "blocks_stored_total": 4.0, "blocks_removed_total": 3.5, "blocks_stored_again_total": 1.2,
        "external_queried_tokens_total": 500.0, "external_hit_tokens_total": 200.0,
        "queried_tokens_total": 1000.0, "hit_tokens_total": 500.0,
    }  # fmt: skip
    steady = {
        ("avoidable_miss_ratio", "window", "5m"): 0.3, ("working_set_ratio", "window", "5m"): 1.7,
        ("whatif_avoidable_miss_ratio", "pool", "1.5x"): 0.2, ("whatif_avoidable_miss_ratio", "pool", "2x"): 0.05,
        ("whatif_avoidable_miss_ratio", "pool", "4x"): 0.01, ("requests_waiting", "", ""): 2.0, ("counters_frozen", "", ""): 0.0,
    }  # fmt: skip
    firing = {"cluster": BY_HAND, "namespace": "chat", "target": "gpu-1:8000", "model_name": "tiny", "engine": "0"}
    alert = {"alertname": "PrefixCacheKvPressure", "alertstate": "firing", "severity": "warning", "evidence": "waiting"}
    for step in range(int(LENGTH / 15) + 1):
        at = SPAN.start + 15 * step
        for name, a_second in growing.items():
            yield series(f"prefixwatch_{name}", engine), at, 15 * step * a_second
        for (name, label, value), found in steady.items():
            yield series(f"prefixwatch_{name}", {**engine, label: value} if label else engine), at, found
        yield series("prefixwatch_targets_file_last_reload_success", SCRAPED), at, 0.0
        target = {**firing, **SCRAPED, "engine": "", "model_name": ""}
        yield series("prefixwatch_up", target), at, 1.0
        yield series("prefixwatch_up", {**target, "target": "gpu-2:8000"}), at, 0.0
        yield series("prefixwatch_caveat", {**target, "caveat": "retried_lookups_counted"}), at, 1.0
        yield series("ALERTS", {**firing, **alert}), at, 1.0
