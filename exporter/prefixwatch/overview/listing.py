"""Many engines: a list of one line each, the worst first, and links that narrow it down."""

from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from prefixwatch.figures.figure import Absent
from prefixwatch.overview import charts
from prefixwatch.overview.markup import Content, Markup, name, tag
from prefixwatch.overview.state import headline, state_label
from prefixwatch.overview.views import EngineView, Overview, State, TargetView
from prefixwatch.report import percent

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
        f"{_counted(len(rows), 'row')}, over the last {overview.window}: what is in trouble first, then the lowest token"
        f" hit ratio.{left_off}",
        class_="note",
    )
    heads = (("state", None), ("engine", None), ("token level", None), ("request level", "wide"))
    more: tuple[tuple[str, str | None], ...] = ((f"last {overview.trend_span}", "wide"), ("requests", "wide"), ("why", "wide"))
    has_causes = any(engine is not None and engine.diagnosis for _, engine in ordered)
    columns = [*heads, *(more if has_causes else more[:-1])]
    yield tag(
        "table",
        tag("thead", tag("tr", (tag("th", title, scope="col", class_=kind) for title, kind in columns))),
        tag("tbody", (_row(target, engine, has_causes=has_causes) for target, engine in ordered)),
        class_="list",
    )


def filters(overview: Overview) -> Markup | None:
    """Return links to all, to what is in trouble, and to each model where there are a few; None for few targets."""
    choice = overview.choice
    troubled = sum(target.state is not State.UP for target in overview.targets)
    models = Counter(engine.figures.model_name for target in overview.targets for engine in target.engines)
    links = [_filter("all", len(overview.targets), {}, is_current=choice == type(choice)())]
    if troubled:
        links.append(_filter("in trouble", troubled, {"show": "trouble"}, is_current=choice.only_troubled))
    if 1 < len(models) <= _MAX_MODELS:
        links += [
            _filter(model, count, {"model": model}, is_current=choice.model == model)
            for model, count in sorted(models.items())
            if 0 < len(model) <= _MAX_LINKED
        ]
    is_needed = len(links) > 1 and (len(overview.targets) > 1 or len(models) > 1)
    return tag("nav", tag("ul", links), aria_label="Which engines") if is_needed or choice != type(choice)() else None


def link(**parameters: str) -> str:
    """Return a link to this page with these parameters."""
    return f"?{urlencode(parameters, errors='replace')}" if parameters else "."


def _filter(text: str, count: int, parameters: dict[str, str], *, is_current: bool) -> Markup:
    current = "page" if is_current else None
    return tag("li", tag("a", name(text), f" {count:,}", href=link(**parameters), aria_current=current))


def _row(target: TargetView, engine: EngineView | None, *, has_causes: bool) -> Markup:
    figures = engine.figures if engine else None
    address = tag("a", headline(target, figures, level="span"), href=link(target=target.snapshot.target))
    error = target.snapshot.error if target.state is not State.UP else None
    start = (tag("td", state_label(target.state)), tag("th", address, tag("p", error) if error else None, scope="row"))
    if engine is None or figures is None:
        return tag("tr", start, tag("td", "\N{EN DASH}"), [tag("td", class_="wide")] * (4 if has_causes else 3))
    ratio, request = figures.token_hit_ratio, figures.request_hit_ratio
    is_known = any(value is not None for value in engine.trend)
    cells: list[Content] = [
        "\N{EN DASH}" if isinstance(request, Absent) else percent(request.estimate),
        charts.sparkline(engine.trend, label="Token hit ratio") if is_known else "\N{EN DASH}",
        "\N{EN DASH}" if isinstance(figures.requests, Absent) else f"{figures.requests:,.0f}",
    ]
    if has_causes:
        cells.append(engine.diagnosis.cause.replace("_", " ") if engine.diagnosis else "\N{EN DASH}")
    return tag("tr", start, tag("td", _ratio(ratio)), (tag("td", cell, class_="wide") for cell in cells))


def _ratio(ratio: float | Absent) -> Content:
    if isinstance(ratio, Absent):
        return ("\N{EN DASH}", tag("p", ratio.reason))
    return (tag("strong", percent(ratio)), charts.bar(ratio, label=percent(ratio)))


def _badness(row: Row) -> tuple[int, float, str]:
    target, engine = row
    ratio = engine.figures.token_hit_ratio if engine else Absent("no engine")
    return _ORDER.index(target.state), 2.0 if isinstance(ratio, Absent) else ratio, target.snapshot.target


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
