"""Panels: factories that ask for what a panel must say, and draw all alike."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.errors import BoardError
from lib.grafana import Json, Panel, Query
from lib.metrics import Expr
from lib.palette import LIMIT, Words
from lib.rulefile import STATIC

NO_TRAFFIC = "no traffic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one query draws. `many`: several series, told apart by shade.

    `below`: the name of another line, up to which the space is filled, as between two bounds.
    """

    query: Expr
    name: str
    colour: str
    many: bool = False
    dashed: bool = False
    dotted: bool = False
    faint: bool = False
    below: str = ""
    unit: str = ""
    right: bool = False

    def __post_init__(self) -> None:
        named = {
            name for _, name, _, _ in string.Formatter().parse(self.name.replace("{{", "{").replace("}}", "}")) if name
        }
        if unknown := named - self.query.labels:
            raise BoardError(f'"{self.name}": {self.query} has no label {", ".join(sorted(unknown))}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: a value per row, or a label of the rows. `is_hidden`: its query only gives the rows."""

    name: str
    query: Expr | None = None
    label: str = ""
    unit: str = ""
    words: Words | None = None
    colour: str = ""
    links: tuple[tuple[str, str], ...] = ()
    decimals: int | None = None
    is_hidden: bool = False


def told(what: str, good: str, do: str) -> str:
    """Return a description: what the panel shows, what good looks like, what to do."""
    return f"{what}\n\n**Good:** {good}\n\n**If not:** {do}"


def chart(
    title: str,
    *lines: Line,
    about: str,
    unit: str,
    highest: float | None = None,
    stacked: bool = False,
    logarithmic: bool = False,
    empty: str = NO_TRAFFIC,
) -> Panel:
    """Return a chart over time; `highest` is the axis' end where it is known, `empty` is said without data."""
    custom: Json = {
        "drawStyle": "line", "lineWidth": 2, "fillOpacity": 40 if stacked else 0, "showPoints": "never",
        "spanNulls": False, "axisSoftMin": None if logarithmic else 0,
        "scaleDistribution": {"type": "log", "log": 10} if logarithmic else {"type": "linear"},
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }  # fmt: skip
    return Panel(
        kind="timeseries",
        title=title,
        description=about,
        targets=[_target(line.query, line.name, position) for position, line in enumerate(lines)],
        options={
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        defaults={
            "unit": unit, "min": None if logarithmic else 0, "max": highest, "noValue": empty,
            "color": {"mode": "fixed", "fixedColor": LIMIT}, "custom": custom,
        },
        overrides=[_styled(line, position) for position, line in enumerate(lines)],
    )  # fmt: skip


def number(
    title: str,
    query: Expr,
    *,
    about: str,
    unit: str,
    colour: str = LIMIT,
    steps: Sequence[tuple[float, str]] = (),
    empty: str = NO_TRAFFIC,
    decimals: int | None = None,
) -> Panel:
    """Return one value of now; `steps`: (from, colour) where its colour depends on it. `empty`: said without data."""
    coloured: Json = {"mode": "fixed", "fixedColor": colour}
    thresholds = None
    if steps:
        coloured = {"mode": "thresholds"}
        thresholds = _steps(colour, steps)
    return Panel(
        kind="stat", title=title, description=about,
        targets=[_target(query, title, 0, instant=True)],
        options=_stat_options("value"),
        defaults={
            "unit": unit, "noValue": empty, "color": coloured, "thresholds": thresholds, "decimals": decimals,
        },
    )  # fmt: skip


def verdict(title: str, query: Expr, *, about: str, words: Words, empty: str = NO_TRAFFIC) -> Panel:
    """Return a state of now in words, its colour behind it."""
    return Panel(
        kind="stat", title=title, description=about,
        targets=[_target(query, title, 0, instant=True)],
        options=_stat_options("background"),
        defaults={
            "unit": "none", "noValue": empty, "mappings": _mapped(words), "color": {"mode": "thresholds"},
            "thresholds": _steps(LIMIT, ()),
        },
    )  # fmt: skip


def timeline(title: str, query: Expr, name: str, *, about: str, words: Words, empty: str = NO_TRAFFIC) -> Panel:
    """Return states over time in words, a row per series."""
    Line(query=query, name=name, colour=LIMIT)  # checks the name
    return Panel(
        kind="state-timeline", title=title, description=about,
        targets=[_target(query, name, 0)],
        options={
            "mergeValues": True, "showValue": "auto", "alignValue": "left", "rowHeight": 0.8,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "single", "sort": "none"},
        },
        defaults={
            "noValue": empty, "mappings": _mapped(words), "color": {"mode": "thresholds"},
            "thresholds": _steps(LIMIT, ()), "custom": {"lineWidth": 0, "fillOpacity": 85},
        },
    )  # fmt: skip


def table(title: str, *columns: Column, about: str, empty: str, sort: str = "", descending: bool = True) -> Panel:
    """Return a table of now: a row per combination of the labels, a column per query.

    Series are taken by these labels and those that all targets have, so that nothing else (a metric's
    name, another label) keeps rows apart that belong together.
    """
    keys = [column.label for column in columns if column.label]
    queries = [(column, column.query) for column in columns if column.query is not None]
    for column, query in queries:
        if missing := set(keys) - query.labels:
            raise BoardError(f"{title}: {column.name}: {query} has no label {', '.join(sorted(missing))}")
    common = [label for label in STATIC if label not in keys and all(label in query.labels for _, query in queries)]
    values = {column.name: f"Value #{_ref(position)}" for position, (column, _) in enumerate(queries)}
    if len(values) == 1:
        values = dict.fromkeys(values, "Value")
    shown = [(column.label or values[column.name], column.name) for column in columns if not column.is_hidden]
    hidden = ["Time", *common, *(values[column.name] for column, _ in queries if column.is_hidden)]
    return Panel(
        kind="table", title=title, description=about,
        targets=[
            _target(query.max_by(*common, *keys), column.name, position, instant=True, is_table=True)
            for position, (column, query) in enumerate(queries)
        ],
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(hidden, True),
                    "indexByName": {source: position for position, (source, _) in enumerate(shown)},
                    "renameByName": dict(shown),
                },
            },
        ],
        options={
            "showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": [], "countRows": False},
            "sortBy": [{"displayName": sort, "desc": descending}] if sort else [],
        },
        defaults={"noValue": empty, "custom": {"align": "auto", "cellOptions": {"type": "auto"}}},
        overrides=[_of_column(column) for column in columns if not column.is_hidden],
    )  # fmt: skip


