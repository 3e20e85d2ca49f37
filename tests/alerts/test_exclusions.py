"""From counters to alerts, hour by hour: each fires on its cause, and on none of the cases that look like it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from alerts.engines import GONE, RESTART, Engine, Phase, gone, idle, together, watched_twice
from alerts.promtool import Batch, Case, Query, selector, state

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())
MODEL = {"namespace": "chat", "model_name": "m"}
BASELINE = {selector(MODEL, "model:prefixwatch_hit_tokens_per_queried_token:ratio_rate1d_offset1d"): "0.8+0x400"}
DROPPED, NO_REUSE, IMBALANCE = "PrefixCacheHitRatioDropped", "PrefixCacheNoReuse", "PrefixCacheReplicaImbalance"
EVICTING, FROZEN, GAP = "PrefixCacheEvictingReusedBlocks", "PrefixCacheCountersFrozen", "PrefixCacheTokenRequestGap"
UNREACHABLE, EXPORTER_DOWN = "PrefixCacheEngineUnreachable", "PrefixCacheExporterDown"
WARM = Phase(minutes=150, ratio=0.8)
BATCH = Batch()


def fires(name: str, at: int, *, resolved: int | None = None) -> list[Query]:
    later = [] if resolved is None else state(name, f"{resolved}m")
    return [*state(name, f"{at}m", firing=1), *later]


def never(name: str, until: int) -> list[Query]:
    """Say that the alert did not fire at any minute up to then."""
    firing = selector({"alertname": name, "alertstate": "firing"}, "ALERTS")
    return [(f"count(count_over_time({firing}[{until}m]))", f"{until}m", [])]


def firing_pressure() -> dict[str, str]:
    labels = {**Engine(phases=[]).labels, "severity": "warning", "evidence": "preemptions"}
    return {"alertname": "PrefixCacheKvPressure", "alertstate": "firing", **labels}


def add(title: str, series: Mapping[str, str], queries: list[Query]) -> None:
    BATCH.add(title, Case(series=series, queries=queries))


def engines(*phases: Phase, **options: object) -> dict[str, str]:
    return together(Engine(phases=phases, **options))  # type: ignore[arg-type]


def low(minutes: int, ratio: float = 0.2) -> Phase:
    return Phase(minutes=minutes, ratio=ratio)


# The hit ratio dropped.
add(
    "dropped: the template changed, and was mended",
    engines(WARM, low(100), WARM) | BASELINE,
    [*state(DROPPED, "165m"), *fires(DROPPED, 225, resolved=280)],
)
add(
    "dropped: one engine under two exporters is one alert",
    together(*watched_twice(Engine(phases=[WARM, low(100)]))) | BASELINE, fires(DROPPED, 225),
)  # fmt: skip
add("dropped: not a young model, which has no baseline", engines(WARM, low(100)), never(DROPPED, 249))
add(
    "dropped: not a restart", engines(WARM, Phase(minutes=40, ratio=0.0, kind=RESTART), WARM) | BASELINE,
    never(DROPPED, 300),
)  # fmt: skip
add(
    "dropped: not a restart under the same name and another scrape",
    engines(WARM, gone(150), extra={"instance": "10.0.0.1:9840"})
    | engines(gone(150), low(50, 0.0), Phase(minutes=100), extra={"instance": "10.0.0.2:9840"})
    | BASELINE
    | {
        selector({**Engine(phases=[]).labels, "instance": "10.0.0.2:9840"}, "prefixwatch_queried_tokens_created"):
        f"_x150 {150 * 60}+0x150"
    },
    never(DROPPED, 299),
)  # fmt: skip
add(
    "dropped: not a scale-out",
    together(
        Engine(phases=[WARM, WARM]),
        *(Engine(phases=[gone(150), low(50, 0.02), Phase(minutes=100)], target=f"new-{n}:8000") for n in range(3)),
    )
    | BASELINE,
    never(DROPPED, 299),
)
add(
    "dropped: not a deployment",
    together(
        Engine(phases=[WARM, gone(150)]),
        Engine(phases=[gone(150), low(50, 0.02), Phase(minutes=100)], target="new:8000"),
    )
    | BASELINE,
    never(DROPPED, 299),
)
add("dropped: not the dip after a cache reset", engines(WARM, low(12, 0.0), WARM) | BASELINE, never(DROPPED, 300))
add(
    "dropped: not when the traffic is gone",
    engines(WARM, idle(60), Phase(minutes=90, queried=600, ratio=0.1)) | BASELINE, never(DROPPED, 299),
)  # fmt: skip

# Nothing is found.
add(
    "no reuse: a model that has hit finds nothing, until it does again",
    engines(WARM, low(120, 0.0), WARM), [*state(NO_REUSE, "205m"), *fires(NO_REUSE, 255, resolved=310)],
)  # fmt: skip
add("no reuse: not batches of unique documents", engines(low(300, 0.0)), never(NO_REUSE, 299))
add(
    "no reuse: not short prompts",
    engines(WARM, low(150, 0.0), omits=["cacheable"])
    | {
        selector({**Engine(phases=[]).labels, "bound": bound}, "prefixwatch_cacheable_tokens_total"): f"0+{grown}x300"
        for bound, grown in (("lower", 600), ("upper", 1200))
    },
    never(NO_REUSE, 299),
)
add("no reuse: not with caching off", engines(WARM, low(150, 0.0), caching=0.0), never(NO_REUSE, 299))

# Replicas.
A = Engine(phases=[Phase(minutes=300, ratio=0.9)])
add(
    "imbalance: two warm replicas 50 points apart, until they are alike",
    together(
        Engine(phases=[Phase(minutes=300, ratio=0.9), Phase(minutes=90, ratio=0.9)]),
        Engine(phases=[Phase(minutes=300, ratio=0.4), Phase(minutes=90, ratio=0.9)], target="gpu-2:8000"),
    ),
    fires(IMBALANCE, 180, resolved=330),
)
add(
    "imbalance: not a cold replica",
    together(A, Engine(phases=[gone(150), low(55, 0.05), Phase(minutes=95, ratio=0.9)], target="gpu-2:8000")),
    never(IMBALANCE, 299),
)
add(
    "imbalance: not the prefill side of a pair",
    together(A, Engine(phases=[Phase(minutes=300, ratio=0.2, output=1)], target="gpu-2:8000")),
    never(IMBALANCE, 299),
)
add(
    "imbalance: not the decode side of a pair",
    together(A, Engine(phases=[Phase(minutes=300, ratio=0.05, external=0.9)], target="gpu-2:8000")),
    never(IMBALANCE, 299),
)
add("imbalance: not one replica", engines(Phase(minutes=300, ratio=0.9)), never(IMBALANCE, 299))
add(
    "imbalance: not the same replica under two exporters",
    together(*watched_twice(Engine(phases=[Phase(minutes=300, ratio=0.9)]))), never(IMBALANCE, 299),
)  # fmt: skip
add(
    "imbalance: not a replica with a tenth of the traffic: weighted by tokens",
    together(
        Engine(phases=[Phase(minutes=300, ratio=0.9, queried=20_000)]),
        Engine(phases=[Phase(minutes=300, ratio=0.2, queried=2000)], target="gpu-2:8000"),
    ),
    never(IMBALANCE, 299),
)


def blocks(stored: float, again: float, minutes: int = 120) -> dict[str, str]:
    labels = Engine(phases=[]).labels
    return {
        selector(labels, "prefixwatch_blocks_stored_total"): f"0+{stored}x{minutes}",
        selector(labels, "prefixwatch_blocks_stored_again_total"): f"0+{again}x{minutes}",
    }


def gauge(name: str, values: str, **labels: str) -> dict[str, str]:
    return {selector({**Engine(phases=[]).labels, **labels}, f"prefixwatch_{name}"): values}


# Eviction.
add(
    "evicting: half of the stored blocks were there before", blocks(600, 300),
    [*state(EVICTING, "10m", pending=1), *fires(EVICTING, 30)],
)  # fmt: skip
add(
    "evicting: one engine under two exporters is one alert",
    engines(Phase(minutes=61, ratio=0.4))
    | gauge("diagnosis", "1+0x60", cause="eviction", instance="a") | gauge("diagnosis_confidence", "1+0x60", instance="a")
    | gauge("diagnosis", "1+0x60", cause="eviction", instance="b") | gauge("diagnosis_confidence", "1+0x60", instance="b"),
    fires(EVICTING, 50),
)  # fmt: skip
add(
    "evicting: not conversations that ended: as many evictions, none comes back",
    engines(Phase(minutes=121, ratio=0.4)) | blocks(600, 12)
    | gauge("diagnosis", "0+0x120", cause="eviction") | gauge("diagnosis", "1+0x120", cause="insufficient_evidence")
    | gauge("diagnosis_confidence", "0.2+0x120"),
    never(EVICTING, 119),
)  # fmt: skip
add(
    "evicting: not a burst",
    engines(Phase(minutes=121)) | gauge("diagnosis", "0+0x40 1+0x10 0+0x70", cause="eviction")
    | gauge("diagnosis_confidence", "1+0x120"),
    never(EVICTING, 119),
)  # fmt: skip

# Token and request level.


def requests(upper: float, lower: float = 0.1, each: float = 20) -> dict[str, str]:
    labels = Engine(phases=[]).labels
    return {
        selector(labels, "prefixwatch_observed_prompt_tokens_total"): "0+6000x240",
        selector(labels, "prefixwatch_observed_cached_tokens_total"): "0+4800x240",
        selector(labels, "prefixwatch_requests_observed_total"): f"0+{each}x240",
        selector({**labels, "bound": "upper"}, "prefixwatch_request_hit_ratio_sum_total"): f"0+{upper * each}x240",
        selector({**labels, "bound": "lower"}, "prefixwatch_request_hit_ratio_sum_total"): f"0+{lower * each}x240",
    }


add("gap: 0.8 of the tokens, at most half of a request", requests(0.5, 0.45), fires(GAP, 80))
add("gap: not wide bounds, though the estimate is as far", requests(0.7, 0.2), never(GAP, 239))
add("gap: not few requests", requests(0.5, 0.45, each=2), never(GAP, 239))

# Counters that stand still.
add(
    "frozen: first tokens come, lookups stand still, until they move",
    engines(Phase(minutes=60), Phase(minutes=60, queried=0, prompt=6000), Phase(minutes=60)),
    [*state(FROZEN, "70m", pending=1), *fires(FROZEN, 80, resolved=150)],
)
add("frozen: not long decodes without new requests", engines(Phase(minutes=60), idle(120)), never(FROZEN, 179))
add(
    "frozen: not an engine that caches nothing",
    engines(Phase(minutes=180, queried=0, prompt=6000), caching=0.0), never(FROZEN, 179),
)  # fmt: skip


def target(metric: str, values: str, **labels: str) -> dict[str, str]:
    return {selector({"namespace": "chat", "target": "gpu-1:8000", **labels}, f"prefixwatch_{metric}"): values}


# Reachability.
def read_until(minute: int, values: str = "", **labels: str) -> dict[str, str]:
    """Return when the target's last page came: with each sample until that minute, the same from then on."""
    return target("last_success_timestamp_seconds", f"0+60x{minute} {values}", **labels)


