"""The alerts: what must hold, for how long, and what is said to whoever is called."""

from collections.abc import Mapping
from dataclasses import dataclass

from rulebook.document import Alert, Group, query
from rulebook.recording import ENGINE, MODEL, PREFIX
from rulebook.settings import Settings

TARGET = "cluster, namespace, target"
EXPORTER = "cluster, namespace, job"

_OF_MODEL = "{{ $labels.model_name }}{{ with $labels.namespace }} in {{ . }}{{ end }}"
_OF_ENGINE = f"engine {{{{ $labels.engine }}}} of {_OF_MODEL} at {{{{ $labels.target }}}}"
_MODEL_SELECTOR = "cluster=%q,namespace=%q,model_name=%q"
_MODEL_VALUES = "$labels.cluster $labels.namespace $labels.model_name"
_PERCENT = "{{ $value | humanizePercentage }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    """Where an alert's page and dashboard are."""

    runbooks: str
    dashboards: str

    def runbook(self, name: str) -> str:
        return f"{self.runbooks.rstrip('/') or 'alerts/runbooks'}/{name}.md"

    def dashboard(self, uid: str, labels: str) -> str:
        variables = "&".join(f"var-{label}={{{{ $labels.{label} | urlquery }}}}" for label in labels.split(", "))
        return f"{self.dashboards.rstrip('/')}/d/{uid}?{variables}"


class _Source:
    """Build alerts from the settings; `labels` is the level that an alert speaks about."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._links = _Links(runbooks=settings["links.runbooks"], dashboards=settings["links.dashboards"])
        self._flap = settings["shared.flap"]

    def of(self, name: str, key: str) -> str:
        """Return an alert's threshold as it stands in an expression."""
        return str(self.settings[f"alerts.{name}.{key}"])

    def shared(self, key: str) -> str:
        return str(self.settings[f"shared.{key}"])

    def alert(
        self,
        name: str,
        expr: str,
        *,
        why: str,
        severity: str,
        summary: str,
        description: str,
        level: str,
        dashboard: str,
        labels: Mapping[str, str] | None = None,
    ) -> Alert:
        return Alert(
            name=name,
            expr=query(expr),
            why=why,
            severity=severity,
            lasting=self.of(name, "for"),
            flap=self._flap,
            summary=summary,
            description=description,
            runbook_url=self._links.runbook(name),
            dashboard_url=self._links.dashboard(dashboard, level),
            labels=labels or {},
        )


def groups(settings: Settings) -> list[Group]:
    """Return the alerts by area."""
    source, interval = _Source(settings), settings["intervals.alerts"]
    areas = {
        "ratio": [*_dropped(source), _no_reuse(source), _gap(source), _imbalance(source)],
        "pool": [*_evicting(source), *_pressure(source)],
        "engine": [_disabled(source), _frozen(source), _unreachable(source), _unresolved(source)],
        "exporter": _exporter_down(source),
    }
    return [Group(name=f"prefixwatch.alerts.{area}", interval=interval, rules=rules) for area, rules in areas.items()]


def _asked(expr: str, values: str, shown: str = "humanizePercentage") -> str:
    """Return a template that shows another series of the same labels, and nothing where it is not there."""
    return f"{{{{ with printf {expr} {values} | query }}}}{{{{ . | first | value | {shown} }}}}{{{{ else }}}}unknown{{{{ end }}}}"


def _dropped(source: _Source) -> list[Alert]:
    name = "PrefixCacheHitRatioDropped"
    settled = f"model:{PREFIX}settled_hit_tokens_per_settled_queried_token:ratio_rate"
    baseline = f"model:{PREFIX}hit_tokens_per_queried_token:ratio_rate1d_offset1d"
    offset, least = source.of(name, "baseline_offset"), source.of(name, "baseline_ratio")
    rise, floor = source.of(name, "latency_rise"), source.of(name, "latency_floor_seconds")
    of_baseline = _asked(f"`{baseline}{{{_MODEL_SELECTOR}}}`", _MODEL_VALUES)

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
        now = _asked(f"`{series}5m{{{_MODEL_SELECTOR}}}`", _MODEL_VALUES, "humanizeDuration")
        then = _asked(f"`{series}1d{{{_MODEL_SELECTOR}}} offset {offset}`", _MODEL_VALUES, "humanizeDuration")
        return f"{now} (then {then})"

    shared = f"It was {of_baseline} the day before."
    warning = source.alert(
        name, has_fallen(source.of(name, "share_warning")),
        why="Both windows below a share of the model's own baseline; warm engines only, and enough traffic.",
        severity="warning", level=MODEL, dashboard="prefixwatch-overview",
        summary="The prefix cache finds much less than the day before.",
        description=f"Warm engines of {_OF_MODEL} found {_PERCENT} of the looked-up prompt tokens in the last hour. {shared}",
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
            f"Warm engines of {_OF_MODEL} found {_PERCENT} of the looked-up prompt tokens in the last hour. {shared}"
            f" A first token takes {now_and_then('first_token_seconds_per_first_token')}, of which a request queues"
            f" {now_and_then('queue_seconds_per_finished_request')}."
        ),
    )  # fmt: skip
    return [critical, warning]