def words(title: str, content: str) -> Panel:
    """Return a text for people (Markdown)."""
    return Panel(
        kind="text", title=title, dataSource=None, interval=None,
        options={"mode": "markdown", "content": content, "code": {"language": "plaintext", "showLineNumbers": False}},
    )  # fmt: skip


def _target(query: Expr, name: str, position: int, *, instant: bool = False, is_table: bool = False) -> Query:
    return Query(expr=str(query), legendFormat=name, refId=_ref(position), instant=instant, is_table=is_table)


def _ref(position: int) -> str:
    return string.ascii_uppercase[position]


def _styled(line: Line, position: int) -> Json:
    properties: list[Json] = [
        {"id": "color", "value": {"mode": "shades" if line.many else "fixed", "fixedColor": line.colour}}
    ]
    if line.dashed:
        properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}})
    if line.dotted:
        properties.append({"id": "custom.lineStyle", "value": {"fill": "dot", "dash": [2, 8]}})
    if line.faint:
        properties.append({"id": "custom.lineWidth", "value": 1})
    if line.below:
        properties.append({"id": "custom.fillBelowTo", "value": line.below})
        properties.append({"id": "custom.fillOpacity", "value": 20})
    if line.unit:
        properties.append({"id": "unit", "value": line.unit})
    if line.right:
        properties.append({"id": "custom.axisPlacement", "value": "right"})
        if line.unit == "percentunit":
            properties.append({"id": "max", "value": 1})
    return {"matcher": {"id": "byFrameRefID", "options": _ref(position)}, "properties": properties}


def _of_column(column: Column) -> Json:
    properties: list[Json] = []
    if column.unit:
        properties.append({"id": "unit", "value": column.unit})
    if column.decimals is not None:
        properties.append({"id": "decimals", "value": column.decimals})
    if column.words is not None:
        properties.append({"id": "mappings", "value": _mapped(column.words)})
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}})
        properties.append({"id": "color", "value": {"mode": "thresholds"}})
        properties.append({"id": "thresholds", "value": _steps(LIMIT, ())})
    if column.colour:
        properties.append({"id": "color", "value": {"mode": "fixed", "fixedColor": column.colour}})
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    if column.links:
        links = [{"title": title, "url": url, "targetBlank": False} for title, url in column.links]
        properties.append({"id": "links", "value": links})
    return {"matcher": {"id": "byName", "options": column.name}, "properties": properties}


def _mapped(said: Words) -> list[Json]:
    options = {
        value: {"text": text, "color": colour, "index": index}
        for index, (value, (text, colour)) in enumerate(said.items())
    }
    return [{"type": "value", "options": options}]


def _steps(base: str, steps: Sequence[tuple[float, str]]) -> Mapping[str, Any]:
    return {
        "mode": "absolute",
        "steps": [{"value": None, "color": base}, *({"value": value, "color": colour} for value, colour in steps)],
    }


def _stat_options(colour_mode: str) -> Json:
    return {
        "colorMode": colour_mode, "graphMode": "none", "justifyMode": "center", "orientation": "auto",
        "textMode": "value", "wideLayout": True, "showPercentChange": False,
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }  # fmt: skip