_FIRES = selector({"alertname": UNREACHABLE, "alertstate": "firing"}, "ALERTS")
BATCH.add(
    "unreachable: it answered, and does not",
    Case(
        series=target("up", "1+0x30 0+0x60 1+0x60") | read_until(30, "1800+0x60 5460+60x60")
        | target("poll_errors_total", "_x30 0+60x60", reason="connection") | target("poll_errors_total", "_x30 0 1+0x60", reason="cut_off"),
        queries=[*state(UNREACHABLE, "35m", pending=1), *fires(UNREACHABLE, 60, resolved=130)],
        alerts=[(UNREACHABLE, "60m", [(said["labels"], said["annotations"]) for said in EXPECTED["unreachable"]])],
    ),
)  # fmt: skip
BATCH.add(
    "unreachable: it never answered",
    Case(
        series=target("up", "0+0x100 1+0x60") | target("poll_errors_total", "0+60x100 6000+0x60", reason="dns")
        | target("last_success_timestamp_seconds", "_x101 6060+60x60"),
        queries=[*state(UNREACHABLE, "29m"), *state(UNREACHABLE, "35m", pending=1), *fires(UNREACHABLE, 45, resolved=130)],
        alerts=[(UNREACHABLE, "45m", [(said["labels"], said["annotations"]) for said in EXPECTED["unreachable, never"]])],
    ),
)  # fmt: skip
add(
    "unreachable: days later, and after a restart of the exporter, it is one alert",
    target("up", "1+0x30 0+0x600 _x3 0+0x120") | read_until(30, "1800+0x600"),
    [(f"count(count_over_time({_FIRES}[690m]) >= 690)", "740m", [({}, 1.0)])],
)
add("unreachable: not a model that still loads", target("up", "0+0x38 1+0x80"), never(UNREACHABLE, 119))
add(
    "unreachable: not a model that loads after hours in which host and exporter were off",
    target("up", "1+0x30 _x180 0+0x38 1+0x60") | read_until(30),
    never(UNREACHABLE, 300),
)
add(
    "unreachable: not a pod that ended, nor a scale-in",
    target("up", "1+0x30 0 0 _x90") | read_until(30, "1800 1800 _x90"),
    never(UNREACHABLE, 119),
)
add("unreachable: not a pod that ended while its model loaded", target("up", "0+0x33 _x90"), never(UNREACHABLE, 119))
add(
    "unreachable: not what another exporter reaches",
    target("up", "0+0x120", instance="a") | target("up", "1+0x120", instance="b") | read_until(120, instance="b"),
    never(UNREACHABLE, 119),
)
add(
    "unreachable: host and exporter restarted, the model loads",
    target("up", "1+0x30 _x120", instance="a") | read_until(30, instance="a")
    | target("up", "_x32 0+0x25 1+0x60", instance="b"),
    never(UNREACHABLE, 110),
)  # fmt: skip
add(
    "unreachable: host and exporter restarted twice, the model loads each time",
    target("up", "1+0x30 _x2 0+0x20 1+0x11 _x2 0+0x20 1+0x30"), never(UNREACHABLE, 110),
)  # fmt: skip
add(
    "unreachable: host and exporter restarted, the model never comes",
    target("up", "1+0x30 _x120", instance="a") | read_until(30, instance="a")
    | target("up", "_x32 0+0x90", instance="b"),
    fires(UNREACHABLE, 90),
)  # fmt: skip


