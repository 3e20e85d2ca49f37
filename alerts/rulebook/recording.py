"""The recording rules over the exporter's counters: per engine, per model, over a fleet.

Engines first, each once however many exporters watch it; then sums; then ratios of sums, absent
where the denominator is 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rulebook.document import Group, Record, query
from rulebook.settings import Settings

ENGINE = "cluster, namespace, target, model_name, engine"
MODEL = "cluster, namespace, model_name"
FLEET = "cluster"
LEVELS = {"engine": ENGINE, "model": MODEL, "fleet": FLEET}
PREFIX = "prefixwatch_"
ALL = ("5m", "1h", "1d")
RECENT = ("5m", "1h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A counter as a rate a second. `split`: a label that is kept; `folded`: one that is summed over."""

    name: str
    counter: str
    windows: tuple[str, ...] = RECENT
    split: str = ""
    folded: str = ""

    def of_engine(self, span: str) -> str:
        """Return the rate of each engine, which counts once though several exporters may watch it."""
        labels = ", ".join(filter(None, (ENGINE, self.split)))
        one = ", ".join(filter(None, (labels, self.folded)))
        once = f"max by ({one}) (rate({PREFIX}{self.counter}[{span}]))"
        return f"sum by ({labels}) ({once})" if self.folded else once


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One rate per another, at every level; `over` may be several whose sum it is."""

    name: str
    part: str
    over: tuple[str, ...]
    windows: tuple[str, ...] = RECENT
    split: str = ""


RATES = (
    Rate(name="queried_tokens", counter="queried_tokens_total", windows=ALL),
    Rate(name="hit_tokens", counter="hit_tokens_total", windows=ALL),
    Rate(name="external_queried_tokens", counter="external_queried_tokens_total", windows=ALL),
    Rate(name="external_hit_tokens", counter="external_hit_tokens_total", windows=ALL),
    Rate(name="prompt_tokens", counter="prompt_tokens_total", windows=ALL, folded="source"),
    Rate(
        name="cached_prompt_tokens", counter='prompt_tokens_total{source=~"local_cache|external"}',
        windows=ALL, folded="source",
    ),
    Rate(name="computed_prompt_tokens", counter='prompt_tokens_total{source="computed"}', windows=ALL),
    Rate(name="written_tokens", counter="written_tokens_total", windows=ALL),
    Rate(name="requests_finished", counter="requests_finished_total", windows=ALL),
    Rate(name="requests_observed", counter="requests_observed_total", windows=ALL),
    Rate(name="request_hit_ratio_sum", counter="request_hit_ratio_sum_total", windows=ALL, split="bound"),
    Rate(name="cold_requests", counter="cold_requests_total", windows=ALL, split="bound"),
    Rate(name="full_requests", counter="full_requests_total", split="bound"),
    Rate(name="mostly_cached_requests", counter="mostly_cached_requests_total", split="bound"),
    Rate(name="observed_prompt_tokens", counter="observed_prompt_tokens_total", windows=ALL),
    Rate(name="observed_cached_tokens", counter="observed_cached_tokens_total", windows=ALL),
    Rate(name="cacheable_tokens", counter="cacheable_tokens_total", split="bound"),
    Rate(name="generation_tokens", counter="generation_tokens_total"),
    Rate(name="preemptions", counter="preemptions_total"),
    Rate(name="first_tokens", counter="first_tokens_total", windows=ALL),
    Rate(name="first_token_seconds", counter="first_token_seconds_total", windows=ALL),
    Rate(name="queue_seconds", counter="queue_seconds_total", windows=ALL),
    Rate(name="prefill_seconds", counter="prefill_seconds_total"),
    Rate(name="inference_seconds", counter="inference_seconds_total"),
    Rate(name="prefill_saved_seconds", counter="prefill_saved_seconds_total"),
    Rate(name="blocks_stored", counter="blocks_stored_total"),
    Rate(name="blocks_removed", counter="blocks_removed_total"),
    Rate(name="blocks_stored_again", counter="blocks_stored_again_total"),
    Rate(name="blocks_spared", counter="blocks_spared_total", split="pool"),
    Rate(name="blocks_key_split", counter="blocks_key_split_total"),
    Rate(name="blocks_placed", counter="blocks_placed_total"),
)  # fmt: skip

RATIOS = (
    Ratio(name="hit_tokens_per_queried_token", part="hit_tokens", over=("queried_tokens",), windows=ALL),
    Ratio(
        name="external_hit_tokens_per_external_queried_token", part="external_hit_tokens",
        over=("external_queried_tokens",), windows=ALL,
    ),
    # Not per prompt_tokens: engines before 0.16 do not say where their prompt tokens came from.
    Ratio(
        name="cached_prompt_tokens_per_prompt_token", part="cached_prompt_tokens",
        over=("cached_prompt_tokens", "computed_prompt_tokens"), windows=ALL,
    ),
    Ratio(
        name="request_hit_ratio_sum_per_observed_request", part="request_hit_ratio_sum",
        over=("requests_observed",), windows=ALL, split="bound",
    ),
    Ratio(
        name="cold_requests_per_observed_request", part="cold_requests",
        over=("requests_observed",), windows=ALL, split="bound",
    ),
    Ratio(name="full_requests_per_observed_request", part="full_requests", over=("requests_observed",), split="bound"),
    Ratio(
        name="mostly_cached_requests_per_observed_request", part="mostly_cached_requests",
        over=("requests_observed",), split="bound",
    ),
    Ratio(
        name="observed_cached_tokens_per_observed_prompt_token", part="observed_cached_tokens",
        over=("observed_prompt_tokens",), windows=ALL,
    ),
    Ratio(
        name="cacheable_tokens_per_observed_prompt_token", part="cacheable_tokens",
        over=("observed_prompt_tokens",), split="bound",
    ),
    Ratio(name="generation_tokens_per_prompt_token", part="generation_tokens", over=("prompt_tokens",)),
    Ratio(name="prefill_seconds_per_inference_second", part="prefill_seconds", over=("inference_seconds",)),
    Ratio(
        name="first_token_seconds_per_first_token", part="first_token_seconds", over=("first_tokens",), windows=ALL,
    ),
    Ratio(
        name="queue_seconds_per_finished_request", part="queue_seconds", over=("requests_finished",), windows=ALL,
    ),
    Ratio(name="blocks_stored_again_per_stored_block", part="blocks_stored_again", over=("blocks_stored",)),
    Ratio(
        name="blocks_spared_per_block_stored_again", part="blocks_spared", over=("blocks_stored_again",), split="pool",
    ),
    Ratio(name="blocks_key_split_per_placed_block", part="blocks_key_split", over=("blocks_placed",)),
)  # fmt: skip


def groups(settings: Settings) -> list[Group]:
    """Return the recording rules: one group a window, and what the alerts need beside."""
    windows = [
        Group(
            name=f"prefixwatch.rules.{window}",
            interval=settings[f"intervals.{window}"],
            rules=[*_rates(window, settings[f"windows.{window}"]), *_ratios(window)],
        )
        for window in ALL
    ]
    return [
        *windows,
        Group(name="prefixwatch.rules.settled", interval=settings["intervals.5m"], rules=_settled(settings)),
    ]


def _rates(window: str, span: str) -> Iterator[Record]:
    chosen = [rate for rate in RATES if window in rate.windows]
    for rate in chosen:
        yield Record(
            name=f"engine:{PREFIX}{rate.name}:rate{window}", expr=rate.of_engine(span),
            why="Each engine once, though several exporters may watch it.",
        )  # fmt: skip
    for level, below in (("model", "engine"), ("fleet", "model")):
        for rate in chosen:
            labels = ", ".join(filter(None, (LEVELS[level], rate.split)))
            yield Record(
                name=f"{level}:{PREFIX}{rate.name}:rate{window}",
                expr=f"sum by ({labels}) ({below}:{PREFIX}{rate.name}:rate{window})",
                why=f"Sum over the {below}s; a ratio comes after it.",
            )


def _ratios(window: str) -> Iterator[Record]:
    for level, labels in LEVELS.items():
        for ratio in (ratio for ratio in RATIOS if window in ratio.windows):
            over = " + ".join(f"{level}:{PREFIX}{name}:rate{window}" for name in ratio.over)
            over = f"({over})" if len(ratio.over) > 1 else over
            matching = f" on ({labels}) group_left ()" if ratio.split else ""
            yield Record(
                name=f"{level}:{PREFIX}{ratio.name}:ratio_rate{window}",
                expr=f"{level}:{PREFIX}{ratio.part}:rate{window}\n/{matching}\n  ({over} > 0)",
                why="Ratio of sums; absent, not NaN and not 0, when idle.",
            )


def _settled(settings: Settings) -> list[Record]:
    """Return what the alerts compare: engines with a warm cache, replicas alike, and the baseline."""
    after, seen = settings["shared.settled_after"], settings["shared.settled_seen"]
    rules = [
        Record(
            name=f"engine:{PREFIX}queried_tokens:restarts1h",
            expr=query(f"""
                max by ({ENGINE}) (resets({PREFIX}queried_tokens_total[{after}])) > 0
                or
                  max by ({ENGINE}) ({PREFIX}queried_tokens_created) > time() - {settings.seconds("shared.settled_after")}
            """),
            why=(
                "Engines that restarted: their counts fell, or began later (a new pod under an old name). A restart of"
                " the exporter is none, the engine's counts go through it."
            ),
        )
    ]
    for window in RECENT:
        for what in ("queried_tokens", "hit_tokens"):
            rules += [_settled_rate(what, window, after, seen)]
    for window in RECENT:
        rules += _settled_ratio(window)
    rules.append(_baseline(settings))
    for window in RECENT:
        rules += _deviation(settings, window)
    rules.append(_has_hit(settings))
    return rules


def _settled_rate(what: str, window: str, after: str, seen: str) -> Record:
    return Record(
        name=f"engine:{PREFIX}settled_{what}:rate{window}",
        expr=query(f"""
            engine:{PREFIX}{what}:rate{window}
            and
              present_over_time(engine:{PREFIX}{what}:rate5m[{seen}] offset {after})
            unless
              engine:{PREFIX}queried_tokens:restarts1h
        """),
        why=f"Engines that were there {after} ago and did not restart since: a cold cache is no incident.",
    )


def _settled_ratio(window: str) -> Iterator[Record]:
    for what in ("queried_tokens", "hit_tokens"):
        yield Record(
            name=f"model:{PREFIX}settled_{what}:rate{window}",
            expr=f"sum by ({MODEL}) (engine:{PREFIX}settled_{what}:rate{window})",
            why="Sum over the settled engines; a ratio comes after it.",
        )
    yield Record(
        name=f"model:{PREFIX}settled_hit_tokens_per_settled_queried_token:ratio_rate{window}",
        expr=query(f"""
            model:{PREFIX}settled_hit_tokens:rate{window}
            /
              (model:{PREFIX}settled_queried_tokens:rate{window} > 0)
        """),
        why="What the model's warm caches give; new replicas and restarts do not lower it.",
    )


def _baseline(settings: Settings) -> Record:
    of = "alerts.PrefixCacheHitRatioDropped"
    offset, floor = settings[f"{of}.baseline_offset"], settings[f"{of}.baseline_tokens_per_second"]
    return Record(
        name=f"model:{PREFIX}hit_tokens_per_queried_token:ratio_rate1d_offset1d",
        expr=query(f"""
            model:{PREFIX}hit_tokens_per_queried_token:ratio_rate1d offset {offset}
            and
              model:{PREFIX}queried_tokens:rate1d offset {offset} >= {floor}
        """),
        why=f"The baseline: {settings.why(f'{of}.baseline_offset')} {settings.why(f'{of}.baseline_tokens_per_second')}",
    )


def _deviation(settings: Settings, window: str) -> Iterator[Record]:
    of = "alerts.PrefixCacheReplicaImbalance"
    yield Record(
        name=f"engine:{PREFIX}replica_queried_tokens:rate{window}",
        expr=query(f"""
            engine:{PREFIX}settled_queried_tokens:rate{window} >= {settings["shared.tokens_per_second"]}
            unless
              engine:{PREFIX}generation_tokens:rate1h / (engine:{PREFIX}requests_finished:rate1h > 0) < {settings[f"{of}.output_per_request"]}
            unless
              engine:{PREFIX}external_hit_tokens:rate1h / (engine:{PREFIX}queried_tokens:rate1h > 0) > {settings[f"{of}.external_share"]}
        """),
        why="Replicas that can be compared: settled, with traffic, neither side of a prefill/decode pair.",
    )
    yield Record(
        name=f"engine:{PREFIX}replica_hit_tokens:rate{window}",
        expr=f"engine:{PREFIX}hit_tokens:rate{window}\nand\n  engine:{PREFIX}replica_queried_tokens:rate{window}",
        why="Hits of the same replicas.",
    )
    yield Record(
        name=f"model:{PREFIX}replica_hit_tokens_per_replica_queried_token:ratio_rate{window}",
        expr=query(f"""
            sum by ({MODEL}) (engine:{PREFIX}replica_hit_tokens:rate{window})
            /
              (sum by ({MODEL}) (engine:{PREFIX}replica_queried_tokens:rate{window}) > 0)
        """),
        why="The ratio that each of them would have if it did not matter where a request goes.",
    )
    yield Record(
        name=f"model:{PREFIX}replica_hit_ratio_deviation:rate{window}",
        expr=query(f"""
            sum by ({MODEL}) (
              abs(
                engine:{PREFIX}replica_hit_tokens:rate{window}
                -
                  engine:{PREFIX}replica_queried_tokens:rate{window}
                  * on ({MODEL}) group_left ()
                    model:{PREFIX}replica_hit_tokens_per_replica_queried_token:ratio_rate{window}
              )
            )
            /
              (sum by ({MODEL}) (engine:{PREFIX}replica_queried_tokens:rate{window}) > 0)
            and
              count by ({MODEL}) (engine:{PREFIX}replica_queried_tokens:rate{window}) >= 2
        """),
        why="Mean distance of the replicas from the model's ratio, weighted by tokens; absent with one replica.",
    )


def _has_hit(settings: Settings) -> Record:
    of = "alerts.PrefixCacheNoReuse"
    return Record(
        name=f"model:{PREFIX}hit_tokens_per_queried_token:max_ratio_rate1d",
        expr=f"max_over_time(model:{PREFIX}hit_tokens_per_queried_token:ratio_rate1d[{settings[f'{of}.has_hit_within']}])",
        why=f"The best day: {settings.why(f'{of}.has_hit_within')}",
    )
