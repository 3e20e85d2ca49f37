"""Alerts on the exporter itself."""

from rulebook.alerting.source import Source
from rulebook.document import Alert
from rulebook.recording import PREFIX

EXPORTER = "cluster, namespace, job"


def alerts(source: Source) -> list[Alert]:
    """Return the alerts on the exporter itself."""
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