def named(values: str, **labels: str) -> dict[str, str]:
    return {selector({"namespace": "chat", "dns": "vllm.chat.svc:8000", **labels}, "prefixwatch_dns_addresses"): values}


BATCH.add(
    "unreachable: no address behind a name",
    Case(
        series=named("0+0x60 2+0x60"),
        queries=[*state(UNREACHABLE, "5m", pending=1), *fires(UNREACHABLE, 30, resolved=100)],
        alerts=[
            (UNREACHABLE, "30m", [(said["labels"], said["annotations"]) for said in EXPECTED["unreachable, name"]])
        ],
    ),
)
add("unreachable: not a name that was scaled to none overnight", named("2+0x30 0+0x600"), never(UNREACHABLE, 600))
add(
    "unreachable: not a name that another exporter finds addresses behind",
    named("0+0x120", instance="a") | named("2+0x120", instance="b"),
    never(UNREACHABLE, 119),
)


def listed(values: str) -> dict[str, str]:
    labels = {"namespace": "chat", "job": "prefixwatch", "instance": "exporter:9840"}
    return {selector(labels, "prefixwatch_targets_file_last_reload_success"): values}


BATCH.add(
    "unreachable: a targets file that cannot be used",
    Case(
        series=listed("1+0x20 0+0x30 1+0x60"),
        queries=[*state(UNREACHABLE, "25m", pending=1), *fires(UNREACHABLE, 40, resolved=80)],
        alerts=[
            (UNREACHABLE, "40m", [(said["labels"], said["annotations"]) for said in EXPECTED["unreachable, file"]])
        ],
    ),
)
add("unreachable: not a targets file that was written slowly", listed("1+0x20 0+0x8 1+0x60"), never(UNREACHABLE, 80))


