"""Alerts on one engine, or one address, being wrong or away."""

from rulebook.alerting.source import OF_ENGINE, Source
from rulebook.document import Alert
from rulebook.recording import ENGINE, PREFIX

TARGET = "cluster, namespace, target"


def alerts(source: Source) -> list[Alert]:
    """Return the alerts on one engine, or one address, being wrong or away."""
    return [_disabled(source), _frozen(source), _unreachable(source), _unresolved(source), _unlisted(source)]


def _disabled(source: Source) -> Alert:
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
        description=f"Prefix caching is off on {OF_ENGINE}, which computes {{{{ $value | humanize }}}} prompt tokens a second.",
    )  # fmt: skip


def _frozen(source: Source) -> Alert:
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
            f"{{{{ $value | humanize }}}} prompt tokens a second reach their first token on {OF_ENGINE},"
            " and its lookups do not move: every ratio of it is wrong."
        ),
    )  # fmt: skip


def _unreachable(source: Source) -> Alert:
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


def _unresolved(source: Source) -> Alert:
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


def _unlisted(source: Source) -> Alert:
    level = "cluster, namespace, job, instance"
    return source.alert(
        "PrefixCacheEngineUnreachable",
        f"max by ({level}) ({PREFIX}targets_file_last_reload_success) == 0",
        why="What was in the file before stays watched. What was added since is not, and nothing else could tell.",
        severity="warning", level="cluster, namespace", dashboard="prefixwatch-fleet", labels={"scope": "file"},
        summary="The exporter cannot read its targets file.",
        description=(
            "prefixwatch at {{ $labels.instance }} (job {{ $labels.job }}) cannot use its targets file: engines that were added"
            " to it are not watched. Its log says what is wrong with the file."
        ),
    )  # fmt: skip
