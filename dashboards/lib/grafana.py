"""grafanalib's classes, with defaults that hold in Grafana 10.4 to 13. It has no types: nothing else imports it but `board`."""

from collections.abc import Mapping
from typing import Any

import attr
from grafanalib import core  # type: ignore[import-untyped]

from lib.variables import DATASOURCE

MIN_INTERVAL = "30s"
"""As often as the short recording rules are evaluated: finer steps show nothing more."""

Json = dict[str, Any]


@attr.s(kw_only=True)
class Query(core.Target):  # type: ignore[misc]
    """A target without grafanalib's coarse steps, with its datasource."""

    expr: str = attr.ib()
    legendFormat: str = attr.ib()  # noqa: N815  grafanalib's name
    refId: str = attr.ib()  # noqa: N815  grafanalib's name
    instant: bool = attr.ib(default=False)
    is_table: bool = attr.ib(default=False)

    def to_json_data(self) -> Json:
        """Return Grafana's JSON."""
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if self.is_table else "time_series",
            "instant": self.instant,
            "legendFormat": self.legendFormat,
            "range": not self.instant,
            "refId": self.refId,
        }


@attr.s(kw_only=True)
class Panel(core.Panel):  # type: ignore[misc]
    """A panel of any type whose options grafanalib cannot say: as Grafana states them."""

    kind: str = attr.ib()
    title: str = attr.ib()
    description: str | None = attr.ib(default=None)
    targets: list[Query] = attr.ib(factory=list)
    transformations: list[Json] = attr.ib(factory=list)
    options: Json = attr.ib(factory=dict)
    defaults: Json = attr.ib(factory=dict)
    overrides: list[Json] = attr.ib(factory=list)
    dataSource: Mapping[str, str] | None = attr.ib(default=DATASOURCE)  # noqa: N815  grafanalib's name
    interval: str | None = attr.ib(default=MIN_INTERVAL)
    maxDataPoints: int | None = attr.ib(default=None)  # noqa: N815  grafanalib's name

    def to_json_data(self) -> Json:
        """Return Grafana's JSON; grafanalib's own thresholds are left out."""
        found: Json = self.panel_json(
            {
                "type": self.kind,
                "options": self.options,
                "fieldConfig": {"defaults": self.defaults, "overrides": self.overrides},
            }
        )
        found["fieldConfig"] = {"defaults": self.defaults, "overrides": self.overrides}
        return found


def heading(title: str, repeat: str = "") -> core.RowPanel:
    """Return a row's heading; `repeat`: the variable for each of whose values the row stands."""
    return core.RowPanel(title=title, repeat=core.Repeat(variable=repeat or None), dataSource=None)