def scraped(values: str, is_up: str, job: str = "prefixwatch", instance: str = "exporter:9840") -> dict[str, str]:
    labels = {"namespace": "chat", "job": job, "instance": instance}
    return {
        selector({**labels, "version": "1"}, "prefixwatch_build_info"): values,
        selector(labels, "up"): is_up,
    }


BATCH.add(
    "exporter: it cannot be scraped, and comes back",
    Case(
        series=scraped("1+0x30 _x60 1+0x60", "1+0x30 0+0x60 1+0x60"),
        queries=[*state(EXPORTER_DOWN, "35m", pending=1), *fires(EXPORTER_DOWN, 60, resolved=130)],
        alerts=[
            (EXPORTER_DOWN, "60m", [(said["labels"], said["annotations"]) for said in EXPECTED["exporter, instance"]])
        ],
    ),
)
BATCH.add(
    "exporter: none is left",
    Case(
        series=scraped("1+0x30 _x90", "1+0x30 _x90"),
        queries=[*state(EXPORTER_DOWN, "40m", pending=1), *fires(EXPORTER_DOWN, 60)],
        alerts=[(EXPORTER_DOWN, "60m", [(said["labels"], said["annotations"]) for said in EXPECTED["exporter, job"]])],
    ),
)
add(
    "exporter: not a rollout that replaces pods",
    scraped("1+0x30 _x90", "1+0x30 _x90", instance="old:9840") | scraped("_x33 1+0x90", "_x33 1+0x90", instance="new:9840"),
    never(EXPORTER_DOWN, 119),
)  # fmt: skip
add(
    "exporter: not another job that is down",
    scraped("1+0x120", "1+0x120") | {selector({"job": "other", "instance": "x:1"}, "up"): "0+0x120"},
    never(EXPORTER_DOWN, 119),
)  # fmt: skip

# Flapping.
_FIRING = selector({"alertname": "PrefixCacheKvPressure", "alertstate": "firing"}, "ALERTS")
BATCH.add(
    "pressure: a condition that comes and goes is one alert",
    Case(
        series={
            selector(Engine(phases=[]).labels, "engine:prefixwatch_preemptions:rate5m"):
            f"0.1+0x20 {'0+0x8 0.1+0x3 ' * 6}0+0x60"
        },
        records=False,
        queries=[(f"count_over_time({_FIRING}[70m]) >= bool 70", "80m", [(firing_pressure(), 1.0)]), *state("PrefixCacheKvPressure", "140m")],
    ),
)  # fmt: skip


@pytest.mark.parametrize("title", BATCH.cases)
def test_case(title: str) -> None:
    fault = BATCH.fault(title)
    assert not fault, fault


def test_a_phase_that_is_gone_has_no_samples() -> None:
    assert set(next(iter(engines(gone(3)).values())).split()) == {"_"}
    assert gone(1).kind == GONE
