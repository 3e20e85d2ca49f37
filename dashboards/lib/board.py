"""A board: its rows placed, its variables, links and annotations, and the last pass over its JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core  # type: ignore[import-untyped]
from grafanalib._gen import DashboardEncoder  # type: ignore[import-untyped]

from lib.grafana import Json, heading
from lib.layout import WIDTH, Row, Stack
from lib.metrics import ENGINE, alerts, raw
from lib.palette import DESIGN, MEMORY
from lib.variables import DATASOURCE, VARIABLES, query

SCHEMA_VERSION = 39
"""Grafana 10.4's own: later ones migrate it, and it stays readable there."""
TAG = "prefixwatch"
REFRESH, TIMEZONE, RANGE = "30s", "browser", "now-3h"
RESTART_SPAN = "2m"
"""Outlasts a scrape that is missed."""

_LEGACY = (
    "cacheTimeout", "editable", "error", "height", "hideTimeOverride", "links", "minSpan", "span", "timeFrom",
    "timeShift", "transparent", "maxDataPoints", "repeatDirection", "maxPerRow",
)  # fmt: skip
_OF_ROW = ("type", "title", "id", "gridPos", "collapsed", "panels", "repeat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard. `summary`: one sentence, which question it answers."""

    uid: str
    title: str
    summary: str
    rows: Sequence[Row]

    def to_json(self) -> Json:
        """Return Grafana's JSON. The same board gives the same document."""
        whole = core.Dashboard(
            title=f"prefixwatch / {self.title}",
            uid=self.uid,
            description=self.summary,
            tags=[TAG],
            timezone=TIMEZONE,
            refresh=REFRESH,
            time=core.Time(RANGE, "now"),
            editable=False,
            graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
            schemaVersion=SCHEMA_VERSION,
            version=1,
            links=[_links()],
            templating=core.Templating(list=[]),
            panels=_placed(self.rows),
        ).auto_panel_ids()
        return _finalized(json.loads(json.dumps(whole.to_json_data(), cls=DashboardEncoder)))

    def text(self) -> str:
        """Return the file that is committed."""
        return json.dumps(self.to_json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _placed(rows: Sequence[Row]) -> list[Any]:
    """Give each panel its place, row under row."""
    panels, top = [], 0
    for row in rows:
        head = heading(row.title, row.repeat)
        head.gridPos = core.GridPos(h=1, w=WIDTH, x=0, y=top)
        panels.append(head)
        body = Stack(row.boxes)
        for place in body.places(WIDTH):
            place.panel.gridPos = core.GridPos(h=place.h, w=place.w, x=place.x, y=place.y + top + 1)
            panels.append(place.panel)
        top += 1 + body.height
    return panels


def _links() -> core.DashboardLink:
    return core.DashboardLink(
        asDropdown=False, includeVars=True, keepTime=True, tags=[TAG], title="prefixwatch", type="dashboards"
    )


def _variables() -> list[Json]:
    source: Json = {
        "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "regex": "",
        "hide": 0, "refresh": 1, "includeAll": False, "multi": False, "options": [], "skipUrlSync": False,
        "description": "The Prometheus that scrapes prefixwatch and evaluates its rules.",
        "current": {"selected": True, "text": "default", "value": "default"},
    }  # fmt: skip
    return [source, *(_variable(position) for position in range(len(VARIABLES)))]


def _variable(position: int) -> Json:
    variable = VARIABLES[position]
    asked = query(variable)
    return {
        "type": "query", "name": variable.name, "label": variable.label, "description": variable.description,
        "datasource": DATASOURCE, "definition": asked,
        "query": {"query": asked, "refId": f"variable-{variable.name}", "qryType": 1},
        "refresh": 2, "sort": 1, "hide": 0, "regex": "", "multi": True, "includeAll": True,
        "allValue": variable.all_value, "options": [], "skipUrlSync": False,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }  # fmt: skip


def _annotations() -> list[Json]:
    restarts = raw("engine_restarts_total").changes(RESTART_SPAN).max_by(*ENGINE).where("> 0")
    firing = alerts(alertstate="firing")
    return [
        {
            "builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
            "iconColor": DESIGN, "name": "Annotations and alerts", "type": "dashboard",
        },
        _annotation("Engine restarts", str(restarts), DESIGN, "engine restarted", "{{model_name}} engine {{engine}} at {{target}}"),
        _annotation("Firing alerts", str(firing), MEMORY, "{{alertname}}", "{{severity}}: {{model_name}} {{target}}"),
    ]  # fmt: skip


def _annotation(name: str, expr: str, colour: str, title: str, text: str) -> Json:
    return {
        "name": name, "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": colour,
        "expr": expr, "step": "30s", "titleFormat": title, "textFormat": text, "useValueForTime": False,
    }  # fmt: skip


def _finalized(board: Json) -> Json:
    """Take out what Grafana has left behind, and what grafanalib cannot say put in."""
    for key in ("__inputs", "id", "rows", "style", "hideControls", "sharedCrosshair", "gnetId"):
        board.pop(key, None)
    board["templating"] = {"list": _variables()}
    board["annotations"] = {"list": _annotations()}
    board["fiscalYearStartMonth"], board["liveNow"] = 0, False
    board["timepicker"] = {"refresh_intervals": ["10s", REFRESH, "1m", "5m", "15m", "1h"]}
    board["links"] = [
        {**_bare(link), "icon": "external link", "targetBlank": False, "tooltip": ""} for link in board["links"]
    ]
    board["panels"] = [_panel(panel) for panel in board["panels"]]
    return board


def _panel(panel: Json) -> Json:
    if panel["type"] == "row":
        return {key: panel[key] for key in _OF_ROW if panel.get(key) is not None}
    kept = {key: value for key, value in panel.items() if key not in _LEGACY}
    if kept["type"] == "text":
        kept.pop("fieldConfig", None)
        kept.pop("targets", None)
    if not kept.get("transformations"):
        kept.pop("transformations", None)
    bare: Json = _bare(kept)
    return bare


def _bare(value: Any) -> Any:
    """Return the JSON without what is null: absent means Grafana's default. A threshold's first step is null by name."""
    if isinstance(value, dict):
        is_step = value.keys() == {"value", "color"}
        return {key: _bare(inner) for key, inner in value.items() if inner is not None or is_step}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value
