"""Alerts on the KV pool."""

from rulebook.alerting.source import MODEL_SELECTOR, MODEL_VALUES, OF_ENGINE, PERCENT, Source, asked
from rulebook.document import Alert
from rulebook.recording import ENGINE, PREFIX


def alerts(source: Source) -> list[Alert]:
    """Return the alerts on the KV pool."""
    return [*_evicting(source), *_pressure(source)]


def _evicting(source: Source) -> list[Alert]:
    name = "PrefixCacheEvictingReusedBlocks"
    avoidable = f"engine:{PREFIX}blocks_stored_again_per_stored_block:ratio_rate"
    least, floor = source.of(name, "avoidable_ratio"), source.of(name, "blocks_per_second")
    summary = "The prefix cache evicts blocks that are needed again."
    events = source.alert(
        name,
        f"""
              {avoidable}1h > {least}
            and
              {avoidable}5m > {least}
            and
              engine:{PREFIX}blocks_stored:rate5m > {floor}
        """,
        why="By the engine's cache events: blocks stored again after their removal. Ended conversations do not come back.",
        severity="warning", level=ENGINE, dashboard="prefixwatch-kv-pool", labels={"evidence": "events"},
        summary=summary,
        description=(
            f"{PERCENT} of the blocks that {OF_ENGINE} stored in the last hour had been in its pool before"
            " and were evicted: a larger pool would have found them."
        ),
    )  # fmt: skip
    diagnosis = source.alert(
        name,
        f"""
              max by ({ENGINE}) ({PREFIX}diagnosis{{cause="eviction"}}) == 1
            and
              max by ({ENGINE}) ({PREFIX}diagnosis_confidence) >= {source.of(name, "confidence")}
            and
              engine:{PREFIX}queried_tokens:rate5m > {source.shared("tokens_per_second")}
            unless
              engine:{PREFIX}blocks_stored:rate1h > 0
        """,
        why="Without events: the exporter's diagnosis, where it is sure.",
        severity="warning", level=ENGINE, dashboard="prefixwatch-kv-pool", labels={"evidence": "diagnosis"},
        summary=summary,
        description=(
            f"The diagnosis of {OF_ENGINE} is eviction with high confidence; it found "
            + asked(
                f"`engine:{PREFIX}hit_tokens_per_queried_token:ratio_rate5m{{{MODEL_SELECTOR},target=%q,engine=%q}}`",
                f"{MODEL_VALUES} $labels.target $labels.engine",
            )
            + " of the looked-up prompt tokens in the last 5 minutes. Its evidence: prefixwatch check."
        ),
    )  # fmt: skip
    return [events, diagnosis]


def _pressure(source: Source) -> list[Alert]:
    name = "PrefixCacheKvPressure"
    summary = "Running requests crowd the KV pool."
    preemptions = source.alert(
        name,
        f"engine:{PREFIX}preemptions:rate5m * 60 > {source.of(name, 'preemptions_a_minute')}",
        why="Preempted requests lose their blocks and start over.",
        severity="warning", level=ENGINE, dashboard="prefixwatch-kv-pool", labels={"evidence": "preemptions"},
        summary=summary,
        description=f"{{{{ $value | humanize }}}} requests a minute are preempted on {OF_ENGINE}: each starts over.",
    )  # fmt: skip
    window = source.of(name, "usage_window")
    waiting = source.alert(
        name,
        f"""
              max by ({ENGINE}) ({PREFIX}kv_usage_max_ratio{{window="{window}"}}) > {source.of(name, "usage")}
            and
              max by ({ENGINE}) (min_over_time({PREFIX}requests_waiting[{source.settings["windows.5m"]}])) >= {source.of(name, "waiting")}
        """,
        why="High usage alone is a busy engine; with a queue that never empties it is a full one.",
        severity="warning", level=ENGINE, dashboard="prefixwatch-kv-pool", labels={"evidence": "waiting"},
        summary=summary,
        description=f"Running requests hold up to {PERCENT} of the KV pool of {OF_ENGINE}, and others wait all the time.",
    )  # fmt: skip
    return [preemptions, waiting]