def _no_reuse(source: _Source) -> Alert:
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
            f"Warm engines of {_OF_MODEL} found {_PERCENT} of the looked-up prompt tokens in the last hour,"
            " where the prompt lengths allow at least "
            + _asked(f'`{ceiling}{{{_MODEL_SELECTOR},bound="lower"}}`', _MODEL_VALUES)
            + "."
        ),
    )  # fmt: skip


def _gap(source: _Source) -> Alert:
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
            f"The token ratio of {_OF_MODEL} is at least {_PERCENT} points above the mean over its requests in the last hour:"
            " the long prompts are the warm ones, and many requests compute most of their prompt."
        ),
    )  # fmt: skip


def _imbalance(source: _Source) -> Alert:
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
            f"The warm replicas of {_OF_MODEL} are {_PERCENT} points away from their common hit ratio on average,"
            " weighted by tokens, over the last hour: requests do not go to where their prefix is."
        ),
    )  # fmt: skip


def _evicting(source: _Source) -> list[Alert]:
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
            f"{_PERCENT} of the blocks that {_OF_ENGINE} stored in the last hour had been in its pool before"
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
            f"The diagnosis of {_OF_ENGINE} is eviction with high confidence; it found "
            + _asked(
                f"`engine:{PREFIX}hit_tokens_per_queried_token:ratio_rate5m{{{_MODEL_SELECTOR},target=%q,engine=%q}}`",
                f"{_MODEL_VALUES} $labels.target $labels.engine",
            )
            + " of the looked-up prompt tokens in the last 5 minutes. Its evidence: prefixwatch check."
        ),
    )  # fmt: skip
    return [events, diagnosis]


def _pressure(source: _Source) -> list[Alert]:
    name = "PrefixCacheKvPressure"
    summary = "Running requests crowd the KV pool."
    preemptions = source.alert(
        name,
        f"engine:{PREFIX}preemptions:rate5m * 60 > {source.of(name, 'preemptions_a_minute')}",
        why="Preempted requests lose their blocks and start over.",
        severity="warning", level=ENGINE, dashboard="prefixwatch-kv-pool", labels={"evidence": "preemptions"},
        summary=summary,
        description=f"{{{{ $value | humanize }}}} requests a minute are preempted on {_OF_ENGINE}: each starts over.",
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
        description=f"Running requests hold up to {_PERCENT} of the KV pool of {_OF_ENGINE}, and others wait all the time.",
    )  # fmt: skip
    return [preemptions, waiting]


def _disabled(source: _Source) -> Alert:
    name = "PrefixCacheDisabled"
    marked = source.of(name, "marked")
    return source.alert(
        name,
        f"""
            engine:{PREFIX}prompt_tokens:rate5m > {source.shared("tokens_per_second")}
            and
              max by ({ENGINE}) ({PREFIX}prefix_caching_enabled) == 0
            unless
              max by ({ENGINE}) ({PREFIX}prefix_caching_enabled{{prefix_cache_intended="{marked}"}}) == 0
        """,
        why="Prompts are served without the cache, and nobody has said that this is meant.",
        severity="info", level=ENGINE, dashboard="prefixwatch-overview",
        summary="An engine serves prompts with prefix caching off.",
        description=f"Prefix caching is off on {_OF_ENGINE}, which computes {{{{ $value | humanize }}}} prompt tokens a second.",
    )  # fmt: skip


def _frozen(source: _Source) -> Alert:
    name = "PrefixCacheCountersFrozen"
    return source.alert(
        name,
        f"""
            engine:{PREFIX}prompt_tokens:rate5m
            and
              (
                  max by ({ENGINE}) ({PREFIX}counters_frozen) == 1
                or
                  (engine:{PREFIX}queried_tokens:rate5m == 0 and engine:{PREFIX}prompt_tokens:rate5m > 0)
              )
            and
              engine:{PREFIX}queried_tokens:rate1d > 0
            unless
              max by ({ENGINE}) ({PREFIX}prefix_caching_enabled) == 0
        """,
        why="First tokens come and nothing is looked up, on an engine that has looked up within the day.",
        severity="warning", level=ENGINE, dashboard="prefixwatch-overview",
        summary="The prefix cache's counters stand still while requests are served.",
        description=(
            f"{{{{ $value | humanize }}}} prompt tokens a second reach their first token on {_OF_ENGINE},"
            " and its lookups do not move: every ratio of it is wrong."
        ),
    )  # fmt: skip


