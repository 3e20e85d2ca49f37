"""Many engines: a list of one line each, the worst first, and links that narrow it down."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlencode

from prefixwatch.figures.figure import Absent
from prefixwatch.figures.wording import percent
from prefixwatch.overview import charts
from prefixwatch.overview.markup import DASH, Content, Markup, name, tag
from prefixwatch.overview.state import headline, in_words, state_label
from prefixwatch.overview.views import Choice, EngineView, Overview, State, TargetView

MAX_ROWS = 250
_MAX_MODELS = 8
_MAX_LINKED = 200
_ORDER = tuple(State)

Row = tuple[TargetView, EngineView | None]


def rows_of(overview: Overview) -> list[Row]:
    """Return a row for each engine, and for each target without one, as far as chosen; in order of the targets."""
    every = ((t, e) for t in overview.targets for e in (t.engines or (None,)))
    return [row for row in every if overview.choice.admits(*row)]


def listing(rows: Sequence[Row], overview: Overview) -> Iterator[Markup]:
    """Yield the list. Targets in trouble come first, then the lowest token hit ratio; unknown ratios last."""
    ordered = sorted(rows, key=_badness)[:MAX_ROWS]
    left_off = f" The first {MAX_ROWS} are shown." if len(rows) > MAX_ROWS else ""
    yield tag(
        "p",
        f"{_counts(rows)}, over the last {overview.window}: what is in trouble first, then the lowest token hit"
        f" ratio.{left_off}",
        class_="note",
    )
    columns = (
        ("state", None), ("engine", None), ("token level", None), ("why", "wide"), ("request level", "wide"),
        (f"last {overview.trend_span}", "wide"), ("requests", "wide"),
    )  # fmt: skip
    yield tag(
        "table",
        tag("thead", tag("tr", (tag("th", title, scope="col", class_=kind) for title, kind in columns))),
        tag("tbody", (_row(target, engine) for target, engine in ordered)),
        class_="list",
    )


def filters(overview: Overview) -> Markup | None:
    """Return links to all, to what is in trouble, and to each cause and model; None where one engine is all."""
    choice, engines = overview.choice, [engine for target in overview.targets for engine in target.engines]
    if len(overview.targets) < 2 and len(engines) < 2 and choice == Choice():
        return None
    troubled = sum(target.state is not State.UP for target in overview.targets)
    causes = Counter(engine.cause for engine in engines if engine.cause)
    models = Counter(engine.figures.model_name for engine in engines)
    links = [_filter("all", len(rows_of(replace(overview, choice=Choice()))), {}, is_current=choice == Choice())]
    if troubled:
        links.append(_filter("in trouble", troubled, {"show": "trouble"}, is_current=choice.only_troubled))
    for cause, count in causes.most_common():
        links.append(_filter(in_words(cause), count, {"cause": cause}, is_current=choice.cause == cause))
    for model, count in sorted(models.items()) if 1 < len(models) <= _MAX_MODELS else ():
        if 0 < len(model) <= _MAX_LINKED:
            links.append(_filter(model, count, {"model": model}, is_current=choice.model == model))
    return tag("nav", tag("ul", links), aria_label="Which engines")


def link(**parameters: str) -> str:
    """Return a link to this page with these parameters."""
    return f"?{urlencode(parameters, errors='replace')}" if parameters else "."


def _filter(text: str, count: int, parameters: dict[str, str], *, is_current: bool) -> Markup:
    current = "page" if is_current else None
    return tag("li", tag("a", name(text), f" {count:,}", href=link(**parameters), aria_current=current))


def _row(target: TargetView, engine: EngineView | None) -> Markup:
    figures = engine.figures if engine else None
    address = tag("a", headline(target, figures, level="span"), href=link(target=target.snapshot.target))
    error = target.snapshot.error if target.state is not State.UP else None
    cause = in_words(engine.cause) if engine and engine.cause else DASH
    start = (
        tag("td", state_label(target.state), tag("p", cause, class_="narrow") if engine else None),
        tag("th", address, tag("p", error) if error else None, scope="row"),
    )
    if engine is None or figures is None:
        return tag("tr", start, tag("td", DASH), [tag("td", class_="wide")] * 4)
    ratio, request = figures.token_hit_ratio, figures.request_hit_ratio
    trend = engine.trend_of()
    is_known = any(value is not None for value in trend)
    cells: tuple[Content, ...] = (
        cause,
        DASH if isinstance(request, Absent) else percent(request.estimate),
        charts.sparkline(trend, label="Token hit ratio") if is_known else DASH,
        DASH if isinstance(figures.requests, Absent) else f"{figures.requests:,.0f}",
    )
    return tag("tr", start, tag("td", _ratio(ratio)), (tag("td", cell, class_="wide") for cell in cells))


def _ratio(ratio: float | Absent) -> Content:
    if isinstance(ratio, Absent):
        return (DASH, tag("p", ratio.reason))
    return (tag("strong", percent(ratio)), charts.bar(ratio, label=percent(ratio)))


def _badness(row: Row) -> tuple[int, float, str]:
    target, engine = row
    ratio = engine.figures.token_hit_ratio if engine else Absent("no engine")
    return _ORDER.index(target.state), 2.0 if isinstance(ratio, Absent) else ratio, target.snapshot.target


def _counts(rows: Sequence[Row]) -> str:
    engines = sum(engine is not None for _, engine in rows)
    others = len(rows) - engines
    words = [f"{engines:,} {'engine' if engines == 1 else 'engines'}"]
    return ", ".join(words + [f"{others:,} {'target' if others == 1 else 'targets'} without one"] * bool(others))
