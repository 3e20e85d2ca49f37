"""Alerts on how much is found in the cache."""

from rulebook.alerting.source import MODEL_SELECTOR, MODEL_VALUES, OF_MODEL, PERCENT, Source, asked
from rulebook.document import Alert
from rulebook.recording import MODEL, PREFIX


def alerts(source: Source) -> list[Alert]:
    """Return the alerts on how much is found in the cache."""
    return [*_dropped(source), _no_reuse(source), _gap(source), _imbalance(source)]


def _dropped(source: Source) -> list[Alert]:
    name = "PrefixCacheHitRatioDropped"
    settled = f"model:{PREFIX}settled_hit_tokens_per_settled_queried_token:ratio_rate"
    baseline = f"model:{PREFIX}hit_tokens_per_queried_token:ratio_rate1d_offset1d"
    offset, least = source.of(name, "baseline_offset"), source.of(name, "baseline_ratio")
    rise, floor = source.of(name, "latency_rise"), source.of(name, "latency_floor_seconds")
    of_baseline = asked(f"`{baseline}{{{MODEL_SELECTOR}}}`", MODEL_VALUES)

    def has_fallen(share: str) -> str:
        return f"""
            (
                {settled}1h < {share} * ({baseline} > {least})
              and
                {settled}5m < {share} * {baseline}
              and
                model:{PREFIX}settled_queried_tokens:rate5m > {source.shared("tokens_per_second")}
              and
                model:{PREFIX}requests_finished:rate1h * 3600 > {source.shared("requests_an_hour")}
            )"""

    def has_risen(latency: str) -> str:
        series = f"model:{PREFIX}{latency}:ratio_rate"
        return f"""
                (
                    {series}5m > {rise} * ({series}1d offset {offset})
                  and
                    {series}5m > {floor}
                )"""

    def now_and_then(latency: str) -> str:
        series = f"model:{PREFIX}{latency}:ratio_rate"
        now = asked(f"`{series}5m{{{MODEL_SELECTOR}}}`", MODEL_VALUES, "humanizeDuration")
        then = asked(f"`{series}1d{{{MODEL_SELECTOR}}} offset {offset}`", MODEL_VALUES, "humanizeDuration")
        return f"{now} (then {then})"

    shared = f"It was {of_baseline} the day before."
    warning = source.alert(
        name, has_fallen(source.of(name, "share_warning")),
        why="Both windows below a share of the model's own baseline; warm engines only, and enough traffic.",
        severity="warning", level=MODEL, dashboard="prefixwatch-overview",
        summary="The prefix cache finds much less than the day before.",
        description=f"Warm engines of {OF_MODEL} found {PERCENT} of the looked-up prompt tokens in the last hour. {shared}",
    )  # fmt: skip
    critical = source.alert(
        name,
        f"""{has_fallen(source.of(name, "share_critical"))}
            and
              ({has_risen("first_token_seconds_per_first_token")}
                or{has_risen("queue_seconds_per_finished_request")}
              )
        """,
        why="The same at a lower share, and users feel it: first tokens or the queue take longer than at the baseline.",
        severity="critical", level=MODEL, dashboard="prefixwatch-overview",
        summary="The prefix cache finds much less than the day before, and requests wait longer.",
        description=(
            f"Warm engines of {OF_MODEL} found {PERCENT} of the looked-up prompt tokens in the last hour. {shared}"
            f" A first token takes {now_and_then('first_token_seconds_per_first_token')}, of which a request queues"
            f" {now_and_then('queue_seconds_per_finished_request')}."
        ),
    )  # fmt: skip
    return [critical, warning]


def _no_reuse(source: Source) -> Alert:
    name = "PrefixCacheNoReuse"
    settled = f"model:{PREFIX}settled_hit_tokens_per_settled_queried_token:ratio_rate"
    ceiling = f"model:{PREFIX}cacheable_tokens_per_observed_prompt_token:ratio_rate1h"
    ratio, least = source.of(name, "ratio"), source.of(name, "ceiling")
    has_hit = f"model:{PREFIX}hit_tokens_per_queried_token:max_ratio_rate1d > {source.of(name, 'has_hit_ratio')}"
    settings, expected = source.settings, f"alerts.{name}.expected_models"
    is_expected = f'model:{PREFIX}queried_tokens:rate5m{{model_name=~"{settings.any_of(expected)}"}}'
    shares = settings.if_any(expected, "(") + has_hit + settings.if_any(expected, f" or {is_expected})")
    return source.alert(
        name,
        f"""
            {settled}1h < {ratio}
            and
              {settled}5m < {ratio}
            and
              model:{PREFIX}settled_queried_tokens:rate5m > {source.shared("tokens_per_second")}
            and
              model:{PREFIX}requests_finished:rate1h * 3600 > {source.shared("requests_an_hour")}
            and on ({MODEL})
              {ceiling}{{bound="lower"}} > {least}
            and
              {shares}
            unless
              max by ({MODEL}) ({PREFIX}prefix_caching_enabled) == 0
        """,
        why="Nothing is found although the prompts are long enough, and this model is known to share prefixes.",
        severity="warning", level=MODEL, dashboard="prefixwatch-diagnosis",
        summary="The prefix cache finds nothing although prompts are long enough to share.",
        description=(
            f"Warm engines of {OF_MODEL} found {PERCENT} of the looked-up prompt tokens in the last hour,"
            " where the prompt lengths allow at least "
            + asked(f'`{ceiling}{{{MODEL_SELECTOR},bound="lower"}}`', MODEL_VALUES)
            + "."
        ),
    )  # fmt: skip


def _gap(source: Source) -> Alert:
    name = "PrefixCacheTokenRequestGap"
    requests = f"model:{PREFIX}request_hit_ratio_sum_per_observed_request:ratio_rate"
    cached = f"model:{PREFIX}observed_cached_tokens_per_observed_prompt_token:ratio_rate"
    gap, least = source.of(name, "gap"), source.of(name, "requests_an_hour")
    return source.alert(
        name,
        f"""
              {cached}1h - on ({MODEL}) {requests}1h{{bound="upper"}} > {gap}
            and
              {cached}5m - on ({MODEL}) {requests}5m{{bound="upper"}} > {gap}
            and
              model:{PREFIX}requests_observed:rate1h * 3600 > {least}
        """,
        why="The lower bound of the gap, from the upper bound of the request ratio: wide bounds never fire.",
        severity="info", level=MODEL, dashboard="prefixwatch-overview",
        summary="The token hit ratio is far above what most requests get.",
        description=(
            f"The token ratio of {OF_MODEL} is at least {PERCENT} points above the mean over its requests in the last hour:"
            " the long prompts are the warm ones, and many requests compute most of their prompt."
        ),
    )  # fmt: skip


def _imbalance(source: Source) -> Alert:
    name = "PrefixCacheReplicaImbalance"
    deviation, most = f"model:{PREFIX}replica_hit_ratio_deviation:rate", source.of(name, "deviation")
    return source.alert(
        name,
        f"""
              {deviation}1h > {most}
            and
              {deviation}5m > {most}
        """,
        why="Distance from the model's ratio weighted by tokens, in both windows; warm replicas with traffic only.",
        severity="warning", level=MODEL, dashboard="prefixwatch-fleet",
        summary="Replicas of one model find very different shares of their prompts.",
        description=(
            f"The warm replicas of {OF_MODEL} are {PERCENT} points away from their common hit ratio on average,"
            " weighted by tokens, over the last hour: requests do not go to where their prefix is."
        ),
    )  # fmt: skip