def _unreachable(source: _Source) -> Alert:
    name = "PrefixCacheEngineUnreachable"
    grace, memory = source.of(name, "loading_grace"), source.of(name, "seen_within")
    values = "$labels.cluster $labels.namespace $labels.target"
    selector = "{cluster=%q,namespace=%q,target=%q}"
    reason = f"topk(1, sum by (reason) (increase({PREFIX}poll_errors_total{selector}[{grace}])))"
    last = f"time() - max(max_over_time({PREFIX}last_success_timestamp_seconds{selector}[{memory}]))"
    return source.alert(
        name,
        f"""
            max by ({TARGET}) ({PREFIX}up) == 0
            and
              (
                  max by ({TARGET}) ({PREFIX}last_success_timestamp_seconds) > 0
                or
                  (
                      max by ({TARGET}) (max_over_time({PREFIX}up[{grace}])) == 0
                    and
                      max by ({TARGET}) ({PREFIX}up offset {grace}) == 0
                  )
              )
        """,
        why="The exporter has read it and cannot any more, or has polled it in vain for longer than a model loads.",
        severity="warning", level=TARGET, dashboard="prefixwatch-overview",
        summary="The exporter gets no usable page from an engine.",
        description=(
            "{{ $labels.target }}{{ with $labels.namespace }} in {{ . }}{{ end }} gives the exporter no usable page"
            f"{{{{ with printf `{reason}` {values} | query }}}} (reason: {{{{ . | first | label `reason` }}}}){{{{ end }}}}."
            f" {{{{ with printf `{last}` {values} | query }}}}"
            "The last one came {{ . | first | value | humanizeDuration }} ago"
            f"{{{{ else }}}}There was none in the last {memory}: check host, port, path and scheme of the address, and that"
            " the engine listens where the exporter can reach it{{ end }}."
        ),
    )  # fmt: skip


def _unresolved(source: _Source) -> Alert:
    name = "PrefixCacheEngineUnreachable"
    level = "cluster, namespace, dns"
    return source.alert(
        name,
        f"""
            max by ({level}) ({PREFIX}dns_addresses) == 0
            and
              max by ({level}) (max_over_time({PREFIX}dns_addresses[{source.of(name, "resolved_within")}])) == 0
        """,
        why="A Service whose selector matches no pod: no target, so nothing else could tell.",
        severity="warning", level="cluster, namespace", dashboard="prefixwatch-overview", labels={"scope": "name"},
        summary="There is no address behind a DNS name that the exporter watches.",
        description=(
            "There is no address behind {{ $labels.dns }}{{ with $labels.namespace }} in {{ . }}{{ end }}, so nothing of it is"
            " watched. Check the name, that its Service is headless, and that the Service's selector matches the pods."
        ),
    )  # fmt: skip


def _exporter_down(source: _Source) -> list[Alert]:
    name = "PrefixCacheExporterDown"
    seen = source.of(name, "seen_within")
    one = source.alert(
        name,
        f"""
            max by ({EXPORTER}, instance) (up) == 0
            and
              max by ({EXPORTER}, instance) (max_over_time({PREFIX}build_info[{seen}])) == 1
        """,
        why="Prometheus still knows the address and gets nothing from it. A pod that ended has no up.",
        severity="warning", level="cluster, namespace", dashboard="prefixwatch-overview", labels={"scope": "instance"},
        summary="An exporter that was there cannot be scraped.",
        description=(
            "Prometheus gets nothing from prefixwatch at {{ $labels.instance }} (job {{ $labels.job }}):"
            " no other alert can fire for the engines that it alone watches."
        ),
    )  # fmt: skip
    every = source.alert(
        name,
        f"""
            max by ({EXPORTER}) (max_over_time({PREFIX}build_info[{seen}])) == 1
            unless
              max by ({EXPORTER}) ({PREFIX}build_info) == 1
            unless
              max by ({EXPORTER}) (up == 0 and on ({EXPORTER}, instance) max_over_time({PREFIX}build_info[{seen}])) == 0
        """,
        why="None is left where there was one within the day, and service discovery has forgotten them all.",
        severity="warning", level="cluster, namespace", dashboard="prefixwatch-overview", labels={"scope": "job"},
        summary="All exporters of a job are gone.",
        description=(
            "No prefixwatch of job {{ $labels.job }}{{ with $labels.namespace }} in {{ . }}{{ end }} is left"
            " where there was one within the day: none of its alerts can fire."
        ),
    )  # fmt: skip
    return [one, every]
